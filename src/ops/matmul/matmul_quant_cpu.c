/* Reference kernel of integer products: each weight row is unpacked block by block and met by every token. */
#include <math.h>

#include "ops/matmul/matmul_quant.h"

typedef struct job {
    const sn_call *c;
    int64_t m, n, k;
    size_t a_stride, b_stride;
} job;

static float block32(sn_dtype w, const sn_block32 *b, const uint8_t *a, float acc) {
    const int8_t *codes = (const int8_t *)a + 4;
    const int offset = sn_block_offset(w);
    int dot = 0, sum = 0;
    for (int i = 0; i < 32; i++) {
        dot += (b->code[i] - offset) * codes[i];
        sum += codes[i];
    }
    uint16_t h;
    memcpy(&h, a, 2);
    const float da = sn_f16_to_f32(h);
    acc = fmaf(b->d, (float)dot * da, acc);
    return sn_block_has_min(w) ? fmaf(b->m, (float)sum * da, acc) : acc;
}

static float block256(sn_dtype w, const sn_block256 *b, const uint8_t *a, float acc) {
    const int8_t *codes = (const int8_t *)a + 4;
    const int offset = sn_block_offset(w), group = sn_block_group(w);
    int dot = 0, least = 0;
    for (int i = 0; i < 256; i++) {
        dot += b->scale[i / group] * (b->code[i] - offset) * codes[i];
        least += b->min[i / group] * codes[i];
    }
    float da;
    memcpy(&da, a, 4);
    acc = fmaf(b->d, (float)dot * da, acc);
    return sn_block_has_min(w) ? fmaf(-b->dmin, (float)least * da, acc) : acc;
}

static void row_task(void *context, int64_t row, int member) {
    const job *j = context;
    const sn_tensor *a = &j->c->in[0], *b = &j->c->in[1], *y = &j->c->out[0];
    const sn_dtype w = b->dtype;
    const int block = sn_dtypes[w].block;
    const size_t size = (size_t)sn_dtypes[y->dtype].bytes;
    float *acc = (float *)j->c->scratch + member * j->m;
    memset(acc, 0, (size_t)j->m * 4);
    const uint8_t *stored = (const uint8_t *)b->data + (size_t)row * j->b_stride;
    for (int64_t i = 0; i < j->k / block; i++, stored += sn_dtypes[w].bytes) {
        const uint8_t *codes = (const uint8_t *)a->data + (size_t)i * (size_t)sn_dtypes[a->dtype].bytes;
        union {
            sn_block32 small;
            sn_block256 large;
        } u;
        if (block == 32) sn_block32_unpack(w, stored, &u.small);
        else sn_block256_unpack(w, stored, &u.large);
        for (int64_t m = 0; m < j->m; m++, codes += j->a_stride)
            acc[m] = block == 32 ? block32(w, &u.small, codes, acc[m]) : block256(w, &u.large, codes, acc[m]);
    }
    float bias = 0;
    if (sn_has(j->c, 2)) {
        const sn_tensor *t = &j->c->in[2];
        sn_to_f32(t->dtype, (const uint8_t *)t->data + (size_t)row * (size_t)sn_dtypes[t->dtype].bytes, 1, &bias);
    }
    for (int64_t m = 0; m < j->m; m++) {
        float v = sn_has(j->c, 2) ? acc[m] + bias : acc[m];
        (void)sn_from_f32(y->dtype, &v, 1, (uint8_t *)y->data + (size_t)(m * j->n + row) * size);
    }
}

static size_t scratch(const sn_call *c, int n_threads) { return (size_t)sn_rows(&c->in[0]) * (size_t)n_threads * 4; }

static void run(const sn_call *c) {
    const sn_tensor *a = &c->in[0], *b = &c->in[1];
    job j = {c, sn_rows(a), b->shape.d[0], b->shape.d[1], sn_row_bytes(a), sn_row_bytes(b)};
    sn_team_run(c->team, j.n, row_task, &j);
}

const sn_kernel sn_matmul_quant_cpu[] = {{"reference q8", SN_DEVICE_CPU, 0, sn_quant_takes, scratch, run}, {0}};
