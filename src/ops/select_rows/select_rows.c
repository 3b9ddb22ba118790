#include "ops/select_rows/select_rows.h"

#include "ops/embedding/embedding.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_rank("select_rows", c, 0, "x", 2));
    SN_TRY(sn_need_float("select_rows", c, 0, "x"));
    SN_TRY(sn_need_rank("select_rows", c, 1, "rows", 1));
    SN_TRY(sn_need_form("select_rows", c, 1, "rows", SN_I32));
    sn_set_out(c, 0, c->in[0].dtype, sn_shape_of(c->in[1].shape.d[0], c->in[0].shape.d[1]));
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "Te,r->re";
}

/* The rows are a table: zero where no row was taken, the sum where one was taken more than once. */
static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    const sn_vid in[] = {sn_in(&n, 1), dout[0]};
    const sn_value x = g->values[sn_in(&n, 0)];
    const sn_attrs attrs = {.i = {[SN_EMBEDDING_GRAD_VOCAB] = x.shape.d[0], [SN_EMBEDDING_GRAD_DTYPE] = x.dtype}};
    if (want[0]) din[0] = sn_append1(g, SN_OP_embedding_grad, &attrs, 2, in, sn_name(g, "%s.grad", n.name));
    return g->status;
}

static sn_cost cost(const sn_call *c) { return (sn_cost){.bytes = 2 * (double)sn_elements(&c->in[1]) * (double)sn_row_bytes(&c->in[0])}; }

const sn_op sn_op_select_rows = {.name = "select_rows",
                                 .min_in = 2,
                                 .max_in = 2,
                                 .n_out = 1,
                                 .shape = shape,
                                 .axes = axes,
                                 .grad = grad,
                                 .cost = cost,
                                 .kernels = {sn_select_rows_cpu}};
