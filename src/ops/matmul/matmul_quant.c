/* Integer products with quantised weights: what all processor families share. */
#include "ops/matmul/matmul_quant.h"

#include "base/mem.h"
#include "ops/matmul/matmul.h"

bool sn_quant_takes(const sn_call *c) {
    const sn_tensor *a = &c->in[0], *b = &c->in[1];
    sn_dtype y = c->out[0].dtype;
    size_t bytes;
    if (c->attrs.i[SN_MATMUL_TRANS_A] || !c->attrs.i[SN_MATMUL_TRANS_B] || !sn_dtype_is_float(y) ||
        (sn_has(c, 2) && !sn_dtype_is_float(c->in[2].dtype)))
        return false;
    return a->dtype == sn_quant_activation(b->dtype) && b->shape.rank == 2 && sn_cols(a) == sn_cols(b) &&
           sn_dtype_row_bytes(b->dtype, sn_cols(b), &bytes);
}

typedef struct job {
    const sn_quant_isa *isa;
    const sn_call *c;
    sn_dtype form; /* of the weight */
    int64_t m, n, k, panels, panels_a_task;
    size_t a_stride, b_stride;
    uint8_t *tiles, *members; /* arranged activations; member_bytes a member */
    size_t member_bytes;
} job;

/* A member's scratch: a packed panel, then the stored rows of a short last panel. */
static size_t padded(size_t n) { return sn_round_up(n, 64); }

static size_t member_bytes(const sn_quant_isa *isa, const sn_call *c) {
    const sn_tensor *b = &c->in[1];
    return padded(sn_quant_panel_bytes(b->dtype, sn_cols(b), isa->rows)) + padded((size_t)isa->rows * sn_row_bytes(b));
}

size_t sn_quant_scratch(const sn_quant_isa *isa, const sn_call *c, int n_threads) {
    const sn_tensor *a = &c->in[0], *b = &c->in[1];
    return padded((size_t)sn_rows(a) * sn_quant_token_bytes(b->dtype, sn_cols(b))) + (size_t)n_threads * member_bytes(isa, c);
}

/* The tile that starts at token m: the largest power of two that fits. */
static int tile_tokens(const job *j, int64_t m) {
    int t = j->isa->tokens;
    while (m + t > j->m) t /= 2;
    return t;
}

static void arrange_task(void *context, int64_t task, int member) {
    (void)member;
    const job *j = context;
    const uint8_t *a = j->c->in[0].data;
    int64_t m = task * j->isa->tokens, end = m + j->isa->tokens < j->m ? m + j->isa->tokens : j->m;
    for (int t; m < end; m += t) {
        t = tile_tokens(j, m);
        j->isa->arrange(j->form, a + (size_t)m * j->a_stride, j->a_stride, j->k, t,
                        j->tiles + (size_t)m * sn_quant_token_bytes(j->form, j->k));
    }
}

/* Adds the bias and writes `count` columns of each token. */
static void store(const job *j, int64_t m, int tokens, int64_t row, int count, float *tile) {
    const sn_tensor *y = &j->c->out[0];
    const size_t size = (size_t)sn_dtypes[y->dtype].bytes;
    float bias[SN_QUANT_MAX_ROWS];
    const bool has_bias = sn_has(j->c, 2);
    if (has_bias) {
        const sn_tensor *b = &j->c->in[2];
        sn_decode(j->isa->convert, b->dtype, (const uint8_t *)b->data + (size_t)row * (size_t)sn_dtypes[b->dtype].bytes, count, bias);
    }
    for (int t = 0; t < tokens; t++) {
        float *from = tile + t * j->isa->rows;
        for (int i = 0; has_bias && i < count; i++) from[i] += bias[i];
        sn_encode(j->isa->convert, y->dtype, from, count, (uint8_t *)y->data + (size_t)((m + t) * j->n + row) * size);
    }
}

static void panel(const job *j, int64_t index, int member) {
    const sn_quant_isa *isa = j->isa;
    const int64_t row = index * isa->rows;
    const int count = row + isa->rows <= j->n ? isa->rows : (int)(j->n - row);
    const uint8_t *stored = (const uint8_t *)j->c->in[1].data + (size_t)row * j->b_stride;
    uint8_t *packed = j->members + (size_t)member * j->member_bytes;
    if (count < isa->rows) { /* fill up with zeros: such rows are computed and dropped */
        uint8_t *copy = packed + padded(sn_quant_panel_bytes(j->form, j->k, isa->rows));
        memcpy(copy, stored, (size_t)count * j->b_stride);
        memset(copy + (size_t)count * j->b_stride, 0, (size_t)(isa->rows - count) * j->b_stride);
        stored = copy;
    }
    _Alignas(64) float out[SN_QUANT_MAX_TOKENS * SN_QUANT_MAX_ROWS];
    const bool direct = tile_tokens(j, 0) == j->m;
    if (!direct) isa->pack(j->form, stored, j->b_stride, j->k, packed);
    for (int64_t m = 0, t; m < j->m; m += t) {
        t = tile_tokens(j, m);
        const uint8_t *tile = j->tiles + (size_t)m * sn_quant_token_bytes(j->form, j->k);
        if (direct) isa->multiply_stored(j->form, stored, j->b_stride, j->k, tile, (int)t, out);
        else isa->multiply(j->form, packed, j->k, tile, (int)t, out);
        store(j, m, (int)t, row, count, out);
    }
}

static void panels_task(void *context, int64_t task, int member) {
    const job *j = context;
    int64_t end = (task + 1) * j->panels_a_task < j->panels ? (task + 1) * j->panels_a_task : j->panels;
    for (int64_t i = task * j->panels_a_task; i < end; i++) panel(j, i, member);
}

void sn_quant_run(const sn_quant_isa *isa, const sn_call *c) {
    const sn_tensor *a = &c->in[0], *b = &c->in[1];
    job j = {.isa = isa, .c = c, .form = b->dtype, .m = sn_rows(a), .n = b->shape.d[0], .k = b->shape.d[1]};
    if (!j.m || !j.n) return;
    j.a_stride = sn_row_bytes(a);
    j.b_stride = sn_row_bytes(b);
    j.member_bytes = member_bytes(isa, c);
    j.tiles = c->scratch;
    j.members = j.tiles + padded((size_t)j.m * sn_quant_token_bytes(j.form, j.k));
    j.panels = (j.n + isa->rows - 1) / isa->rows;
    int64_t share = j.panels / (sn_team_size(c->team) * 8);
    j.panels_a_task = share < 1 ? 1 : share > 8 ? 8 : share;
    sn_team_run(c->team, (j.m + isa->tokens - 1) / isa->tokens, arrange_task, &j);
    sn_team_run(c->team, (j.panels + j.panels_a_task - 1) / j.panels_a_task, panels_task, &j);
}
