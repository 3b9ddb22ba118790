/* GaLore: Zhao et al. 2024 (arXiv 2403.03507), for the matrices of the blocks whose shorter side is above the rank; the rest is AdamW's. */
#include "ops/adamw/adamw.h"
#include "ops/galore/galore.h"
#include "ops/subspace/subspace.h"
#include "passes/optimizer.h"

sn_status sn_update_galore(const sn_update *u, const sn_updated *x) {
    const sn_persistent *e = &u->g->job->persistent[x->parameter];
    const int64_t rank = sn_options_int(u->recipe, "galore_rank"), rows = e->shape.d[0], columns = e->shape.rank == 2 ? e->shape.d[1] : 0;
    const int64_t side = rows < columns ? rows : columns, longer = rows + columns - side;
    if (e->shape.rank != 2 || e->layer < 0 || side <= rank) return sn_update_adamw(u, x);
    sn_pid states[3] = {sn_update_state_of(u, x, "projector", SN_F32, sn_shape_of(rank, side)), SN_NONE, SN_NONE};
    static const char *const moments[] = {"exp_avg", "exp_avg_sq"};
    for (int i = 1; i < 3 && states[i - 1] != SN_NONE; i++)
        states[i] = sn_update_state_of(u, x, moments[i - 1], u->moments, sn_shape_of(rank, longer));
    if (states[2] == SN_NONE) return SN_ERR_NO_MEMORY;
    sn_update_needs_whole(u, x, 3, states);
    sn_vid out[SN_MAX_OUT], p = sn_use_persistent(u->g, states[0]);
    sn_attrs refresh = {.i = {[SN_SUBSPACE_PARAMETER] = x->index, [SN_SUBSPACE_GAP] = sn_options_int(u->recipe, "galore_update_gap")}};
    sn_append(u->g, SN_OP_subspace, &refresh, 4, (sn_vid[]){x->gradient, p, u->hyper, u->clip}, x->name, out);
    sn_attrs a = {.i[SN_GALORE_PARAMETER] = x->index,
                  .f[SN_ADAMW_WEIGHT_DECAY] = x->decay,
                  .f[SN_GALORE_SCALE] = sn_options_float(u->recipe, "galore_scale")};
    a.f[SN_ADAMW_BETA1] = sn_options_float(u->recipe, "adam_beta1");
    a.f[SN_ADAMW_BETA2] = sn_options_float(u->recipe, "adam_beta2");
    a.f[SN_ADAMW_EPS] = sn_options_float(u->recipe, "adam_epsilon");
    return sn_update_append(u, x, SN_OP_galore, &a, 5,
                            (sn_vid[]){x->w, x->gradient, p, sn_use_persistent(u->g, states[1]), sn_use_persistent(u->g, states[2])});
}
