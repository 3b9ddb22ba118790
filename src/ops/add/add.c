#include "ops/add/add.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_any("add", c, 0, "a"));
    SN_TRY(sn_need_float("add", c, 0, "a"));
    SN_TRY(sn_need_shape("add", c, 1, "b", &c->in[0].shape));
    SN_TRY(sn_need_float("add", c, 1, "b"));
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_axes_same(c->in[0].shape.rank, 2, 1); }

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    if (want[0]) din[0] = sn_in_form(g, dout[0], g->values[sn_in(&n, 0)].dtype);
    if (!want[1]) return g->status;
    sn_vid db = dout[0];
    if (n.attrs.f[SN_ADD_ALPHA] != 1)
        db = sn_append1(g, SN_OP_scale, &(sn_attrs){.f = {n.attrs.f[SN_ADD_ALPHA]}}, 1, &db, sn_name(g, "%s.grad", n.name));
    din[1] = sn_in_form(g, db, g->values[sn_in(&n, 1)].dtype);
    return g->status;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 2, 0); }

const sn_op sn_op_add = {.name = "add",
                         .min_in = 2,
                         .max_in = 2,
                         .n_out = 1,
                         .float_attrs = {"alpha"},
                         .shape = shape,
                         .axes = axes,
                         .accepts = sn_accepts_float,
                         .grad = grad,
                         .cost = cost,
                         .alias = {1u << 0 | 1u << 1},
                         .linear = 1u << 0 | 1u << 1,
                         .kernels = {sn_add_avx512, sn_add_avx2, sn_add_cpu}};
