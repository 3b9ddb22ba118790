#include "ops/sgd/sgd.h"

#include "ops/rules.h"

static sn_status state(const sn_call *c, int i, const char *arg) {
    SN_TRY(sn_need_shape("sgd", c, i, arg, &c->in[0].shape));
    if (c->in[i].dtype != SN_F32 && c->in[i].dtype != SN_BF16)
        return sn_fail(SN_ERR_SHAPE, "sgd: %s must be f32 or bf16, found %s", arg, sn_dtype_name(c->in[i].dtype));
    return SN_OK;
}

static sn_status shape(sn_call *c) {
    const sn_shape eight = sn_shape_of(8), four = sn_shape_of(4);
    SN_TRY(sn_need_any("sgd", c, 0, "w"));
    SN_TRY(state(c, 0, "w"));
    SN_TRY(sn_need_shape("sgd", c, 1, "g", &c->in[0].shape));
    SN_TRY(sn_need_float("sgd", c, 1, "g"));
    if (sn_has(c, 2)) SN_TRY(state(c, 2, "momentum"));
    else if (c->attrs.f[SN_SGD_MOMENTUM] != 0)
        return sn_fail(SN_ERR_SHAPE, "sgd: momentum %g needs its state as input 2", c->attrs.f[SN_SGD_MOMENTUM]);
    SN_TRY(sn_need_shape("sgd", c, 3, "hyper", &eight));
    SN_TRY(sn_need_form("sgd", c, 3, "hyper", SN_F32));
    SN_TRY(sn_need_shape("sgd", c, 4, "clip", &four));
    SN_TRY(sn_need_form("sgd", c, 4, "clip", SN_F32));
    if (!sn_has(c, 5)) return SN_OK;
    SN_TRY(sn_need_shape("sgd", c, 5, "w16", &c->in[0].shape));
    if (c->in[5].dtype != SN_BF16 && c->in[5].dtype != SN_F16)
        return sn_fail(SN_ERR_SHAPE, "sgd: w16 must be bf16 or f16, found %s", sn_dtype_name(c->in[5].dtype));
    return SN_OK;
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    switch (input) {
    case 1: return sn_dtype_is_float(form);
    case 3:
    case 4: return form == SN_F32;
    case 5: return form == SN_BF16 || form == SN_F16;
    default: return form == SN_F32 || form == SN_BF16;
    }
}
/* Element by element; hyper and clip whole. */
static const char *axes(const sn_call *c) {
    static const char *const letters[] = {NULL, "a,a,a,H,C,a->", "ab,ab,ab,H,C,ab->", "abc,abc,abc,H,C,abc->"};
    return c->in[0].shape.rank <= 3 ? letters[c->in[0].shape.rank] : NULL;
}
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 6, 1u << 0 | 1u << 2); }

/* min_in stops before momentum, which may be absent; the shape rule asks for hyper and clip. */
const sn_op sn_op_sgd = {.name = "sgd",
                         .min_in = 2,
                         .max_in = 6,
                         .n_out = 0,
                         .mutates = 1u << 0 | 1u << 2 | 1u << 5,
                         .tile = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 5,
                         .int_attrs = {"parameter", "first"},
                         .flat_first = 1 + SN_SGD_FIRST,
                         .float_attrs = {"momentum", "weight_decay"},
                         .shape = shape,
                         .axes = axes,
                         .accepts = accepts,
                         .cost = cost,
                         .kernels = {sn_sgd_avx512, sn_sgd_avx2, sn_sgd_cpu}};
