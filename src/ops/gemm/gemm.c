/* Blocking and threads. Rows of A and a stretch of K are packed once, by all members; then each task packs its columns of
 * B, K block by K block, into a buffer of its own that stays in its L2 cache, and runs the rows against it. */
#include "ops/gemm/gemm_isa.h"

#include <string.h>

#include "base/mem.h"
#include "tensor/convert.h"

enum {
    COLUMNS = 192,         /* most columns of a task: with a K block, less than half an L2 cache */
    COLUMNS_DECODED = 256, /* the same where B's rows are decoded by blocks of up to 256 columns */
    ROWS = 1024,           /* most rows packed at once, so that B is packed seldom */
    A_BYTES = 6 << 20,     /* about the largest packed A: it streams from L3 */
    PACK_GROUP = 8,        /* panels that one task packs */
    PACK_K = 64,           /* k that are packed before the next panel: lines shared by panels stay in L1 */
    DECODE_ROWS = 8,       /* rows of a quantised [K,N] B decoded at once */
    DOT_ROWS = 32,         /* rows of B in a task of the M = 1 path */
    SMALL = 1 << 16        /* multiplications below which the caller alone is faster */
};

/* Where everything goes; follows from extents, forms and the number of threads. */
typedef struct layout {
    const sn_gemm_isa *isa;
    const sn_gemm *g;
    bool pairs, decodes, direct; /* direct: tiles go straight to an f32 C */
    int64_t steps;               /* of K: one or, with pairs, two k */
    int64_t block;               /* steps of a K block */
    int64_t stretch;             /* steps of A packed at once: whole blocks, or all of K */
    int64_t rows;                /* rows packed at once: whole panels */
    int64_t most_columns;
    size_t a_bytes, b_bytes, c_bytes, decode_bytes, member_bytes;
} layout;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static bool by_dots(const sn_gemm *g) { return g->m == 1 && g->trans_b && !g->chain && !g->accumulate && sn_dtype_is_float(g->b_form); }

static layout lay_out(const sn_gemm_isa *isa, const sn_gemm *g) {
    layout l = {.isa = isa, .g = g};
    l.pairs = isa->pairs && g->a_form == SN_BF16 && g->b_form == SN_BF16;
    l.decodes = !sn_dtype_is_float(g->b_form);
    l.direct = g->c_form == SN_F32;
    l.steps = l.pairs ? ceil_div(g->k, 2) : g->k;
    int64_t most_block = l.pairs ? SN_GEMM_RUN / 2 : SN_GEMM_RUN; /* also whole blocks of every block format */
    l.block = most_block;
    l.rows = round_up(ceil_div(g->m, ceil_div(g->m, ROWS)), isa->mr);
    int64_t fit = l.direct ? A_BYTES / (4 * l.rows) : most(4 * isa->mr, A_BYTES / (4 * l.steps) / isa->mr * isa->mr);
    if (l.direct) {
        l.stretch = l.steps <= fit ? l.steps : most(l.block, fit / l.block * l.block);
    } else { /* partials of a 16-bit C live in the task, so all of K must be there */
        l.stretch = l.steps;
        if (fit < l.rows) l.rows = round_up(ceil_div(g->m, ceil_div(g->m, fit)), isa->mr);
    }
    l.most_columns = l.decodes && !g->trans_b ? COLUMNS_DECODED : least(COLUMNS, round_up(g->n, isa->nr));

    /* Bytes are bounds that never fall when an extent grows, so that scratch for the largest call serves every smaller one. */
    int64_t rows = least(round_up(g->m, isa->mr), round_up(ROWS, isa->mr)), block = least(most_block, round_up(l.steps, 8));
    int64_t a_cells = least(l.steps * rows, most(A_BYTES / 4, l.direct ? most_block * rows : l.steps * 4 * isa->mr));
    int64_t c_rows = l.direct ? 0 : l.steps <= most_block ? least(rows, isa->rows_block) : rows;
    int64_t decoded = !l.decodes ? 0 : g->trans_b ? isa->nr * block : DECODE_ROWS * l.most_columns;
    l.a_bytes = sn_round_up((size_t)a_cells * 4, 64);
    l.b_bytes = (size_t)(block * l.most_columns) * 4;
    l.c_bytes = (size_t)(c_rows * l.most_columns) * 4;
    l.decode_bytes = (size_t)decoded * 4;
    l.member_bytes = sn_round_up(l.b_bytes + l.c_bytes + l.decode_bytes + (size_t)l.most_columns * 4, 64);
    return l;
}

