#include "ops/embedding/embedding.h"

#include "ops/rules.h"

static bool is_table(sn_dtype form) { return sn_dtype_is_float(form) || sn_dtype_is_quantised(form); }

static sn_status shape(sn_call *c) {
    sn_dtype form;
    SN_TRY(sn_need_rank("embedding", c, 0, "ids", 1));
    SN_TRY(sn_need_form("embedding", c, 0, "ids", SN_I32));
    SN_TRY(sn_need_rank("embedding", c, 1, "table", 2));
    if (!is_table(c->in[1].dtype))
        return sn_fail(SN_ERR_SHAPE, "embedding: table must be f32, bf16, f16 or quantised, found %s", sn_dtype_name(c->in[1].dtype));
    SN_TRY(sn_need_float_attr("embedding", "dtype", c->attrs.i[SN_EMBEDDING_DTYPE], &form));
    sn_set_out(c, 0, form, sn_shape_of(c->in[0].shape.d[0], c->in[1].shape.d[1]));
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_dtype_is_quantised(c->in[1].dtype) ? "t,vE->tE" : "t,ve->te"; }

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input == 0 ? form == SN_I32 : is_table(form);
}

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node];
    if (want[0]) return sn_fail(SN_ERR_UNSUPPORTED, "embedding: ids have no gradient (%s)", n.name);
    if (!want[1]) return SN_OK;
    const sn_value table = g->values[sn_in(&n, 1)];
    const sn_vid in[] = {sn_in(&n, 0), dout[0]};
    const sn_attrs attrs = {.i = {[SN_EMBEDDING_GRAD_VOCAB] = table.shape.d[0], [SN_EMBEDDING_GRAD_DTYPE] = SN_F32}};
    din[1] = sn_append1(g, SN_OP_embedding_grad, &attrs, 2, in, sn_name(g, "%s.grad", n.name));
    return g->status;
}

static sn_cost cost(const sn_call *c) {
    return (sn_cost){.bytes = (double)sn_elements(&c->in[0]) * (double)(sn_row_bytes(&c->in[1]) + sn_row_bytes(&c->out[0]))};
}

const sn_op sn_op_embedding = {.name = "embedding",
                               .min_in = 2,
                               .max_in = 2,
                               .n_out = 1,
                               .int_attrs = {"dtype", "first"},
                               .begins = {{.attr = 1 + SN_EMBEDDING_FIRST, .operand = 1, .dim = 0}},
                               .shape = shape,
                               .axes = axes,
                               .accepts = accepts,
                               .grad = grad,
                               .cost = cost,
                               .kernels = {sn_embedding_cpu}};
