/* The products are sn_gemm's, with each processor family's tiles; the rest is compiled once, without processor flags, because `scratch` is
 * also asked when planning for another machine. Sets of vectors are stored a vector a row. */
#include <math.h>

#include "base/mem.h"
#include "ops/gemm/gemm.h"
#include "ops/math/update.h"
#include "ops/subspace/subspace.h"

enum { START = 3 /* role of the random words: 0 to 2 are the update's */ };

/* Where things stand in the scratch: x, y [r, side], z, u [r, longer side], a factor a vector, then sn_gemm's own. */
typedef struct subspace_step {
    const sn_call *c;
    int64_t rank, side, longer;
    float *x, *y, *z, *u, *factor;
    void *gemm;
    /* The orthogonalisation at work: `rank` vectors of n, reflected in place, the basis to q; reflector k. */
    float *v, *q;
    int64_t n, k;
} subspace_step;

/* Sets the extents and, from `base`, the addresses; returns the bytes before sn_gemm's. */
static size_t subspace_lay_out(subspace_step *s, const sn_call *c, char *base) {
    const int64_t rows = c->in[0].shape.d[0], columns = c->in[0].shape.d[1];
    s->c = c;
    s->rank = c->in[1].shape.d[0];
    s->side = sn_min_i64(rows, columns);
    s->longer = rows + columns - s->side;
    const size_t shorter = sn_round_up((size_t)(s->rank * s->side) * sizeof(float), 64),
                 along = sn_round_up((size_t)(s->rank * s->longer) * sizeof(float), 64);
    if (base) {
        s->x = (float *)base;
        s->y = (float *)(base + shorter);
        s->z = (float *)(base + 2 * shorter);
        s->u = (float *)(base + 2 * shorter + along);
        s->factor = (float *)(base + 2 * shorter + 2 * along);
        s->gemm = base + 2 * shorter + 2 * along + sn_round_up((size_t)s->rank * sizeof(float), 64);
    }
    return 2 * shorter + 2 * along + sn_round_up((size_t)s->rank * sizeof(float), 64);
}

/* z = x A and y = u A^T, where A [side, longer] is g, or its transpose when it is tall. */
static sn_gemm subspace_product(const subspace_step *s, bool back) {
    const sn_tensor *g = &s->c->in[0];
    const bool tall = g->shape.d[0] > g->shape.d[1];
    return (sn_gemm){.m = s->rank,
                     .n = back ? s->side : s->longer,
                     .k = back ? s->longer : s->side,
                     .a = back ? s->u : s->x,
                     .b = g->data,
                     .c = back ? s->y : s->z,
                     .lda = back ? s->longer : s->side,
                     .ldb = g->shape.d[1],
                     .ldc = back ? s->side : s->longer,
                     .a_form = SN_F32,
                     .b_form = g->dtype,
                     .c_form = SN_F32,
                     .bias_form = SN_F32,
                     .trans_b = tall != back,
                     .chain = true};
}

static size_t subspace_scratch(const sn_call *c, int n_threads, const sn_gemm_isa *isa) {
    subspace_step s = {0};
    const size_t own = subspace_lay_out(&s, c, NULL);
    const sn_gemm products[] = {subspace_product(&s, false), subspace_product(&s, true)};
    const size_t there = sn_gemm_scratch(isa, &products[0], n_threads), back = sn_gemm_scratch(isa, &products[1], n_threads);
    return own + (there > back ? there : back);
}

static float dot(const float *a, const float *b, int64_t n) {
    float lane[SN_LANES] = {0};
    SN_SUM(lane, i, n, a[i] * b[i]);
    return sn_lanes_f32(lane);
}

/* x -= factor (v . x) v */
static void reflect(const float *v, float factor, float *x, int64_t n) {
    const float along = factor * dot(v, x, n);
    SN_EACH(i, n, x[i] = x[i] - along * v[i];);
}