size_t sn_gemm_scratch(const sn_gemm_isa *isa, const sn_gemm *g, int n_threads) {
    if (g->m == 0 || g->n == 0 || g->k == 0) return 0;
    if (by_dots(g)) return sn_round_up((size_t)g->k, 16) * 4;
    layout l = lay_out(isa, g);
    return l.a_bytes + l.member_bytes * (size_t)n_threads;
}

static const void *at(sn_dtype form, const void *base, int64_t index) {
    return (const char *)base + (index / sn_dtypes[form].block) * sn_dtypes[form].bytes;
}

void sn_gemm_load_row(sn_dtype form, const void *from, int64_t stride, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const void *p = at(form, from, i * stride);
        out[i] = form == SN_F32    ? *(const float *)p
                 : form == SN_BF16 ? sn_bf16_to_f32(*(const uint16_t *)p)
                                   : sn_f16_to_f32(*(const uint16_t *)p);
    }
}

void sn_gemm_store_row(sn_dtype form, const float *row, int64_t n, void *out) {
    if (form == SN_F32) {
        memcpy(out, row, (size_t)n * 4);
    } else if (form == SN_BF16) {
        for (int64_t i = 0; i < n; i++) ((uint16_t *)out)[i] = sn_f32_to_bf16(row[i]);
    } else {
        for (int64_t i = 0; i < n; i++) ((uint16_t *)out)[i] = sn_f32_to_f16(row[i]);
    }
}

/* One pass over the rows and K stretch that are packed now. */
typedef struct pass {
    layout l;
    char *scratch;
    int64_t row0, rows, step0, steps; /* rows valid; steps of this stretch */
    int64_t columns, part_rows, n_column_tasks;
} pass;

static uint32_t *packed_a(const pass *p, int64_t step, int64_t block, int64_t panel) {
    int64_t padded = round_up(p->rows, p->l.isa->mr);
    return (uint32_t *)p->scratch + step * padded + panel * p->l.isa->mr * block;
}

/* Packs n_panels neighbouring panels of k values each. */
static void pack_panels(const layout *l, sn_gemm_pack pk, int64_t columns, int64_t k, uint32_t *out) {
    int64_t per_step = l->pairs ? 2 : 1, panel_cells = ceil_div(k, per_step) * pk.width;
    int64_t column_stride = pk.k_rows ? 1 : pk.ld, k_stride = pk.k_rows ? pk.ld : 1;
    const void *base = pk.from;
    int64_t slice = pk.k_rows ? PACK_K : k;
    for (int64_t k0 = 0; k0 < k; k0 += slice) {
        pk.k = least(slice, k - k0);
        for (int64_t c = 0; c < columns; c += pk.width) {
            pk.valid = (int)least(pk.width, columns - c);
            pk.from = at(pk.form, base, c * column_stride + k0 * k_stride);
            l->isa->pack(&pk, out + c / pk.width * panel_cells + k0 / per_step * pk.width);
        }
    }
}

static void pack_a_task(void *context, int64_t task, int member) {
    (void)member;
    const pass *p = context;
    const sn_gemm *g = p->l.g;
    int mr = p->l.isa->mr;
    int64_t n_blocks = ceil_div(p->steps, p->l.block), group = task / n_blocks;
    int64_t step = task % n_blocks * p->l.block, block = least(p->l.block, p->steps - step);
    int64_t per_step = p->l.pairs ? 2 : 1, k0 = (p->step0 + step) * per_step, k = least(block * per_step, g->k - k0);
    int64_t row = group * PACK_GROUP * mr, rows = least(PACK_GROUP * mr, p->rows - row);
    sn_gemm_pack pk = {.ld = g->lda, .form = g->a_form, .k_rows = g->trans_a, .pairs = p->l.pairs, .width = mr};
    pk.from = at(g->a_form, g->a, g->trans_a ? k0 * g->lda + p->row0 + row : (p->row0 + row) * g->lda + k0);
    pack_panels(&p->l, pk, rows, k, packed_a(p, step, block, group * PACK_GROUP));
}

