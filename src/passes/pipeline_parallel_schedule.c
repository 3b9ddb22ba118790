/* Who does what when: each stage's own order is fixed by its schedule; the order of all is that in which the stages would come to it if
 * a backward part took twice as long as a forward part. Sources: GPipe (Huang et al. 2018, arXiv 1811.06965); one forward, one backward
 * with a flush, PipeDream-flush (Narayanan et al. 2020, arXiv 2006.09503); interleaved stages (Narayanan et al. 2021, arXiv 2104.04473). */
#include "passes/pipeline_parallel.h"

/* The i-th forward (or backward) part of a stage. With several chunks a stage takes micro-batches in groups of `stages` through one chunk
 * after another. */
static sn_pipeline_unit part(const sn_pipeline *p, int stage, int64_t i, bool backward) {
    int64_t group = (int64_t)p->stages * p->turns, turn = i % group / p->stages;
    if (p->turns == 1) return (sn_pipeline_unit){(int32_t)i, stage, backward};
    if (backward) turn = p->turns - 1 - turn;
    return (sn_pipeline_unit){(int32_t)(i / group * p->stages + i % p->stages), (int32_t)(turn * p->stages + stage), backward};
}

/* The k-th of the 2 * n parts of a stage: `ahead` forward parts, then one forward and one backward in turn, then what is left. */
static sn_pipeline_unit unit_of(const sn_pipeline *p, int stage, int64_t k) {
    int64_t n = p->micro_batches * p->turns, ahead = p->stages - stage - 1;
    if (p->turns > 1) ahead = 2 * ahead + (int64_t)(p->turns - 1) * p->stages;
    if (p->gpipe || ahead > n) ahead = n;
    if (k < ahead) return part(p, stage, k, false);
    k -= ahead;
    if (k < 2 * (n - ahead)) return part(p, stage, k % 2 ? k / 2 : ahead + k / 2, k % 2);
    return part(p, stage, k - (n - ahead), true);
}

typedef struct clock {
    int64_t *done[2];     /* forward, backward: by chunk, micro-batch: when it ends; -1: it has not begun */
    int64_t *next, *idle; /* by stage: its next part; from when on it has nothing to do */
} clock;

/* When a unit can begin; -1: what it needs has not begun yet. */
static int64_t begin_of(const sn_pipeline *p, const clock *c, sn_pipeline_unit u, int stage) {
    int64_t start = c->idle[stage], M = p->micro_batches, needed[2] = {0, 0};
    int last = sn_pipeline_chunks(p) - 1;
    if (!u.backward && u.chunk > 0) needed[0] = c->done[0][(u.chunk - 1) * M + u.micro];
    if (u.backward) needed[0] = c->done[0][u.chunk * M + u.micro];
    if (u.backward && u.chunk < last) needed[1] = c->done[1][(u.chunk + 1) * M + u.micro];
    for (int i = 0; i < 2; i++) {
        if (needed[i] < 0) return -1;
        if (needed[i] > start) start = needed[i];
    }
    return start;
}

static sn_status run_clock(const sn_pipeline *p, clock *c, sn_pipeline_unit *units) {
    int64_t each = 2 * p->micro_batches * p->turns;
    for (int64_t k = 0; k < each * p->stages; k++) {
        int64_t earliest = -1;
        int chosen = -1;
        for (int s = 0; s < p->stages; s++) {
            if (c->next[s] == each) continue;
            int64_t start = begin_of(p, c, unit_of(p, s, c->next[s]), s);
            if (start < 0 || (chosen >= 0 && start >= earliest)) continue;
            earliest = start;
            chosen = s;
        }
        if (chosen < 0) return sn_fail(SN_ERR_INTERNAL, "the stages of a pipeline wait for each other after %lld parts", (long long)k);
        sn_pipeline_unit u = units[k] = unit_of(p, chosen, c->next[chosen]++);
        c->done[u.backward][u.chunk * p->micro_batches + u.micro] = c->idle[chosen] = earliest + (u.backward ? 2 : 1);
    }
    return SN_OK;
}

sn_status sn_pipeline_schedule(const sn_pipeline *p, sn_pipeline_unit *units) {
    size_t parts = (size_t)p->micro_batches * (size_t)sn_pipeline_chunks(p);
    clock c = {{sn_alloc(parts * sizeof(int64_t)), sn_alloc(parts * sizeof(int64_t))},
               sn_alloc_zero((size_t)p->stages, sizeof(int64_t)),
               sn_alloc_zero((size_t)p->stages, sizeof(int64_t))};
    sn_status s = c.done[0] && c.done[1] && c.next && c.idle ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a schedule");
    for (size_t i = 0; s == SN_OK && i < parts; i++) c.done[0][i] = c.done[1][i] = -1;
    if (s == SN_OK) s = run_clock(p, &c, units);
    sn_free(c.done[0]);
    sn_free(c.done[1]);
    sn_free(c.next);
    sn_free(c.idle);
    return s;
}
