#include "support/program_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support/support.h"

typedef struct span {
    uint64_t start, end;
    uint32_t first, last;
} span;

static size_t add_span(span *spans, size_t n, uint64_t start, uint64_t bytes, uint32_t k) {
    for (size_t i = 0; i < n; i++)
        if (spans[i].start == start && spans[i].end == start + bytes && k <= spans[i].last + 0u) return n;
    spans[n] = (span){start, start + bytes, k, k};
    return n + 1;
}

/* Transient lifetimes from the instructions: a write of bytes that no later read sees before the next write ends there. */
static size_t read_spans(const sn_program *p, uint64_t persistent, span *spans) {
    size_t n = 0;
    for (uint32_t k = 0; k < p->count; k++) {
        const sn_instr *in = &p->instrs[k];
        for (int i = 0; i < in->n_in; i++) {
            const sn_arg *a = &in->in[i];
            size_t bytes;
            if (a->arena != SN_TIER_DEVICE || a->offset < persistent) continue;
            assert_true(sn_shape_bytes(&a->shape, a->dtype, &bytes));
            bool found = false;
            for (size_t s = n; s-- > 0 && !found;)
                if (spans[s].start <= a->offset && a->offset + bytes <= spans[s].end) {
                    spans[s].last = k;
                    found = true;
                }
            if (!found) fail_msg("%s instruction %u (%s) reads bytes that nothing wrote", p->name, k, in->name);
        }
        for (int i = 0; i < in->n_out; i++) {
            const sn_arg *a = &in->out[i];
            size_t bytes;
            if (a->arena != SN_TIER_DEVICE || a->offset < persistent) continue;
            assert_true(sn_shape_bytes(&a->shape, a->dtype, &bytes));
            bool in_place = false;
            for (int j = 0; j < in->n_in; j++) in_place |= in->in[j].arena == SN_TIER_DEVICE && in->in[j].offset == a->offset;
            if (!in_place) n = add_span(spans, n, a->offset, sn_round_up(bytes, 64), k);
        }
        if (in->scratch_bytes) n = add_span(spans, n, in->scratch_offset, in->scratch_bytes, k);
    }
    return n;
}

void check_program_is_tight(const sn_plan *plan, int index) {
    const sn_program *p = &plan->programs[index].program;
    uint64_t persistent = plan->persistent_bytes[SN_TIER_DEVICE], most = 0;
    span *spans = calloc(p->count * 6 + 16, sizeof *spans);
    size_t n = read_spans(p, persistent, spans);
    for (uint32_t k = 0; k < p->count; k++) {
        uint64_t live = 0;
        for (size_t s = 0; s < n; s++)
            if (spans[s].first <= k && k <= spans[s].last) live += spans[s].end - spans[s].start;
        if (live > most) most = live;
    }
    uint64_t arena = persistent + p->transient_bytes[SN_TIER_DEVICE];
    if ((double)arena > 1.03 * (double)(persistent + most))
        fail_msg("%s: arena %llu bytes, live maximum %llu", p->name, (unsigned long long)arena, (unsigned long long)(persistent + most));
    assert_true(arena >= persistent + most);
    char *covered = calloc(1, p->transient_bytes[SN_TIER_DEVICE] + 1);
    for (size_t s = 0; s < n; s++) memset(covered + spans[s].start - persistent, 1, spans[s].end - spans[s].start);
    for (uint64_t b = 0; b < p->transient_bytes[SN_TIER_DEVICE]; b++)
        if (!covered[b]) fail_msg("%s: byte %llu of the arena is covered by no value", p->name, (unsigned long long)(persistent + b));
    free(covered);
    free(spans);
}

/* ordered[i * words + j / 64] bit j: instruction j is known to have ended before i starts. */
void check_program_is_ordered(const sn_program *p) {
    size_t words = (p->count + 63) / 64;
    uint64_t *before = calloc(p->count * words, sizeof *before);
    for (uint32_t i = 0; i < p->count; i++) {
        const sn_instr *in = &p->instrs[i];
        for (uint32_t j = 0; j < i; j++) {
            const sn_instr *e = &p->instrs[j];
            bool ended = in->wait[e->queue] && e->signal <= in->wait[e->queue];
            bool in_turn = e->queue == in->queue && (in->queue != SN_QUEUE_IO || e->signal + SN_DISK_TRANSFERS <= in->signal);
            bool direct = ended || in_turn;
            if (!direct && e->queue != in->queue) continue;
            if (direct) before[i * words + j / 64] |= UINT64_C(1) << (j % 64); /* else j has started, behind what it waited for */
            for (size_t w = 0; w < words; w++) before[i * words + w] |= before[j * words + w];
        }
        for (uint32_t j = 0; j < i; j++)
            if (sn_args_conflict(&p->instrs[j], in) && !(before[i * words + j / 64] >> (j % 64) & 1))
                fail_msg("%s: instructions %u (%s) and %u (%s) share bytes and are not ordered", p->name, j, p->instrs[j].name, i,
                         in->name);
    }
    free(before);
}

void run_in_random_order(sn_run *run, const sn_plan *plan, int index, int slot, uint32_t seed) {
    const sn_program *p = &plan->programs[index].program;
    uint32_t next[SN_QUEUE_COUNT] = {0}, done[SN_QUEUE_COUNT] = {0}, draws = 0;
    for (uint32_t ran = 0; ran < p->count;) {
        int q = (int)(sn_philox(seed, 0, draws++, 0, 0, 0).v[0] % SN_QUEUE_COUNT);
        uint32_t k = next[q];
        while (k < p->count && p->instrs[k].queue != q) k++;
        next[q] = k;
        if (k == p->count) continue;
        bool ready = true;
        for (int r = 0; r < SN_QUEUE_COUNT; r++) ready &= done[r] >= p->instrs[k].wait[r];
        if (!ready) continue;
        sn_run_instruction(run, index, k, slot);
        done[q] = p->instrs[k].signal;
        next[q]++;
        ran++;
    }
}
