/* Where what lives inside one run of a program lies: values and scratch, by their lifetimes. */
#include <string.h>

#include "plan/place.h"
#include "plan/planner.h"

static uint64_t block_bytes(const planner *p, sn_vid root) {
    return p->staged[root] ? sn_round_up(p->bytes[root], SN_DISK_ALIGN) : p->bytes[root];
}

static bool has_block(const planner *p, sn_vid v, sn_tier tier) {
    return p->root[v] == v && sn_plan_is_transient(p, &p->g->values[v]) && p->first[v] != SN_NONE &&
           sn_plan_tier_of(&p->g->values[v]) == tier && p->bytes[v];
}

/* Transient bytes of a tier from which on the plan is of no use. */
static uint64_t most_of(const planner *p, sn_tier tier) {
    uint64_t persistent = p->plan->persistent_bytes[tier];
    if (!p->request->most || tier != SN_TIER_DEVICE) return UINT64_MAX;
    return p->request->most > persistent ? p->request->most - persistent : 0;
}

/* Whether a node touches what a collective writes where another value is. */
static bool touches(const planner *p, const sn_node *n, const sn_node *collective) {
    for (int i = 0; i < collective->n_in; i++) {
        const sn_vid to = collective->in[i].value;
        if (to == SN_NONE || !(sn_ops[collective->op]->mutates >> i & 1)) continue;
        for (int j = 0; j < n->n_in + n->n_out; j++) {
            const sn_vid v = j < n->n_in ? n->in[j].value : n->out[j - n->n_in];
            const sn_pid kept = p->g->values[to].persistent;
            if (v != SN_NONE && (p->root[v] == p->root[to] || (kept != SN_NONE && p->g->values[v].persistent == kept))) return true;
        }
    }
    return false;
}

/* The last instruction that need not wait for the collective `at`, as no result of it or of one behind it is used so far, and what it
 * reads is still held. */
static uint32_t runs_beside(const planner *p, uint32_t at) {
    const sn_program *prog = &p->out->program;
    const sn_node *collective = &p->g->nodes[p->order[at]];
    uint32_t last = prog->count - 1;
    for (int i = 0; i < collective->n_in; i++) {
        const sn_vid v = collective->in[i].value;
        if (sn_plan_is_read(p, collective, i) && sn_plan_is_transient(p, &p->g->values[v]) && p->last[p->root[v]] < last)
            last = p->last[p->root[v]];
    }
    for (uint32_t k = at + 1; k <= last; k++) {
        const sn_node *n = &p->g->nodes[p->order[k]];
        if (prog->instrs[k].queue == SN_QUEUE_COMM) continue;
        if (touches(p, n, collective)) return k - 1;
        for (int i = 0; i < n->n_in; i++) {
            const uint32_t made = n->in[i].value == SN_NONE ? SN_NONE : p->first[n->in[i].value];
            if (made != SN_NONE && made >= at && made < k && prog->instrs[made].queue == SN_QUEUE_COMM) return k - 1;
        }
    }
    return last < at ? at : last;
}

/* Bytes of scratch and how long they are held, from *at on, which begins with 0; false: there is no more. An instruction of the
 * communication queue holds them while others run beside it, which would wait for it if they had to use them. The queue does one
 * after the other: those that hold scratch at once have the same. */
static bool next_scratch(const planner *p, uint32_t *at, sn_block *b) {
    const sn_program *prog = &p->out->program;
    for (; *at < 2 * prog->count; ++*at) {
        const uint32_t k = *at % prog->count;
        const bool beside = *at >= prog->count;
        const sn_instr *in = &prog->instrs[k];
        if (!in->scratch_bytes || (in->queue == SN_QUEUE_COMM) != beside) continue;
        *b = (sn_block){.first = k, .last = beside ? runs_beside(p, k) : k, .bytes = in->scratch_bytes, .turns = in->turns};
        while (++*at < 2 * prog->count && beside && *at - prog->count <= b->last) {
            in = &prog->instrs[*at - prog->count];
            if (!in->scratch_bytes || in->queue != SN_QUEUE_COMM) continue;
            const uint32_t last = runs_beside(p, *at - prog->count);
            if (last > b->last) b->last = last;
            if (in->scratch_bytes > b->bytes) b->bytes = in->scratch_bytes;
            b->turns = sn_turn_hull(b->turns, in->turns);
        }
        return true;
    }
    return false;
}

/* Scratch of the instructions that hold this block. */
static void set_scratch(sn_program *prog, const sn_life *l) {
    const uint8_t queue = prog->instrs[l->first].queue;
    for (uint32_t k = l->first; k <= l->last; k++)
        if (prog->instrs[k].queue == queue && prog->instrs[k].scratch_bytes) prog->instrs[k].scratch_offset = l->offset;
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
        for (uint32_t at = 0; tier == SN_TIER_DEVICE && next_scratch(p, &at, &blocks[n]); n++) {
            const sn_block *b = &blocks[n];
            lives[n_lives++] = (sn_life){b->first, b->last, SN_NONE, 0, b->bytes, SN_CLASS_WORKSPACE, SN_TIER_DEVICE, b->turns};
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
            else set_scratch(prog, l);
        }
    }
    sn_free(blocks);
    SN_SHRINK(p->out->lives, n_lives, most);
    p->out->n_lives = n_lives;
    return s;
}

/* Bytes alive at each instruction of a tier. */
void sn_plan_measure_live(const planner *p, sn_tier tier, uint64_t *live) {
    const sn_program *prog = &p->out->program;
    sn_block b;
    memset(live, 0, (prog->count + 1) * sizeof *live);
    for (size_t v = 0; v < p->g->n_values; v++) {
        if (!has_block(p, (sn_vid)v, tier)) continue;
        live[p->first[v]] += block_bytes(p, (sn_vid)v);
        live[p->last[v] + 1] -= block_bytes(p, (sn_vid)v);
    }
    for (uint32_t at = 0; tier == SN_TIER_DEVICE && next_scratch(p, &at, &b);) {
        live[b.first] += b.bytes;
        live[b.last + 1] -= b.bytes;
    }
    for (uint32_t k = 1; k < prog->count; k++) live[k] += live[k - 1];
}
