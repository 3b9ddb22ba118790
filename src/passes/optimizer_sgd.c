/* SGD with or without momentum, as torch.optim.SGD. */
#include "ops/sgd/sgd.h"
#include "passes/optimizer.h"

sn_status sn_update_sgd(const sn_update *u, const sn_updated *x) {
    double momentum = sn_options_float(u->recipe, "momentum");
    sn_pid m = momentum > 0 ? sn_update_state(u, x, "momentum", u->moments) : SN_NONE;
    if (momentum > 0 && m == SN_NONE) return SN_ERR_NO_MEMORY;
    sn_attrs a = {.i[SN_SGD_PARAMETER] = x->index, .f[SN_SGD_MOMENTUM] = momentum, .f[SN_SGD_WEIGHT_DECAY] = x->decay};
    return sn_update_append(u, x, SN_OP_sgd, &a, 3, (sn_vid[]){x->w, x->gradient, m == SN_NONE ? SN_NONE : sn_use_persistent(u->g, m)});
}
