/* The products are sn_gemm's, with each processor family's tiles; the rest is compiled once, without processor flags, because `scratch` is
 * also asked when planning for another machine. */
#include "base/mem.h"
#include "ops/adamw/adamw_step.h"
#include "ops/galore/galore.h"
#include "ops/gemm/gemm.h"
#include "ops/math/update.h"

enum { W, G, P, M, V, HYPER, CLIP, W16 };

/* Where things stand in the scratch: low [r, longer side], its step in place; step [R, C]; then sn_gemm's own. */
typedef struct galore_step {
    const sn_call *c;
    int64_t rank, side, longer, n;
    bool tall;
    float *low, *step, scale;
    void *gemm;
    adamw_numbers numbers;
    sn_random random[3];
} galore_step;

/* Sets the extents and, from `base`, the addresses; returns the bytes before sn_gemm's. */
static size_t galore_lay_out(galore_step *s, const sn_call *c, char *base) {
    const int64_t rows = c->in[W].shape.d[0], columns = c->in[W].shape.d[1];
    s->c = c;
    s->tall = rows > columns;
    s->rank = c->in[P].shape.d[0];
    s->side = sn_min_i64(rows, columns);
    s->longer = rows + columns - s->side;
    s->n = rows * columns;
    const size_t low = sn_round_up((size_t)(s->rank * s->longer) * sizeof(float), 64), all = sn_round_up((size_t)s->n * sizeof(float), 64);
    if (base) {
        s->low = (float *)base;
        s->step = (float *)(base + low);
        s->gemm = base + low + all;
    }
    return low + all;
}

/* low = p A */
static sn_gemm galore_project(const galore_step *s) {
    const sn_tensor *g = &s->c->in[G];
    return (sn_gemm){.m = s->rank,
                     .n = s->longer,
                     .k = s->side,
                     .a = s->c->in[P].data,
                     .b = g->data,
                     .c = s->low,
                     .lda = s->side,
                     .ldb = g->shape.d[1],
                     .ldc = s->longer,
                     .a_form = SN_F32,
                     .b_form = g->dtype,
                     .c_form = SN_F32,
                     .bias_form = SN_F32,
                     .trans_b = s->tall,
                     .chain = true};
}

/* step = p^T low, or its transpose */
static sn_gemm galore_take_back(const galore_step *s) {
    return (sn_gemm){.m = s->tall ? s->longer : s->side,
                     .n = s->tall ? s->side : s->longer,
                     .k = s->rank,
                     .a = s->tall ? s->low : s->c->in[P].data,
                     .b = s->tall ? s->c->in[P].data : s->low,
                     .c = s->step,
                     .lda = s->tall ? s->longer : s->side,
                     .ldb = s->tall ? s->side : s->longer,
                     .ldc = s->tall ? s->side : s->longer,
                     .a_form = SN_F32,
                     .b_form = SN_F32,
                     .c_form = SN_F32,
                     .bias_form = SN_F32,
                     .trans_a = true,
                     .chain = true};
}

static size_t galore_scratch(const sn_call *c, int n_threads, const sn_gemm_isa *isa) {
    galore_step s = {0};
    const size_t own = galore_lay_out(&s, c, NULL);
    const sn_gemm products[] = {galore_project(&s), galore_take_back(&s)};
    const size_t there = sn_gemm_scratch(isa, &products[0], n_threads), back = sn_gemm_scratch(isa, &products[1], n_threads);
    return own + (there > back ? there : back);
}

/* AdamW's step from a weight of zero. */
static void low_task(void *context, int64_t task, int member) {
    (void)member;
    const galore_step *s = context;
    const sn_tensor *m = &s->c->in[M], *v = &s->c->in[V];
    const float zeros[SN_PIECE] = {0};
    float m_buffer[SN_PIECE], v_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, s->rank * s->longer) {
        const float *first = sn_load_f32(m->dtype, sn_element(m, at), n, m_buffer);
        const float *second = sn_load_f32(v->dtype, sn_element(v, at), n, v_buffer);
        float *m_new = sn_result_f32(m->dtype, sn_element(m, at), m_buffer), *v_new = sn_result_f32(v->dtype, sn_element(v, at), v_buffer);
        adamw_piece(&s->numbers, s->low + at, zeros, first, second, n, s->low + at, m_new, v_new);
        sn_store_updated(m, at, n, m_new, &s->random[1], 0);
        sn_store_updated(v, at, n, v_new, &s->random[2], 0);
    }
}

static void weight_task(void *context, int64_t task, int member) {
    (void)member;
    const galore_step *s = context;
    const sn_tensor *w = &s->c->in[W], *w16 = &s->c->in[W16];
    const float keep = s->numbers.keep, scale = s->scale;
    float buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, s->n) {
        const float *old = sn_load_f32(w->dtype, sn_element(w, at), n, buffer), *step = s->step + at;
        float *new = sn_result_f32(w->dtype, sn_element(w, at), buffer);
        SN_EACH(i, n, new[i] = old[i] * keep + scale *step[i];);
        sn_store_updated(w, at, n, new, &s->random[0], 0);
        if (sn_has(s->c, W16)) sn_store_copy(w16, at, n, new, s->c->in[HYPER].data, s->c->attrs.i[SN_GALORE_PARAMETER], 0);
    }
}

static void galore_run(const sn_call *c, const sn_gemm_isa *isa) {
    const float *hyper = c->in[HYPER].data, *clip = c->in[CLIP].data;
    galore_step s = {.scale = (float)c->attrs.f[SN_GALORE_SCALE]};
    if (clip[SN_CLIP_APPLIED] == 0) return;
    galore_lay_out(&s, c, c->scratch);
    s.numbers = adamw_prepare(c->attrs.f, hyper, clip);
    for (int role = 0; role < 3; role++) s.random[role] = sn_update_random(hyper, c->attrs.i[SN_GALORE_PARAMETER], role);
    const sn_gemm project = galore_project(&s), take_back = galore_take_back(&s);
    sn_gemm_run(isa, &project, s.gemm, c->team);
    sn_team_run(c->team, sn_tasks(s.rank * s.longer, SN_TASK), low_task, &s);
    sn_gemm_run(isa, &take_back, s.gemm, c->team);
    sn_team_run(c->team, sn_tasks(s.n, SN_TASK), weight_task, &s);
}

#define SN_GALORE_KERNEL(which, text, bits)                                                                                   \
    static size_t scratch_##which(const sn_call *c, int n_threads) { return galore_scratch(c, n_threads, &sn_gemm_##which); } \
    static void run_##which(const sn_call *c) { galore_run(c, &sn_gemm_##which); }                                            \
    SN_ONE_KERNEL(sn_galore_##which, text, bits, scratch_##which, run_##which)

SN_GALORE_KERNEL(cpu, "reference", SN_CPU_REFERENCE);
SN_GALORE_KERNEL(avx2, "avx2", SN_CPU_AVX2);
SN_GALORE_KERNEL(avx512, "avx512", SN_CPU_AVX512);
