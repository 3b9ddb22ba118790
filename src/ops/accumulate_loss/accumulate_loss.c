#include "ops/accumulate_loss/accumulate_loss.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const sn_shape two = sn_shape_of(2);
    SN_TRY(sn_need_shape("accumulate_loss", c, 0, "total", &two));
    SN_TRY(sn_need_form("accumulate_loss", c, 0, "total", SN_F64));
    SN_TRY(sn_need_rank("accumulate_loss", c, 1, "token_loss", 1));
    SN_TRY(sn_need_form("accumulate_loss", c, 1, "token_loss", SN_F32));
    SN_TRY(sn_need_shape("accumulate_loss", c, 2, "labels", &c->in[1].shape));
    return sn_need_form("accumulate_loss", c, 2, "labels", SN_I32);
}

/* Each rank adds its own tokens: the totals of the ranks are summands, which the engine adds in rank order. */
static const char *axes(const sn_call *c) {
    (void)c;
    return "S,t,t->";
}

const sn_op sn_op_accumulate_loss = {.name = "accumulate_loss",
                                     .min_in = 3,
                                     .max_in = 3,
                                     .n_out = 0,
                                     .mutates = 1u << 0,
                                     .shape = shape,
                                     .axes = axes,
                                     .kernels = {sn_accumulate_loss_cpu}};