/* Columns [col, col + columns) and k [k0, k0 + k) of a quantised B, decoded piece by piece. */
static void pack_decoded_b(const layout *l, int64_t col, int64_t columns, int64_t k0, int64_t k, float *decoded, uint32_t *out) {
    const sn_gemm *g = l->g;
    int nr = l->isa->nr;
    sn_gemm_pack pk = {.form = SN_F32, .k_rows = !g->trans_b, .width = nr, .from = decoded};
    if (g->trans_b) {
        for (int64_t c = 0; c < columns; c += nr) {
            pk.ld = k;
            pk.k = k;
            pk.valid = (int)least(nr, columns - c);
            for (int64_t i = 0; i < pk.valid; i++)
                sn_decode(l->isa->convert, g->b_form, at(g->b_form, g->b, (col + c + i) * g->ldb + k0), k, decoded + i * k);
            l->isa->pack(&pk, out + c * k);
        }
        return;
    }
    int64_t whole = least(round_up(columns, sn_dtypes[g->b_form].block), g->n - col); /* the last block of a row may reach further */
    for (int64_t i = 0; i < k; i += DECODE_ROWS) {
        pk.k = least(DECODE_ROWS, k - i);
        pk.ld = whole;
        for (int64_t r = 0; r < pk.k; r++)
            sn_decode(l->isa->convert, g->b_form, at(g->b_form, g->b, (k0 + i + r) * g->ldb + col), whole, decoded + r * whole);
        for (int64_t c = 0; c < columns; c += nr) {
            pk.valid = (int)least(nr, columns - c);
            pk.from = decoded + c;
            l->isa->pack(&pk, out + c * k + i * nr);
        }
    }
}

static void pack_b(const layout *l, int64_t col, int64_t columns, int64_t k0, int64_t k, float *decoded, uint32_t *out) {
    const sn_gemm *g = l->g;
    if (l->decodes) {
        pack_decoded_b(l, col, columns, k0, k, decoded, out);
        return;
    }
    sn_gemm_pack pk = {.ld = g->ldb, .form = g->b_form, .k_rows = !g->trans_b, .pairs = l->pairs, .width = l->isa->nr};
    pk.from = at(g->b_form, g->b, g->trans_b ? col * g->ldb + k0 : k0 * g->ldb + col);
    pack_panels(l, pk, columns, k, out);
}

static void tile_task(void *context, int64_t task, int member) {
    const pass *p = context;
    const layout *l = &p->l;
    const sn_gemm *g = l->g;
    const sn_gemm_isa *isa = l->isa;
    int64_t col = task % p->n_column_tasks * p->columns, columns = least(p->columns, g->n - col);
    int64_t part = task / p->n_column_tasks * p->part_rows, part_end = least(part + p->part_rows, p->rows);
    char *own = p->scratch + l->a_bytes + (size_t)member * l->member_bytes;
    uint32_t *b = (uint32_t *)own;
    float *partial = (float *)(own + l->b_bytes), *decoded = (float *)(own + l->b_bytes + l->c_bytes);
    float *bias = (float *)(own + l->b_bytes + l->c_bytes + l->decode_bytes);
    if (g->bias) sn_gemm_load_row(g->bias_form, at(g->bias_form, g->bias, col), 1, columns, bias);
    int64_t per_step = l->pairs ? 2 : 1;
    bool one_block = l->steps <= l->block;
    for (int64_t step = 0; step < p->steps; step += l->block) {
        int64_t block = least(l->block, p->steps - step), k0 = (p->step0 + step) * per_step;
        bool fresh = k0 == 0 && !g->accumulate, last = p->step0 + step + block == l->steps;
        pack_b(l, col, columns, k0, least(block * per_step, g->k - k0), decoded, b);
        for (int64_t row = part; row < part_end; row += isa->rows_block) {
            int64_t end = least(row + isa->rows_block, part_end), ldc = l->direct ? g->ldc : p->columns;
            float *c = l->direct ? (float *)g->c + (p->row0 + row) * g->ldc + col : partial + (one_block ? 0 : row - part) * ldc;
            for (int64_t j = 0; j < columns; j += isa->nr)
                for (int64_t i = row; i < end; i += isa->mr)
                    (l->pairs ? isa->tile_pairs : isa->tile)(block, packed_a(p, step, block, i / isa->mr), b + j * block,
                                                             c + (i - row) * ldc + j, ldc, (int)least(isa->mr, end - i),
                                                             (int)least(isa->nr, columns - j), fresh, last && g->bias ? bias + j : NULL);
            for (int64_t i = row; last && !l->direct && i < end; i++)
                isa->store(g->c_form, c + (i - row) * ldc, columns, (void *)at(g->c_form, g->c, (p->row0 + i) * g->ldc + col));
        }
    }
}

