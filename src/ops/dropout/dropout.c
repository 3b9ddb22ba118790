#include "ops/dropout/dropout.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const double p = c->attrs.f[SN_DROPOUT_P];
    const sn_shape key = sn_shape_of(4);
    SN_TRY(sn_need_rank("dropout", c, 0, "x", 2));
    SN_TRY(sn_need_float("dropout", c, 0, "x"));
    SN_TRY(sn_need_shape("dropout", c, 1, "key", &key));
    SN_TRY(sn_need_form("dropout", c, 1, "key", SN_U32));
    if (sn_has(c, 2)) {
        const sn_shape rows = sn_shape_of(c->in[0].shape.d[0]);
        SN_TRY(sn_need_shape("dropout", c, 2, "index", &rows));
        SN_TRY(sn_need_form("dropout", c, 2, "index", SN_I32));
    }
    if (!(p >= 0 && p <= 1)) return sn_fail(SN_ERR_SHAPE, "dropout: p must be between 0 and 1, found %g", p);
    sn_set_out(c, 0, c->in[0].dtype, c->in[0].shape);
    return SN_OK;
}

/* The key's row base says where the rows of the batch start that a rank is given; index where each lies in them. */
static const char *axes(const sn_call *c) { return sn_has(c, 2) ? "tk,N,t->tk" : "tk,N->tk"; }

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input == 1 ? form == SN_U32 : input == 2 ? form == SN_I32 : sn_dtype_is_float(form);
}

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    const sn_vid in[] = {dout[0], sn_in(&n, 1), sn_in(&n, 2)};
    if (want[0]) din[0] = sn_append1(g, SN_OP_dropout, &n.attrs, n.n_in, in, sn_name(g, "%s.grad", n.name));
    return g->status;
}

static sn_cost cost(const sn_call *c) { return sn_cost_each(c, 25, 0); }

const sn_op sn_op_dropout = {.name = "dropout",
                             .min_in = 2,
                             .max_in = 3,
                             .n_out = 1,
                             .light = true,
                             .int_attrs = {"site", "first_row", "first_column"},
                             .begins = {{.attr = 1 + SN_DROPOUT_FIRST_ROW, .operand = 0, .dim = 0, .in_input = true},
                                        {.attr = 1 + SN_DROPOUT_FIRST_COLUMN, .operand = 0, .dim = 1}},
                             .float_attrs = {"p"},
                             .shape = shape,
                             .axes = axes,
                             .accepts = accepts,
                             .grad = grad,
                             .cost = cost,
                             .linear = 1u << 0,
                             .alias = {1u << 0},
                             .kernels = {sn_dropout_avx512, sn_dropout_avx2, sn_dropout_cpu}};
