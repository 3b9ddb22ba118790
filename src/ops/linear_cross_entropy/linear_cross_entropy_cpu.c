/* The kernels of linear_cross_entropy and of its parts (cross_entropy_part, cross_entropy_part_grad): sn_gemm and the row functions of
 * each processor family. One file without processor flags, because `scratch` is also asked when planning for another machine.
 *
 * A gradient of w in 16 bits cannot be summed up chunk by chunk without rounding each time, and a full f32 copy is what
 * the caller wants to avoid. Then, when there is more than one chunk, a second pass goes over blocks of the vocabulary with all labelled
 * tokens: it makes the logits again (a fourth product) and finishes dw block by block. Its bits are those of an f32 dw, rounded once. */
#include "ops/linear_cross_entropy/linear_cross_entropy.h"

#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "ops/gemm/gemm.h"
#include "ops/linear_cross_entropy/cross_entropy_part.h"
#include "ops/linear_cross_entropy/cross_entropy_rows.h"
#include "ops/math/vector_math.h"

enum {
    LOGIT_BYTES = 48 << 20, /* about the logits of a chosen chunk */
    MOST_CHUNK = 256,       /* more rows make the products no faster */
    LEAST_CHUNK = 32,
    CHUNK_UNIT = SN_GEMM_RUN /* so that the runs of a sum over tokens or columns are the same in every chunk */
};

/* Which op: the loss and its gradients, or of some rows of w what the loss is made of, or their share of the gradients. */
typedef enum part { WHOLE, PART, PART_GRAD } part;

