#include "ops/reduce_scatter/reduce_scatter.h"

#include "graph/split.h"
#include "ops/rules.h"

/* A graph's shapes are logical, so the result has the shape of x; what differs is the split: partial becomes a shard of the flattened
 * tensor. */
static sn_status shape(sn_call *c) {
    const int64_t axis = c->attrs.i[SN_REDUCE_SCATTER_AXIS], unit = c->attrs.i[SN_REDUCE_SCATTER_UNIT], n = c->attrs.i[SN_REDUCE_SCATTER_N];
    char text[96];
    SN_TRY(sn_need_any("reduce_scatter", c, 0, "x"));
    SN_TRY(sn_need_float("reduce_scatter", c, 0, "x"));
    if (axis < 0 || axis >= SN_MESH_AXES) return sn_fail(SN_ERR_SHAPE, "reduce_scatter: no mesh axis %lld", (long long)axis);
    if (unit < 1) return sn_fail(SN_ERR_SHAPE, "reduce_scatter: unit must be 1 or more, found %lld", (long long)unit);
    if (sn_elements(&c->in[0]) != n)
        return sn_fail(SN_ERR_SHAPE, "reduce_scatter: x must have %lld elements, found %s", (long long)n,
                       sn_shape_text(&c->in[0].shape, text));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 1, 0); }

const sn_op sn_op_reduce_scatter = {.name = "reduce_scatter",
                                    .min_in = 1,
                                    .max_in = 1,
                                    .n_out = 1,
                                    .int_attrs = {"axis", "unit", "n"},
                                    .shape = shape,
                                    .accepts = sn_accepts_float,
                                    .cost = cost,
                                    .kernels = {sn_reduce_scatter_cpu}};
