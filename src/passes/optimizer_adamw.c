/* AdamW: Loshchilov and Hutter 2017 (arXiv 1711.05101), in torch.optim.AdamW's arithmetic. */
#include "ops/adamw/adamw.h"
#include "passes/optimizer.h"

sn_status sn_update_adamw(const sn_update *u, const sn_updated *x) {
    sn_pid m = sn_update_state(u, x, "exp_avg", u->moments), v = m == SN_NONE ? m : sn_update_state(u, x, "exp_avg_sq", u->moments);
    if (v == SN_NONE) return SN_ERR_NO_MEMORY;
    sn_attrs a = {.i[SN_ADAMW_PARAMETER] = x->index, .f[SN_ADAMW_WEIGHT_DECAY] = x->decay};
    a.f[SN_ADAMW_BETA1] = sn_options_float(u->recipe, "adam_beta1");
    a.f[SN_ADAMW_BETA2] = sn_options_float(u->recipe, "adam_beta2");
    a.f[SN_ADAMW_EPS] = sn_options_float(u->recipe, "adam_epsilon");
    return sn_update_append(u, x, SN_OP_adamw, &a, 4,
                            (sn_vid[]){x->w, x->gradient, sn_use_persistent(u->g, m), sn_use_persistent(u->g, v)});
}
