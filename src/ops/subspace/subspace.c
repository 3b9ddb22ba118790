#include "ops/subspace/subspace.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const sn_shape eight = sn_shape_of(8), four = sn_shape_of(4);
    SN_TRY(sn_need_rank("subspace", c, 0, "g", 2));
    SN_TRY(sn_need_float("subspace", c, 0, "g"));
    SN_TRY(sn_need_rank("subspace", c, 1, "p", 2));
    SN_TRY(sn_need_form("subspace", c, 1, "p", SN_F32));
    SN_TRY(sn_need_shape("subspace", c, 2, "hyper", &eight));
    SN_TRY(sn_need_form("subspace", c, 2, "hyper", SN_F32));
    SN_TRY(sn_need_shape("subspace", c, 3, "clip", &four));
    SN_TRY(sn_need_form("subspace", c, 3, "clip", SN_F32));
    const int64_t *g = c->in[0].shape.d, *p = c->in[1].shape.d, side = g[0] < g[1] ? g[0] : g[1];
    if (p[1] != side || p[0] < 1 || p[0] > side)
        return sn_fail(SN_ERR_SHAPE, "subspace: p must be [1 to %lld, %lld] to go with g [%lld, %lld], found [%lld, %lld]", (long long)side,
                       (long long)side, (long long)g[0], (long long)g[1], (long long)p[0], (long long)p[1]);
    if (c->attrs.i[SN_SUBSPACE_GAP] < 1)
        return sn_fail(SN_ERR_SHAPE, "subspace: gap must be 1 or more updates, found %lld", (long long)c->attrs.i[SN_SUBSPACE_GAP]);
    return SN_OK;
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input == 0 ? sn_dtype_is_float(form) : form == SN_F32;
}

/* Of an average update. */
static sn_cost cost(const sn_call *c) {
    const double n = (double)sn_elements(&c->in[0]), rank = (double)c->in[1].shape.d[0],
                 sides = (double)(c->in[0].shape.d[0] + c->in[0].shape.d[1]);
    const double gap = (double)c->attrs.i[SN_SUBSPACE_GAP];
    return (sn_cost){.flops = SN_SUBSPACE_STEPS * (4 * n * rank + 4 * sides * rank * rank) / gap,
                     .bytes = SN_SUBSPACE_STEPS * 8 * (n + sides * rank * rank) / gap};
}

/* No index letters: a basis is of the whole gradient. */
const sn_op sn_op_subspace = {.name = "subspace",
                              .min_in = 4,
                              .max_in = 4,
                              .n_out = 0,
                              .mutates = 1u << 1,
                              .int_attrs = {"parameter", "gap"},
                              .shape = shape,
                              .accepts = accepts,
                              .cost = cost,
                              .kernels = {sn_subspace_avx512, sn_subspace_avx2, sn_subspace_cpu}};