/* Columns and rows of a task: the least time of the busiest member, by a rough count of cell updates. Reading a row of A
 * costs about 4 columns' worth, packing a column of B about 10 rows' worth. */
static void choose_tasks(pass *p, int n_threads) {
    const layout *l = &p->l;
    int64_t nr = l->isa->nr, rb = l->isa->rows_block, unit = l->decodes && !l->g->trans_b ? l->most_columns : nr;
    double best = 0;
    for (int64_t columns = l->most_columns; columns >= unit; columns -= unit)
        for (int64_t parts = 1; parts <= 4 * n_threads; parts++) {
            int64_t part_rows = round_up(ceil_div(p->rows, parts), rb), n_columns = ceil_div(l->g->n, columns);
            if (parts > 1 && part_rows * (parts - 1) >= p->rows) continue;
            int64_t rounds = ceil_div(n_columns * ceil_div(p->rows, part_rows), n_threads);
            double width = (double)round_up(least(columns, l->g->n), nr);
            double cost = (double)rounds * ((double)least(part_rows, p->rows) * (width + 4) + 10 * width + 100);
            if (best == 0 || cost < best) {
                best = cost;
                p->columns = columns;
                p->part_rows = part_rows;
                p->n_column_tasks = n_columns;
            }
        }
}

typedef struct dots {
    const sn_gemm_isa *isa;
    const sn_gemm *g;
    const float *x;
} dots;

static void dots_task(void *context, int64_t task, int member) {
    (void)member;
    const dots *d = context;
    const sn_gemm *g = d->g;
    int64_t n0 = task * DOT_ROWS, n = least(DOT_ROWS, g->n - n0);
    float out[DOT_ROWS], bias[DOT_ROWS];
    for (int64_t i = 0; i < n; i += SN_GEMM_DOTS)
        d->isa->dots(d->x, at(g->b_form, g->b, (n0 + i) * g->ldb), g->ldb, g->b_form, g->k, (int)least(SN_GEMM_DOTS, n - i), out + i);
    if (g->bias) {
        sn_gemm_load_row(g->bias_form, at(g->bias_form, g->bias, n0), 1, n, bias);
        for (int64_t i = 0; i < n; i++) out[i] += bias[i];
    }
    sn_gemm_store_row(g->c_form, out, n, (void *)at(g->c_form, g->c, n0));
}

static void run_dots(const sn_gemm_isa *isa, const sn_gemm *g, float *x, sn_team *team) {
    sn_gemm_load_row(g->a_form, g->a, g->trans_a ? g->lda : 1, g->k, x);
    for (int64_t i = g->k; i % 16; i++) x[i] = 0;
    sn_team_run(team, ceil_div(g->n, DOT_ROWS), dots_task, &(dots){isa, g, x});
}

/* K = 0: the sums are empty. */
static void run_empty(const sn_gemm *g) {
    if (g->accumulate && !g->bias) return;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            void *c = (void *)at(g->c_form, g->c, i * g->ldc + j);
            float v = 0, bias = 0;
            if (g->accumulate) v = *(float *)c;
            if (g->bias) sn_gemm_load_row(g->bias_form, at(g->bias_form, g->bias, j), 1, 1, &bias);
            v += bias;
            sn_gemm_store_row(g->c_form, &v, 1, c);
        }
}

void sn_gemm_run(const sn_gemm_isa *isa, const sn_gemm *g, void *scratch, sn_team *team) {
    if (g->m == 0 || g->n == 0) return;
    if (g->k == 0) {
        run_empty(g);
        return;
    }
    if ((double)g->m * (double)g->n * (double)g->k < SMALL) team = NULL;
    if (by_dots(g)) {
        run_dots(isa, g, scratch, team);
        return;
    }
    pass p = {.l = lay_out(isa, g), .scratch = scratch};
    const layout *l = &p.l;
    for (p.row0 = 0; p.row0 < g->m; p.row0 += l->rows) {
        p.rows = least(l->rows, g->m - p.row0);
        choose_tasks(&p, sn_team_size(team));
        int64_t n_groups = ceil_div(ceil_div(p.rows, isa->mr), PACK_GROUP), n_parts = ceil_div(p.rows, p.part_rows);
        for (p.step0 = 0; p.step0 < l->steps; p.step0 += l->stretch) {
            p.steps = least(l->stretch, l->steps - p.step0);
            sn_team_run(team, n_groups * ceil_div(p.steps, l->block), pack_a_task, &p);
            sn_team_run(team, n_parts * p.n_column_tasks, tile_task, &p);
        }
    }
}
