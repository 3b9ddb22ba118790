#include "ops/galore/galore.h"

#include "ops/rules.h"
#include "ops/subspace/subspace.h"

enum { W, G, P, M, V, HYPER };

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_update("galore", c, HYPER));
    SN_TRY(sn_subspace_check("galore", c, W, "w", P));
    const int64_t *w = c->in[W].shape.d, *p = c->in[P].shape.d;
    const sn_shape low = sn_shape_of(p[0], w[0] + w[1] - p[1]);
    SN_TRY(sn_need_state_of("galore", c, M, "m", &low));
    return sn_need_state_of("galore", c, V, "v", &low);
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input == P ? form == SN_F32 : sn_accepts_update(input, form, HYPER);
}

static sn_cost cost(const sn_call *c) {
    const double n = (double)sn_elements(&c->in[W]), rank = (double)c->in[P].shape.d[0];
    sn_cost k = sn_cost_each(c, 2, 1u << W | 1u << M | 1u << V);
    k.flops += 4 * n * rank + 16 * (double)sn_elements(&c->in[M]);
    k.bytes += 8 * n;
    return k;
}

/* No index letters: a step needs the whole parameter. */
const sn_op sn_op_galore = {.name = "galore",
                            .min_in = 7,
                            .max_in = 8,
                            .n_out = 0,
                            .mutates = 1u << W | 1u << M | 1u << V | 1u << (HYPER + 2),
                            .int_attrs = {"parameter"},
                            .float_attrs = {"beta1", "beta2", "eps", "weight_decay", "scale"},
                            .shape = shape,
                            .accepts = accepts,
                            .cost = cost,
                            .kernels = {sn_galore_avx512, sn_galore_avx2, sn_galore_cpu}};
