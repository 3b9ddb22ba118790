/* Muon: Jordan et al. 2024, for the matrices of the blocks; embeddings, head, norms and biases are AdamW's. */
#include <math.h>
#include <string.h>

#include "ops/muon/muon.h"
#include "passes/optimizer.h"

sn_status sn_update_muon(const sn_update *u, const sn_updated *x) {
    const sn_persistent *e = &u->g->job->persistent[x->parameter];
    if (e->shape.rank != 2 || e->layer < 0) return sn_update_adamw(u, x);
    const double rows = (double)e->shape.d[0], columns = (double)e->shape.d[1];
    const bool match = !strcmp(sn_options_string(u->recipe, "muon_adjust_lr"), "match_rms_adamw");
    sn_pid m = sn_update_state(u, x, "momentum_buffer", u->moments);
    if (m == SN_NONE) return SN_ERR_NO_MEMORY;
    sn_update_needs_whole(u, x, 1, &m);
    sn_attrs a = {.i[SN_MUON_PARAMETER] = x->index, .f[SN_MUON_WEIGHT_DECAY] = x->decay};
    a.f[SN_MUON_MOMENTUM] = sn_options_float(u->recipe, "muon_momentum");
    a.f[SN_MUON_SCALE] = match ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
    return sn_update_append(u, x, SN_OP_muon, &a, 3, (sn_vid[]){x->w, x->gradient, sn_use_persistent(u->g, m)});
}
