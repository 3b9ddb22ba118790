/* Where what lives inside one run of a program lies: values and scratch, by their lifetimes. */
#include <string.h>

#include "plan/place.h"
#include "plan/planner.h"

static uint64_t block_bytes(const planner *p, sn_vid root) {
    return p->staged[root] ? sn_round_up(p->bytes[root], SN_DISK_ALIGN) : p->bytes[root];
}

static bool has_block(const planner *p, sn_vid v, sn_tier tier) {
    return p->root[v] == v && sn_plan_is_transient(p, &p->g->values[v]) && p->first[v] != SN_NONE && sn_plan_tier_of(&p->g->values[v]) == tier && p->bytes[v];
}

/* Transient bytes of a tier from which on the plan is of no use. */
static uint64_t most_of(const planner *p, sn_tier tier) {
    uint64_t persistent = p->plan->persistent_bytes[tier];
    if (!p->request->most || tier != SN_TIER_DEVICE) return UINT64_MAX;
    return p->request->most > persistent ? p->request->most - persistent : 0;
}

/* Blocks of one arena: values (by root) and scratch. */
sn_status sn_plan_place_transients(planner *p) {
    const sn_graph *g = p->g;
    sn_program *prog = &p->out->program;
    size_t most = g->n_values + p->n_order + 1;
    sn_block *blocks = sn_alloc(most * sizeof *blocks);
    sn_life *lives = p->out->lives = sn_alloc_zero(most, sizeof *lives);
    sn_status s = blocks && lives ? SN_OK : sn_plan_no_memory();
    size_t n_lives = 0;
    for (int tier = 0; s == SN_OK && tier < SN_TIER_COUNT; tier++) {
        size_t n = 0, base = n_lives;
        for (size_t v = 0; v < g->n_values; v++) {
            if (!has_block(p, (sn_vid)v, (sn_tier)tier)) continue;
            uint64_t bytes = block_bytes(p, (sn_vid)v);
            uint32_t align = p->staged[v] ? SN_DISK_ALIGN : 0;
            blocks[n++] = (sn_block){.first = p->first[v], .last = p->last[v], .bytes = bytes, .align = align, .turns = p->held[v]};
            lives[n_lives] = (sn_life){p->first[v], p->last[v], (uint32_t)v, 0, bytes, g->values[v].class_of, (sn_tier)tier, p->held[v]};
            n_lives++;
        }
        for (uint32_t k = 0; tier == SN_TIER_DEVICE && k < prog->count; k++) {
            if (!prog->instrs[k].scratch_bytes) continue;
            blocks[n++] = (sn_block){.first = k, .last = k, .bytes = prog->instrs[k].scratch_bytes, .turns = prog->instrs[k].turns};
            lives[n_lives++] = (sn_life){k, k, SN_NONE, 0, prog->instrs[k].scratch_bytes, SN_CLASS_WORKSPACE, SN_TIER_DEVICE, prog->instrs[k].turns};
        }
        uint64_t arena = 0;
        if (p->request->reuse) s = sn_place(blocks, n, most_of(p, (sn_tier)tier), &arena, &p->plan->rough);
        else
            for (size_t i = 0; i < n; i++) {
                blocks[i].offset = blocks[i].align ? sn_round_up(arena, blocks[i].align) : arena;
                arena = blocks[i].offset + blocks[i].bytes;
            }
        prog->transient_bytes[tier] = arena;
        uint64_t origin = p->plan->persistent_bytes[tier];
        for (size_t i = 0; s == SN_OK && i < n; i++) {
            sn_life *l = &lives[base + i];
            l->offset = origin + blocks[i].offset;
            if (l->value != SN_NONE) p->offset[l->value] = l->offset;
            else prog->instrs[l->first].scratch_offset = l->offset;
        }
    }
    p->out->n_lives = n_lives;
    sn_free(blocks);
    return s;
}

/* Bytes alive at each instruction of a tier. */
void sn_plan_measure_live(const planner *p, sn_tier tier, uint64_t *live) {
    const sn_program *prog = &p->out->program;
    memset(live, 0, (prog->count + 1) * sizeof *live);
    for (size_t v = 0; v < p->g->n_values; v++) {
        if (!has_block(p, (sn_vid)v, tier)) continue;
        live[p->first[v]] += block_bytes(p, (sn_vid)v);
        live[p->last[v] + 1] -= block_bytes(p, (sn_vid)v);
    }
    for (uint32_t k = 1; k < prog->count; k++) live[k] += live[k - 1];
    for (uint32_t k = 0; tier == SN_TIER_DEVICE && k < prog->count; k++) live[k] += prog->instrs[k].scratch_bytes;
}
