#include "ops/subspace/subspace.h"

#include "ops/rules.h"

sn_status sn_subspace_check(const char *op, const sn_call *c, int of, const char *arg, int basis) {
    SN_TRY(sn_need_rank(op, c, of, arg, 2));
    SN_TRY(sn_need_rank(op, c, basis, "p", 2));
    SN_TRY(sn_need_form(op, c, basis, "p", SN_F32));
    const int64_t *x = c->in[of].shape.d, *p = c->in[basis].shape.d, side = x[0] < x[1] ? x[0] : x[1];
    if (p[1] == side && p[0] >= 1 && p[0] <= side) return SN_OK;
    return sn_fail(SN_ERR_SHAPE, "%s: p must be [1 to %lld, %lld] to go with %s [%lld, %lld], found [%lld, %lld]", op, (long long)side,
                   (long long)side, arg, (long long)x[0], (long long)x[1], (long long)p[0], (long long)p[1]);
}

static sn_status shape(sn_call *c) {
    SN_TRY(sn_subspace_check("subspace", c, 0, "g", 1));
    SN_TRY(sn_need_float("subspace", c, 0, "g"));
    SN_TRY(sn_need_hyper("subspace", c, 2));
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
