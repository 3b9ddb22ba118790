#include "ops/lion/lion.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_update("lion", c, 3, 4, 5));
    return sn_need_state("lion", c, 2, "m");
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
static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 10, 1u << 0 | 1u << 2); }

const sn_op sn_op_lion = {.name = "lion",
                          .min_in = 5,
                          .max_in = 6,
                          .n_out = 0,
                          .mutates = 1u << 0 | 1u << 2 | 1u << 5,
                          .int_attrs = {"parameter", "first"},
                          .flat_first = 1 + SN_LION_FIRST,
                          .float_attrs = {"beta1", "beta2", "weight_decay"},
                          .shape = shape,
                          .axes = axes,
                          .accepts = accepts,
                          .cost = cost,
                          .kernels = {sn_lion_avx512, sn_lion_avx2, sn_lion_cpu}};
