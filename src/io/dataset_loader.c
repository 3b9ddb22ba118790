/* Order, split, packing, batches. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "io/dataset.h"

static const uint64_t split_seed = 0x736e75672073706c; /* of the evaluation split: the same for every training seed */

uint64_t sn_shuffle(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t i) {
    unsigned half = 1;
    while (half < 31 && (UINT64_C(1) << (2 * half)) < n) half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    if (n < 2) return 0;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint32_t round = 0; round < 8; round++) {
            sn_rng4 r = sn_philox((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)right, round, (uint32_t)epoch, (uint32_t)(epoch >> 32));
            uint64_t next = left ^ (r.v[0] & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

typedef struct placement {
    uint64_t row; /* of the dataset */
    int64_t bin;  /* row of the step */
    int64_t offset;
    uint32_t tokens;
} placement;

struct sn_loader {
    sn_loader_options o;
    int64_t length, bins; /* of a row; rows of a step */
    uint64_t first, rows; /* the part's rows are first .. first + rows - 1 of the split's order */
    bool split;
    placement *placements; /* of the last step */
    size_t count, capacity;
    int64_t *fill; /* tokens in each bin while a step is packed */
    sn_sample sample;
};

static sn_status set_part(sn_loader *l) {
    const sn_loader_options *o = &l->o;
    uint64_t all = sn_dataset_get_info(o->dataset)->rows;
    l->rows = all;
    l->split = o->part != SN_DATA_ALL;
    if (!l->split) return SN_OK;
    if (!(o->eval_fraction > 0 && o->eval_fraction < 1))
        return sn_fail(SN_ERR_USAGE, "the evaluation split is %g of the rows, not between 0 and 1", o->eval_fraction);
    uint64_t held = (uint64_t)ceil(o->eval_fraction * (double)all);
    if (held >= all)
        return sn_fail(SN_ERR_DATA, "an evaluation split of %g takes all %llu rows", o->eval_fraction, (unsigned long long)all);
    l->first = o->part == SN_DATA_EVAL ? 0 : held;
    l->rows = o->part == SN_DATA_EVAL ? held : all - held;
    return SN_OK;
}

sn_status sn_loader_open(const sn_loader_options *o, sn_loader **out) {
    *out = NULL;
    sn_loader *l = sn_alloc_zero(1, sizeof *l);
    if (!l) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a data loader");
    l->o = *o;
    if (!l->o.accumulation) l->o.accumulation = 1;
    if (!l->o.ranks) l->o.ranks = 1;
    l->length = sn_dataset_cutoff(o->dataset);
    sn_status s = SN_OK;
    int64_t micro_tokens;
    if (l->o.micro_rows < 1 || l->o.accumulation < 1 || l->o.ranks < 1 || !sn_mul_i64(l->o.micro_rows, l->length, &micro_tokens) ||
        micro_tokens > INT32_MAX || !sn_mul_i64(l->o.micro_rows, l->o.accumulation, &l->bins) || !sn_mul_i64(l->bins, l->o.ranks, &l->bins))
        s = sn_fail(SN_ERR_USAGE, "a batch of %lld rows x %lld micro-batches x %lld ranks of %lld tokens is not possible",
                    (long long)l->o.micro_rows, (long long)l->o.accumulation, (long long)l->o.ranks, (long long)l->length);
    if (s == SN_OK) s = set_part(l);
    if (s == SN_OK && !(l->fill = sn_alloc_zero((size_t)l->bins, sizeof *l->fill)))
        s = sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a step of %lld rows", (long long)l->bins);
    if (s == SN_OK) *out = l;
    else sn_loader_close(l);
    return s;
}

void sn_loader_close(sn_loader *l) {
    if (!l) return;
    sn_free(l->placements);
    sn_free(l->fill);
    sn_sample_free(&l->sample);
    sn_free(l);
}

uint64_t sn_loader_rows(const sn_loader *l) { return l->rows; }

static uint64_t row_at(const sn_loader *l, uint64_t epoch, uint64_t position) {
    uint64_t i = l->o.shuffle ? sn_shuffle(l->rows, l->o.seed, epoch, position) : position;
    return l->split ? sn_shuffle(sn_dataset_get_info(l->o.dataset)->rows, split_seed, 0, l->first + i) : i;
}

/* First fit: the first row with room. -1: none. `from` skips rows that are full to the last token. */
static int64_t find_bin(const sn_loader *l, int64_t *from, uint32_t tokens) {
    while (*from < l->bins && l->fill[*from] == l->length) ++*from;
    for (int64_t b = *from; b < l->bins; b++) {
        if (l->fill[b] + tokens <= l->length) return b;
    }
    return -1;
}

sn_status sn_loader_step(sn_loader *l, sn_data_cursor *at, sn_step *step) {
    int64_t from = 0, used = 0;
    *step = (sn_step){.epoch = at->epoch};
    l->count = 0;
    memset(l->fill, 0, (size_t)l->bins * sizeof *l->fill);
    if (at->position >= l->rows)
        return sn_fail(SN_ERR_DATA, "the data position %llu lies behind the %llu rows: other data or settings than at the checkpoint",
                       (unsigned long long)at->position, (unsigned long long)l->rows);
    for (; at->position < l->rows; at->position++) {
        uint32_t tokens, labels;
        placement p = {.row = row_at(l, at->epoch, at->position)};
        SN_TRY(sn_dataset_count(l->o.dataset, p.row, &tokens, &labels));
        if (tokens > l->length) return sn_fail(SN_ERR_INTERNAL, "row %llu has %u tokens", (unsigned long long)p.row, tokens);
        p.bin = l->o.packing ? find_bin(l, &from, tokens) : used < l->bins ? used : -1;
        if (p.bin < 0) break;
        p.offset = l->fill[p.bin];
        p.tokens = tokens;
        l->fill[p.bin] += tokens;
        used++;
        SN_TRY(SN_GROW(l->placements, l->count, l->capacity));
        l->placements[l->count++] = p;
        step->label_tokens += labels;
        step->tokens += tokens;
        step->samples++;
    }
    at->batch_step++;
    step->ends_epoch = at->position == l->rows;
    if (step->ends_epoch) {
        at->epoch++;
        at->position = 0;
    }
    return SN_OK;
}

static sn_status put(sn_loader *l, const placement *p, int64_t row, sn_batch *b) {
    const sn_sample *s = &l->sample;
    int64_t start = row * l->length + p->offset;
    SN_TRY(sn_dataset_read(l->o.dataset, p->row, &l->sample));
    if (s->ids.size != p->tokens)
        return sn_fail(SN_ERR_INTERNAL, "row %llu has %zu tokens, not %u", (unsigned long long)p->row, s->ids.size, p->tokens);
    for (int64_t i = 0; i < (int64_t)p->tokens; i++) {
        b->ids[start + i] = s->ids.data[i];
        b->labels[start + i] = s->labels.data[i];
        b->positions[start + i] = (int32_t)i;
        b->seq_start[start + i] = (int32_t)start;
        b->label_tokens += s->labels.data[i] != SN_IGNORE_LABEL;
    }
    b->tokens += p->tokens;
    b->samples++;
    return SN_OK;
}

sn_status sn_loader_fill(sn_loader *l, int64_t micro, int64_t rank, sn_batch *b) {
    if (micro < 0 || micro >= l->o.accumulation || rank < 0 || rank >= l->o.ranks)
        return sn_fail(SN_ERR_USAGE, "no micro-batch %lld of rank %lld", (long long)micro, (long long)rank);
    int64_t first = (micro * l->o.ranks + rank) * l->o.micro_rows;
    b->label_tokens = b->tokens = b->samples = 0;
    for (int64_t t = 0; t < l->o.micro_rows * l->length; t++) { /* padding, until a sample covers it */
        b->ids[t] = b->positions[t] = 0;
        b->labels[t] = SN_IGNORE_LABEL;
        b->seq_start[t] = (int32_t)t;
    }
    for (size_t i = 0; i < l->count; i++) {
        int64_t row = l->placements[i].bin - first;
        if (row >= 0 && row < l->o.micro_rows) SN_TRY(put(l, &l->placements[i], row, b));
    }
    return SN_OK;
}

int64_t sn_loader_samples(const sn_loader *l, int64_t micro) {
    int64_t rows = l->o.ranks * l->o.micro_rows, samples = 0;
    for (size_t i = 0; i < l->count; i++) samples += l->placements[i].bin / rows == micro;
    return samples;
}

sn_status sn_loader_steps(sn_loader *l, uint64_t epoch, uint64_t *steps) {
    uint64_t bins = (uint64_t)l->bins;
    *steps = l->rows / bins + (l->rows % bins != 0);
    if (!l->o.packing) return SN_OK;
    sn_data_cursor at = {.epoch = epoch};
    sn_step step;
    for (*steps = 0; at.epoch == epoch; ++*steps) SN_TRY(sn_loader_step(l, &at, &step));
    return SN_OK;
}

sn_status sn_loader_seek(sn_loader *l, uint64_t batch_step, sn_data_cursor *at) {
    uint64_t steps;
    sn_step step;
    *at = (sn_data_cursor){.batch_step = batch_step};
    if (!l->o.packing) {
        SN_TRY(sn_loader_steps(l, 0, &steps));
        at->epoch = batch_step / steps;
        at->position = batch_step % steps * (uint64_t)l->bins;
        return SN_OK;
    }
    at->batch_step = 0;
    while (at->batch_step < batch_step) SN_TRY(sn_loader_step(l, at, &step));
    return SN_OK;
}
