/* Lion: Chen et al. 2023 (arXiv 2302.06675). One moment. */
#include "ops/lion/lion.h"
#include "passes/optimizer.h"

sn_status sn_update_lion(const sn_update *u, const sn_updated *x) {
    sn_pid m = sn_update_state(u, x, "exp_avg", u->moments);
    if (m == SN_NONE) return SN_ERR_NO_MEMORY;
    sn_attrs a = {.i[SN_LION_PARAMETER] = x->index, .f[SN_LION_WEIGHT_DECAY] = x->decay};
    a.f[SN_LION_BETA1] = sn_options_float(u->recipe, "adam_beta1");
    a.f[SN_LION_BETA2] = sn_options_float(u->recipe, "adam_beta2");
    return sn_update_append(u, x, SN_OP_lion, &a, 3, (sn_vid[]){x->w, x->gradient, sn_use_persistent(u->g, m)});
}
