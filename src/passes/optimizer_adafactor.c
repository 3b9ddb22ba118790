/* Adafactor: Shazeer and Stern 2018 (arXiv 1804.04235), as in transformers with scale_parameter and relative_step off. */
#include "ops/adafactor/adafactor.h"
#include "passes/optimizer.h"

sn_status sn_update_adafactor(const sn_update *u, const sn_updated *x) {
    const sn_shape shape = u->g->job->persistent[x->parameter].shape;
    const bool matrix = shape.rank == 2;
    sn_pid states[2] = {SN_NONE, SN_NONE};
    if (matrix) {
        states[0] = sn_update_state_of(u, x, "exp_avg_sq_row", SN_F32, sn_shape_of(shape.d[0]));
        states[1] = states[0] == SN_NONE ? SN_NONE : sn_update_state_of(u, x, "exp_avg_sq_col", SN_F32, sn_shape_of(shape.d[1]));
    } else {
        states[0] = sn_update_state(u, x, "exp_avg_sq", SN_F32);
    }
    if (states[0] == SN_NONE || (matrix && states[1] == SN_NONE)) return SN_ERR_NO_MEMORY;
    sn_update_needs_whole(u, x, matrix ? 2 : 1, states);
    sn_attrs a = {.i[SN_ADAFACTOR_PARAMETER] = x->index, .f[SN_ADAFACTOR_WEIGHT_DECAY] = x->decay};
    return sn_update_append(
        u, x, SN_OP_adafactor, &a, 4,
        (sn_vid[]){x->w, x->gradient, sn_use_persistent(u->g, states[0]), matrix ? sn_use_persistent(u->g, states[1]) : SN_NONE});
}