/* Vector k becomes the reflector that takes it to a multiple of axis k. */
static void make_reflector(subspace_step *s, int64_t k) {
    float *v = s->v + k * s->n + k;
    const int64_t n = s->n - k;
    float most = 0;
    s->factor[k] = 0;
    for (int64_t i = 0; i < n; i++) most = fabsf(v[i]) > most ? fabsf(v[i]) : most;
    if (most == 0) return;              /* nothing is left of it: axis k serves */
    SN_EACH(i, n, v[i] = v[i] / most;); /* so that no square leaves the range */
    const float length = sqrtf(dot(v, v, n));
    v[0] += v[0] < 0 ? -length : length;
    s->factor[k] = 2 / dot(v, v, n);
}

static void reflect_task(void *context, int64_t task, int member) {
    (void)member;
    const subspace_step *s = context;
    const int64_t k = s->k;
    reflect(s->v + k * s->n + k, s->factor[k], s->v + (k + 1 + task) * s->n + k, s->n - k);
}

static void basis_task(void *context, int64_t j, int member) {
    (void)member;
    const subspace_step *s = context;
    float *q = s->q + j * s->n;
    memset(q, 0, (size_t)s->n * sizeof *q);
    q[j] = 1;
    for (int64_t k = j; k >= 0; k--) reflect(s->v + k * s->n + k, s->factor[k], q + k, s->n - k);
}

/* The rows of q become an orthonormal basis of what the rows of v span, row j of that of the first j. v is destroyed. */
static void orthogonalise(subspace_step *s, float *v, float *q, int64_t n) {
    s->v = v;
    s->q = q;
    s->n = n;
    for (s->k = 0; s->k < s->rank; s->k++) {
        make_reflector(s, s->k);
        if (s->factor[s->k] != 0) sn_team_run(s->c->team, s->rank - s->k - 1, reflect_task, s);
    }
    sn_team_run(s->c->team, s->rank, basis_task, s);
}

static void start(subspace_step *s) {
    const sn_random random = sn_update_random(s->c->in[2].data, s->c->attrs.i[SN_SUBSPACE_PARAMETER], START);
    const int64_t n = s->rank * s->side;
    uint32_t buffer[SN_PIECE + 8 * SN_RANDOM_BLOCK];
    for (int64_t at = 0; at < n; at += SN_PIECE) {
        const int64_t m = sn_min_i64(SN_PIECE, n - at);
        const uint32_t *words = sn_random_words(&random, at, m, buffer);
        for (int64_t i = 0; i < m; i++) s->x[at + i] = 2 * sn_uniform(words[i]) - 1;
    }
}

static void subspace_run(const sn_call *c, const sn_gemm_isa *isa) {
    const float *hyper = c->in[2].data, *clip = c->in[3].data;
    const int64_t update = (int64_t)hyper[SN_HYPER_STEP];
    subspace_step s = {0};
    if (clip[SN_CLIP_APPLIED] == 0 || (update - 1) % c->attrs.i[SN_SUBSPACE_GAP]) return;
    subspace_lay_out(&s, c, c->scratch);
    start(&s);
    float *basis = c->in[1].data;
    for (int k = 0; k < SN_SUBSPACE_STEPS; k++) {
        const sn_gemm there = subspace_product(&s, false), back = subspace_product(&s, true);
        sn_gemm_run(isa, &there, s.gemm, c->team);
        orthogonalise(&s, s.z, s.u, s.longer);
        sn_gemm_run(isa, &back, s.gemm, c->team);
        orthogonalise(&s, s.y, k + 1 < SN_SUBSPACE_STEPS ? s.x : basis, s.side);
    }
}

#define SN_SUBSPACE_KERNEL(which, text, bits)                                                                                   \
    static size_t scratch_##which(const sn_call *c, int n_threads) { return subspace_scratch(c, n_threads, &sn_gemm_##which); } \
    static void run_##which(const sn_call *c) { subspace_run(c, &sn_gemm_##which); }                                            \
    SN_ONE_KERNEL(sn_subspace_##which, text, bits, scratch_##which, run_##which)

SN_SUBSPACE_KERNEL(cpu, "reference", SN_CPU_REFERENCE);
SN_SUBSPACE_KERNEL(avx2, "avx2", SN_CPU_AVX2);
SN_SUBSPACE_KERNEL(avx512, "avx512", SN_CPU_AVX512);
