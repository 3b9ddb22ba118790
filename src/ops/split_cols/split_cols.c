/* split_cols: x [T, 3N] -> three [T, N]. concat_cols: three [T, N] -> [T, 3N]. Each is the other's gradient. */
#include <string.h>

#include "graph/op.h"
#include "ops/split_cols/split_cols_cpu.h"

static sn_status split_shape(sn_call *c) {
    char text[96];
    sn_tensor *x = &c->in[0];
    if (x->shape.rank != 2 || x->shape.d[1] % SN_SPLIT_COLS_PARTS)
        return sn_fail(SN_ERR_SHAPE, "wants [T, 3N], not %s", sn_shape_text(&x->shape, text));
    for (int i = 0; i < SN_SPLIT_COLS_PARTS; i++)
        c->out[i] = (sn_tensor){.dtype = x->dtype, .shape = sn_shape_of(x->shape.d[0], x->shape.d[1] / SN_SPLIT_COLS_PARTS)};
    return SN_OK;
}

static sn_status concat_shape(sn_call *c) {
    char a[96], b[96];
    const sn_tensor *x = &c->in[0];
    for (int i = 1; i < SN_SPLIT_COLS_PARTS; i++)
        if (!sn_shape_equal(&c->in[i].shape, &x->shape) || c->in[i].dtype != x->dtype)
            return sn_fail(SN_ERR_SHAPE, "part %d is %s, part 0 is %s", i, sn_shape_text(&c->in[i].shape, a), sn_shape_text(&x->shape, b));
    if (x->shape.rank != 2) return sn_fail(SN_ERR_SHAPE, "wants [T, N], not %s", sn_shape_text(&x->shape, a));
    c->out[0] = (sn_tensor){.dtype = x->dtype, .shape = sn_shape_of(x->shape.d[0], x->shape.d[1] * SN_SPLIT_COLS_PARTS)};
    return SN_OK;
}

static sn_status split_grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    (void)want;
    for (int i = 0; i < SN_SPLIT_COLS_PARTS; i++)
        if (dout[i] == SN_NONE) return sn_fail(SN_ERR_UNSUPPORTED, "split_cols: part %d has no gradient", i);
    din[0] = sn_append1(g, SN_OP_concat_cols, NULL, SN_SPLIT_COLS_PARTS, dout, sn_name(g, "%s.grad", g->nodes[node].name));
    return g->status;
}

static sn_status concat_grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    (void)want;
    sn_append(g, SN_OP_split_cols, NULL, 1, dout, sn_name(g, "%s.grad", g->nodes[node].name), din);
    return g->status;
}

static const char *split_axes(const sn_call *c) {
    (void)c;
    return "tn->tn,tn,tn";
}
static const char *concat_axes(const sn_call *c) {
    (void)c;
    return "tn,tn,tn->tn";
}

const sn_op sn_op_split_cols = {.name = "split_cols",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = SN_SPLIT_COLS_PARTS,
                                .shape = split_shape,
                                .axes = split_axes,
                                .thirds = true,
                                .grad = split_grad,
                                .kernels = {sn_split_cols_cpu}};
const sn_op sn_op_concat_cols = {.name = "concat_cols",
                                 .min_in = SN_SPLIT_COLS_PARTS,
                                 .max_in = SN_SPLIT_COLS_PARTS,
                                 .n_out = 1,
                                 .shape = concat_shape,
                                 .axes = concat_axes,
                                 .thirds = true,
                                 .grad = concat_grad,
                                 .kernels = {sn_concat_cols_cpu}};
