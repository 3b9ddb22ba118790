#include "ops/adamw_8bit/adamw_8bit.h"

#include "ops/rules.h"

/* Whether a scale has w's dimensions, the last one in blocks. */
static bool in_rows(const sn_shape *w, const sn_shape *scale) {
    sn_shape rows = *w;
    if (w->rank < 2 || w->d[w->rank - 1] % SN_DYNAMIC_BLOCK) return false;
    rows.d[w->rank - 1] /= SN_DYNAMIC_BLOCK;
    return sn_shape_equal(&rows, scale);
}

static sn_status state(const sn_call *c, int i, const char *arg, const char *scale) {
    int64_t n = 1;
    SN_TRY(sn_need_shape("adamw_8bit", c, i, arg, &c->in[0].shape));
    SN_TRY(sn_need_form("adamw_8bit", c, i, arg, SN_U8));
    if (!sn_shape_elements(&c->in[0].shape, &n)) return sn_fail(SN_ERR_SHAPE, "adamw_8bit: w has no valid size");
    const sn_shape blocks = sn_shape_of(n / SN_DYNAMIC_BLOCK + (n % SN_DYNAMIC_BLOCK != 0));
    if (!sn_has(c, i + 1) || !in_rows(&c->in[0].shape, &c->in[i + 1].shape)) SN_TRY(sn_need_shape("adamw_8bit", c, i + 1, scale, &blocks));
    return sn_need_form("adamw_8bit", c, i + 1, scale, SN_F32);
}

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_update("adamw_8bit", c, 6));
    SN_TRY(state(c, 2, "m", "m_max"));
    return state(c, 4, "v", "v_max");
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    if (input == 2 || input == 4) return form == SN_U8;
    return input == 3 || input == 5 ? form == SN_F32 : sn_accepts_update(input, form, 6);
}
/* Block by block: what has an element a block goes with shards of whole blocks (flat_runs_in); hyper and clip whole. */
static const char *axes(const sn_call *c) {
    static const char *const letters[] = {NULL, "a,a,a,M,a,V,H,C,a->", "ab,ab,ab,M,ab,V,H,C,ab->", "abc,abc,abc,M,abc,V,H,C,abc->"};
    return c->in[0].shape.rank <= 3 ? letters[c->in[0].shape.rank] : NULL;
}
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 40, 1u << 0 | 0xfu << 2); }

const sn_op sn_op_adamw_8bit = {.name = "adamw_8bit",
                                .min_in = 8,
                                .max_in = 9,
                                .n_out = 0,
                                .mutates = 1u << 0 | 0xfu << 2 | 1u << 8,
                                .tile = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 4 | 1u << 8,
                                .int_attrs = {"parameter", "first"},
                                .flat_first = 1 + SN_ADAMW_FIRST,
                                .flat_run = SN_DYNAMIC_BLOCK,
                                .flat_runs_in = 1u << 3 | 1u << 5,
                                .float_attrs = {"beta1", "beta2", "eps", "weight_decay"},
                                .shape = shape,
                                .axes = axes,
                                .accepts = accepts,
                                .cost = cost,
                                .kernels = {sn_adamw_8bit_avx512, sn_adamw_8bit_avx2, sn_adamw_8bit_cpu}};