typedef struct job {
    part kind;
    const sn_call *c;
    const sn_gemm_isa *isa;
    const sn_cross_entropy_rows *rows;
    int64_t tokens, width, vocabulary;
    int64_t begin, labels;                    /* row 0 of w is this label, of so many */
    int64_t chunk;                            /* rows of the first pass */
    int64_t at_once, columns;                 /* rows that are gathered; vocabulary rows of a block of the second pass */
    bool want_dh, want_dw, half, second_pass; /* half: the logits' gradient is bf16 */
    size_t index_at, max_at, factor_at, h_at, logits_at, dh_at, gemm_at, bytes;
    /* of a run */
    int32_t *index; /* labelled tokens */
    float *max, *factor, *logits, *dh;
    char *h;
    int64_t first, count;             /* labelled tokens of this chunk */
    int64_t column, columns_now, row; /* block of the second pass */
} job;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t units(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static size_t place(job *j, size_t bytes) {
    size_t at = j->bytes;
    j->bytes += sn_round_up(bytes, 64);
    return at;
}

/* From one row of logits to the next: rows a multiple of 4 KiB apart would share the same sets of the L1 cache while they are packed. */
static int64_t logits_stride(int64_t columns) { return units(columns, 16) + 16; }

static const sn_tensor *dh_of(const job *j) { return &j->c->out[j->kind == WHOLE ? 1 : 0]; }
static const sn_tensor *dw_of(const job *j) { return &j->c->out[j->kind == WHOLE ? 2 : 1]; }

static sn_gemm logits_product(const job *j, int64_t rows, int64_t columns) {
    const sn_tensor *w = &j->c->in[1];
    return (sn_gemm){.m = rows,
                     .n = columns,
                     .k = j->width,
                     .a = j->h,
                     .b = w->data,
                     .c = j->logits,
                     .lda = j->width,
                     .ldb = j->width,
                     .ldc = logits_stride(columns),
                     .a_form = j->c->in[0].dtype,
                     .b_form = w->dtype,
                     .trans_b = true,
                     .chain = true};
}

static sn_gemm dh_product(const job *j, int64_t rows, int64_t columns) {
    const sn_tensor *w = &j->c->in[1];
    return (sn_gemm){.m = rows,
                     .n = j->width,
                     .k = columns,
                     .a = j->logits,
                     .b = w->data,
                     .c = j->dh,
                     .lda = (j->half ? 2 : 1) * logits_stride(columns),
                     .ldb = j->width,
                     .ldc = j->width,
                     .a_form = j->half ? SN_BF16 : SN_F32,
                     .b_form = w->dtype,
                     .chain = true};
}

static sn_gemm dw_product(const job *j, int64_t rows, int64_t columns) {
    const sn_tensor *dw = dw_of(j);
    return (sn_gemm){.m = columns,
                     .n = j->width,
                     .k = rows,
                     .a = j->logits,
                     .b = j->h,
                     .c = dw->data,
                     .lda = (j->half ? 2 : 1) * logits_stride(columns),
                     .ldb = j->width,
                     .ldc = j->width,
                     .a_form = j->half ? SN_BF16 : SN_F32,
                     .b_form = j->c->in[0].dtype,
                     .c_form = dw->dtype,
                     .trans_a = true,
                     .chain = true};
}

static size_t products_scratch(const job *j, int64_t rows, int64_t columns, bool gradients, int n_threads) {
    sn_gemm p[] = {logits_product(j, rows, columns), dh_product(j, rows, columns), dw_product(j, rows, columns)};
    bool wanted[] = {true, gradients && j->want_dh, gradients && j->want_dw};
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        size_t bytes = wanted[i] ? sn_gemm_scratch(j->isa, &p[i], n_threads) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

static job lay_out(part kind, const sn_call *c, const sn_gemm_isa *isa, const sn_cross_entropy_rows *rows, int n_threads) {
    job j = {.kind = kind,
             .c = c,
             .isa = isa,
             .rows = rows,
             .tokens = c->in[0].shape.d[0],
             .width = c->in[0].shape.d[1],
             .vocabulary = c->in[1].shape.d[0]};
    j.labels = kind == WHOLE ? j.vocabulary : c->attrs.i[SN_CROSS_ENTROPY_PART_VOCAB];
    j.begin = kind == WHOLE ? 0 : c->attrs.i[SN_CROSS_ENTROPY_PART_FIRST];
    j.want_dh = kind != PART && dh_of(&j)->shape.rank > 0;
    j.want_dw = kind != PART && dw_of(&j)->shape.rank > 0;
    j.half = c->in[0].dtype == SN_BF16 && c->in[1].dtype == SN_BF16;
    int64_t wanted = kind == PART ? c->attrs.i[SN_CROSS_ENTROPY_PART_CHUNK] : c->attrs.i[SN_LINEAR_CROSS_ENTROPY_CHUNK],
            fit = LOGIT_BYTES / 4 / j.vocabulary;
    if (!wanted) wanted = fit > MOST_CHUNK ? MOST_CHUNK : fit < LEAST_CHUNK ? LEAST_CHUNK : fit;
    j.chunk = units(least(wanted, j.tokens), CHUNK_UNIT);
    j.second_pass = j.want_dw && dw_of(&j)->dtype != SN_F32 && j.tokens > j.chunk;
    j.at_once = j.second_pass ? j.tokens : j.chunk;
    int64_t cells = j.chunk * logits_stride(j.vocabulary);
    if (j.second_pass) {
        j.columns =
            least(units(j.vocabulary, CHUNK_UNIT), cells / j.tokens < CHUNK_UNIT ? CHUNK_UNIT : cells / j.tokens / CHUNK_UNIT * CHUNK_UNIT);
        int64_t block_cells = j.tokens * logits_stride(j.columns);
        if (block_cells > cells) cells = block_cells;
        j.max_at = place(&j, (size_t)j.tokens * 4);
        j.factor_at = place(&j, (size_t)j.tokens * 4);
    }
    j.index_at = place(&j, (size_t)j.tokens * 4);
    j.h_at = place(&j, (size_t)j.at_once * sn_row_bytes(&c->in[0]));
    j.logits_at = place(&j, (size_t)cells * 4);
    j.dh_at = place(&j, j.want_dh ? (size_t)(j.at_once * j.width) * 4 : 0);
    size_t gemm = products_scratch(&j, j.chunk, j.vocabulary, !j.second_pass, n_threads);
    if (j.second_pass) {
        size_t other = products_scratch(&j, j.tokens, j.columns, true, n_threads);
        if (other > gemm) gemm = other;
    }
    j.gemm_at = place(&j, gemm);
    return j;
}

static bool has_label(const job *j, int64_t t) { /* a label outside the vocabulary carries no loss either */
    int32_t label = ((const int32_t *)j->c->in[2].data)[t];
    return label >= 0 && label < j->labels;
}

static void gather_task(void *context, int64_t i, int member) {
    (void)member;
    const job *j = context;
    size_t bytes = sn_row_bytes(&j->c->in[0]);
    memcpy(j->h + (size_t)i * bytes, (const char *)j->c->in[0].data + (size_t)j->index[j->first + i] * bytes, bytes);
}

static void scatter_task(void *context, int64_t i, int member) {
    (void)member;
    const job *j = context;
    const sn_tensor *dh = dh_of(j);
    sn_from_f32(dh->dtype, j->dh + i * j->width, j->width, (char *)dh->data + (size_t)j->index[j->first + i] * sn_row_bytes(dh));
}

/* What the rows of w here say of token t's label: its column, or outside [0, vocabulary) when it is elsewhere. */
static int64_t column_of(const job *j, int64_t t) { return ((const int32_t *)j->c->in[2].data)[t] - j->begin; }

/* Of token t: max and 1 / sum of all logits, as the gradients need them, and the gradient of its loss. */
static const double *norm_of(const job *j, int64_t t) { return (const double *)j->c->in[3].data + t * SN_CROSS_ENTROPY_NORM; }
static float scale_of(const job *j, int64_t t) {
    return j->kind == WHOLE ? *(const float *)j->c->in[3].data : (float)norm_of(j, t)[SN_CROSS_ENTROPY_SCALE];
}

/* Logits x of token t become their gradient. label: its column, or outside [0, n) when that is elsewhere. */
static void to_gradient(const job *j, int64_t t, float *x, int64_t n, float max, float factor, int64_t label) {
    float g = 0;
    bool here = label >= 0 && label < n;
    if (here) g = sn_exp_f32(x[label] - max) * factor - scale_of(j, t);
    j->rows->softmax(x, n, max, factor, j->half);
    if (here && j->half) {
        uint16_t h = sn_f32_to_bf16(g);
        memcpy((char *)x + 2 * label, &h, 2);
    } else if (here) {
        x[label] = g;
    }
}

static void row_task(void *context, int64_t i, int member) {
    (void)member;
    const job *j = context;
    int64_t n = j->vocabulary, t = j->index[j->first + i], label = column_of(j, t);
    float *x = j->logits + i * logits_stride(n);
    if (j->kind == PART_GRAD) {
        to_gradient(j, t, x, n, (float)norm_of(j, t)[SN_CROSS_ENTROPY_MAX], (float)norm_of(j, t)[SN_CROSS_ENTROPY_FACTOR], label);
        return;
    }
    float max = j->rows->max(x, n);
    double sum = j->rows->sum_exp(x, n, max);
    if (j->kind == PART) {
        double *own = (double *)j->c->out[0].data + t * SN_CROSS_ENTROPY_NORM;
        own[0] = (double)max;
        own[1] = sum;
        own[2] = label >= 0 && label < n ? (double)x[label] : 0;
        return;
    }
    ((float *)j->c->out[0].data)[t] = (float)((double)max + log(sum) - (double)x[label]);
    float factor = (float)((double)*(const float *)j->c->in[3].data / sum);
    if (j->second_pass) {
        j->max[j->first + i] = max;
        j->factor[j->first + i] = factor;
    } else if (j->want_dh || j->want_dw) {
        to_gradient(j, t, x, n, max, factor, label);
    }
}

static void block_row_task(void *context, int64_t i, int member) {
    (void)member;
    const job *j = context;
    int64_t t = j->index[i];
    to_gradient(j, t, j->logits + i * logits_stride(j->columns_now), j->columns_now, j->max[i], j->factor[i], column_of(j, t) - j->column);
}

static void multiply(const job *j, sn_gemm g) { sn_gemm_run(j->isa, &g, (char *)j->c->scratch + j->gemm_at, j->c->team); }

static void first_pass(job *j, int64_t labelled) {
    sn_team *team = j->c->team;
    for (j->first = 0; j->first < labelled; j->first += j->chunk) {
        j->count = least(j->chunk, labelled - j->first);
        sn_team_run(team, j->count, gather_task, j);
        multiply(j, logits_product(j, j->count, j->vocabulary));
        sn_team_run(team, j->count, row_task, j);
        if (j->second_pass) continue;
        if (j->want_dh) {
            multiply(j, dh_product(j, j->count, j->vocabulary));
            sn_team_run(team, j->count, scatter_task, j);
        }
        if (j->want_dw) {
            sn_gemm g = dw_product(j, j->count, j->vocabulary);
            g.accumulate = j->first > 0;
            multiply(j, g);
        }
    }
}

static void second_pass(job *j, int64_t labelled) {
    sn_team *team = j->c->team;
    j->first = 0;
    sn_team_run(team, labelled, gather_task, j);
    size_t w_row = sn_row_bytes(&j->c->in[1]), dw_row = sn_row_bytes(dw_of(j));
    for (j->column = 0; j->column < j->vocabulary; j->column += j->columns) {
        j->columns_now = least(j->columns, j->vocabulary - j->column);
        sn_gemm g = logits_product(j, labelled, j->columns_now);
        g.b = (const char *)g.b + (size_t)j->column * w_row;
        multiply(j, g);
        sn_team_run(team, labelled, block_row_task, j);
        if (j->want_dh) {
            g = dh_product(j, labelled, j->columns_now);
            g.b = (const char *)g.b + (size_t)j->column * w_row;
            g.accumulate = j->column > 0;
            multiply(j, g);
        }
        g = dw_product(j, labelled, j->columns_now);
        g.c = (char *)g.c + (size_t)j->column * dw_row;
        multiply(j, g);
    }
    if (j->want_dh) sn_team_run(team, labelled, scatter_task, j);
}

/* Max and factor of the labelled tokens, which cross_entropy_part_grad is given. */
static void take_norms(job *j, int64_t labelled) {
    for (int64_t i = 0; i < labelled; i++) {
        const double *norm = norm_of(j, j->index[i]);
        j->max[i] = (float)norm[SN_CROSS_ENTROPY_MAX];
        j->factor[i] = (float)norm[SN_CROSS_ENTROPY_FACTOR];
    }
}

static void run(part kind, const sn_call *c, const sn_gemm_isa *isa, const sn_cross_entropy_rows *rows) {
    job j = lay_out(kind, c, isa, rows, sn_team_size(c->team));
    char *scratch = c->scratch;
    j.index = (int32_t *)(scratch + j.index_at);
    j.max = (float *)(scratch + j.max_at);
    j.factor = (float *)(scratch + j.factor_at);
    j.h = scratch + j.h_at;
    j.logits = (float *)(scratch + j.logits_at);
    j.dh = (float *)(scratch + j.dh_at);
    int64_t labelled = 0;
    for (int64_t t = 0; t < j.tokens; t++)
        if (has_label(&j, t)) j.index[labelled++] = (int32_t)t;
    if (j.tokens && kind != PART_GRAD) memset(c->out[0].data, 0, sn_tensor_bytes(&c->out[0]));
    if (j.want_dh && labelled < j.tokens) memset(dh_of(&j)->data, 0, sn_tensor_bytes(dh_of(&j)));
    if (j.want_dw && labelled == 0) memset(dw_of(&j)->data, 0, sn_tensor_bytes(dw_of(&j)));
    if (j.second_pass && kind == PART_GRAD) take_norms(&j, labelled);
    else first_pass(&j, labelled);
    if (j.second_pass && labelled) second_pass(&j, labelled);
}

static bool takes(const sn_call *c) { return sn_dtype_is_float(c->in[0].dtype) && c->in[1].shape.d[0] > 0; }

#define SN_CROSS_ENTROPY_KERNEL(op, kind, isa, rows, text, bits)                                                                      \
    static size_t op##_scratch_##isa(const sn_call *c, int n_threads) {                                                               \
        return lay_out(kind, c, &sn_gemm_##isa, &sn_cross_entropy_rows_##rows, n_threads).bytes;                                      \
    }                                                                                                                                 \
    static void op##_run_##isa(const sn_call *c) { run(kind, c, &sn_gemm_##isa, &sn_cross_entropy_rows_##rows); }                     \
    const sn_kernel sn_##op##_##isa[] = {                                                                                             \
        {.name = text, .device = SN_DEVICE_CPU, .needs = bits, .takes = takes, .scratch = op##_scratch_##isa, .run = op##_run_##isa}, \
        {0}};

#define SN_CROSS_ENTROPY_KERNELS(op, kind)                                     \
    SN_CROSS_ENTROPY_KERNEL(op, kind, cpu, cpu, "reference", SN_CPU_REFERENCE) \
    SN_CROSS_ENTROPY_KERNEL(op, kind, avx2, avx2, "avx2", SN_CPU_AVX2)         \
    SN_CROSS_ENTROPY_KERNEL(op, kind, avx512, avx512, "avx512", SN_CPU_AVX512) \
    SN_CROSS_ENTROPY_KERNEL(op, kind, avx512_bf16, avx512, "avx512 bf16", SN_CPU_AVX512_BF16)

SN_CROSS_ENTROPY_KERNELS(linear_cross_entropy, WHOLE)
SN_CROSS_ENTROPY_KERNELS(cross_entropy_part, PART)
SN_CROSS_ENTROPY_KERNELS(cross_entropy_part_grad, PART_GRAD)
