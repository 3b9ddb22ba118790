#include "graph/op.h"
#include "ops/linear_cross_entropy/cross_entropy_part.h"
#include "ops/rules.h"

enum { PART, LABELS, SCALE };

static sn_status shape(sn_call *c) {
    static const char op[] = "cross_entropy_join";
    char text[96];
    SN_TRY(sn_need_rank(op, c, PART, "part", 3));
    SN_TRY(sn_need_form(op, c, PART, "part", SN_F64));
    const sn_shape *part = &c->in[PART].shape;
    if (part->d[0] < 1 || part->d[2] != SN_CROSS_ENTROPY_NORM)
        return sn_fail(SN_ERR_SHAPE, "%s: part must be [parts,T,%d], found %s", op, SN_CROSS_ENTROPY_NORM, sn_shape_text(part, text));
    SN_TRY(sn_need_form(op, c, LABELS, "labels", SN_I32));
    SN_TRY(sn_need_shape(op, c, LABELS, "labels", &(sn_shape){1, {part->d[1]}}));
    SN_TRY(sn_need_form(op, c, SCALE, "scale", SN_F32));
    SN_TRY(sn_need_shape(op, c, SCALE, "scale", &(sn_shape){1, {1}}));
    sn_set_out(c, 0, SN_F32, sn_shape_of(part->d[1]));
    sn_set_out(c, 1, SN_F64, sn_shape_of(part->d[1], SN_CROSS_ENTROPY_NORM));
    return SN_OK;
}

static const char *axes(const sn_call *c) {
    (void)c;
    return "PtN,t,S->t,tN";
}

/* The parts' gradient is what their op makes of the norm. */
static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    (void)dout;
    if (want[PART]) din[PART] = g->nodes[node].out[1];
    return SN_OK;
}

const sn_op sn_op_cross_entropy_join = {.name = "cross_entropy_join",
                                        .min_in = 3,
                                        .max_in = 3,
                                        .n_out = 2,
                                        .is_loss = true,
                                        .int_attrs = {"vocab"},
                                        .shape = shape,
                                        .axes = axes,
                                        .grad = grad,
                                        .kernels = {sn_cross_entropy_join_cpu}};
