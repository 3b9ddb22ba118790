#include "ops/adamw/adamw.h"

#include "ops/rules.h"

static sn_status state(const sn_call *c, int i, const char *arg) {
    SN_TRY(sn_need_shape("adamw", c, i, arg, &c->in[0].shape));
    if (c->in[i].dtype != SN_F32 && c->in[i].dtype != SN_BF16)
        return sn_fail(SN_ERR_SHAPE, "adamw: %s must be f32 or bf16, found %s", arg, sn_dtype_name(c->in[i].dtype));
    return SN_OK;
}

static sn_status shape(sn_call *c) {
    const sn_shape eight = sn_shape_of(8), four = sn_shape_of(4);
    SN_TRY(sn_need_any("adamw", c, 0, "w"));
    SN_TRY(state(c, 0, "w"));
    SN_TRY(sn_need_shape("adamw", c, 1, "g", &c->in[0].shape));
    SN_TRY(sn_need_float("adamw", c, 1, "g"));
    SN_TRY(state(c, 2, "m"));
    SN_TRY(state(c, 3, "v"));
    SN_TRY(sn_need_shape("adamw", c, 4, "hyper", &eight));
    SN_TRY(sn_need_form("adamw", c, 4, "hyper", SN_F32));
    SN_TRY(sn_need_shape("adamw", c, 5, "clip", &four));
    SN_TRY(sn_need_form("adamw", c, 5, "clip", SN_F32));
    if (!sn_has(c, 6)) return SN_OK;
    SN_TRY(sn_need_shape("adamw", c, 6, "w16", &c->in[0].shape));
    if (c->in[6].dtype != SN_BF16 && c->in[6].dtype != SN_F16)
        return sn_fail(SN_ERR_SHAPE, "adamw: w16 must be bf16 or f16, found %s", sn_dtype_name(c->in[6].dtype));
    return SN_OK;
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    switch (input) {
    case 1: return sn_dtype_is_float(form);
    case 4:
    case 5: return form == SN_F32;
    case 6: return form == SN_BF16 || form == SN_F16;
    default: return form == SN_F32 || form == SN_BF16;
    }
}
/* Element by element; hyper and clip whole. */
static const char *axes(const sn_call *c) {
    static const char *const letters[] = {NULL, "a,a,a,a,H,C,a->", "ab,ab,ab,ab,H,C,ab->", "abc,abc,abc,abc,H,C,abc->"};
    return c->in[0].shape.rank <= 3 ? letters[c->in[0].shape.rank] : NULL;
}
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 16, 1u << 0 | 1u << 2 | 1u << 3); }

const sn_op sn_op_adamw = {.name = "adamw",
                           .min_in = 6,
                           .max_in = 7,
                           .n_out = 0,
                           .mutates = 1u << 0 | 1u << 2 | 1u << 3 | 1u << 6,
                           .tile = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 6,
                           .int_attrs = {"parameter", "first"},
                           .flat_first = 1 + SN_ADAMW_FIRST,
                           .float_attrs = {"beta1", "beta2", "eps", "weight_decay"},
                           .shape = shape,
                           .axes = axes,
                           .accepts = accepts,
                           .cost = cost,
                           .kernels = {sn_adamw_avx512, sn_adamw_avx2, sn_adamw_cpu}};
