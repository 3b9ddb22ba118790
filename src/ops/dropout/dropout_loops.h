/* The loops of dropout, compiled for each processor feature. */
#ifndef SN_OPS_DROPOUT_LOOPS_H
#define SN_OPS_DROPOUT_LOOPS_H

#include "ops/dropout/dropout.h"
#include "ops/math/random.h"
#include "ops/math/rows.h"

static void dropout_row(const sn_call *c, int64_t row) {
    const sn_tensor *x = &c->in[0], *y = &c->out[0];
    const uint32_t *key = c->in[1].data;
    const int64_t columns = sn_cols(x);
    const double p = c->attrs.f[SN_DROPOUT_P];
    const float keep = (float)(1.0 - p);
    const int64_t place = sn_has(c, 2) ? ((const int32_t *)c->in[2].data)[row] : row + c->attrs.i[SN_DROPOUT_FIRST_ROW];
    const uint32_t below = (uint32_t)(p * 0x1p24 + 0.5); /* words whose upper 24 bits are below this are dropped */
    const sn_random source = {
        .key = {key[0], key[1]}, .c = {key[2], (uint32_t)c->attrs.i[SN_DROPOUT_SITE], key[3] + (uint32_t)place, 0}, .low = 3, .high = -1};
    float x_buffer[SN_PIECE], y_buffer[SN_PIECE];
    uint32_t word_buffer[SN_PIECE + 8 * SN_RANDOM_BLOCK];
    for (int64_t at = 0; at < columns; at += SN_PIECE) {
        const int64_t n = sn_min_i64(SN_PIECE, columns - at);
        const float *from = sn_load_f32(x->dtype, sn_element(x, row * columns + at), n, x_buffer);
        float *to = sn_result_f32(y->dtype, sn_element(y, row * columns + at), y_buffer);
        const uint32_t *words = sn_random_words(&source, at + c->attrs.i[SN_DROPOUT_FIRST_COLUMN], n, word_buffer);
        SN_EACH(i, n, uint32_t kept = words[i] >> 8 >= below ? 0xffffffffu : 0; to[i] = sn_bits_f32(sn_f32_bits(from[i] / keep) & kept););
        sn_store_f32(y->dtype, to, n, sn_element(y, row * columns + at));
    }
}

enum { DROPOUT_ROWS = 8 }; /* of one task */

static void dropout_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const int64_t first = task * DROPOUT_ROWS, end = sn_min_i64(first + DROPOUT_ROWS, sn_rows(&c->in[0]));
    for (int64_t row = first; row < end; row++) dropout_row(c, row);
}

static void dropout_run(const sn_call *c) { sn_team_run(c->team, sn_tasks(sn_rows(&c->in[0]), DROPOUT_ROWS), dropout_task, (void *)c); }

#endif
