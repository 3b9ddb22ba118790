#include "ops/embedding/embedding.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    const int64_t vocab = c->attrs.i[SN_EMBEDDING_GRAD_VOCAB];
    sn_dtype form;
    size_t bytes;
    SN_TRY(sn_need_rank("embedding_grad", c, 0, "ids", 1));
    SN_TRY(sn_need_form("embedding_grad", c, 0, "ids", SN_I32));
    SN_TRY(sn_need_rank("embedding_grad", c, 1, "dy", 2));
    SN_TRY(sn_need_float("embedding_grad", c, 1, "dy"));
    if (c->in[1].shape.d[0] != c->in[0].shape.d[0])
        return sn_fail(SN_ERR_SHAPE, "embedding_grad: dy must have a row for each of the %lld ids, found %lld",
                       (long long)c->in[0].shape.d[0], (long long)c->in[1].shape.d[0]);
    if (c->in[0].shape.d[0] > INT32_MAX) return sn_fail(SN_ERR_SHAPE, "embedding_grad: more than 2^31 - 1 ids");
    SN_TRY(sn_need_float_attr("embedding_grad", "dtype", c->attrs.i[SN_EMBEDDING_GRAD_DTYPE], &form));
    const sn_shape table = sn_shape_of(vocab, c->in[1].shape.d[1]);
    if (vocab < 0 || !sn_shape_bytes(&table, form, &bytes))
        return sn_fail(SN_ERR_SHAPE, "embedding_grad: no table of %lld rows", (long long)vocab);
    if (sn_has(c, 2)) { /* rows are added in place */
        SN_TRY(sn_need_shape("embedding_grad", c, 2, "acc", &table));
        SN_TRY(sn_need_float("embedding_grad", c, 2, "acc"));
        sn_set_no_out(c, 0);
    } else {
        sn_set_out(c, 0, form, table);
    }
    return SN_OK;
}

static const char *axes(const sn_call *c) { return sn_has(c, 2) ? "T,Te,ve->" : "t,te->ve"; }

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input == 0 ? form == SN_I32 : sn_dtype_is_float(form);
}

static sn_cost cost(const sn_call *c) {
    const double dy = (double)sn_tensor_bytes(&c->in[1]);
    if (!sn_has(c, 2)) return (sn_cost){.flops = (double)sn_elements(&c->in[1]), .bytes = dy + (double)sn_tensor_bytes(&c->out[0])};
    return (sn_cost){.flops = (double)sn_elements(&c->in[1]),
                     .bytes = dy + 2 * (double)sn_elements(&c->in[0]) * (double)sn_row_bytes(&c->in[2])};
}

const sn_op sn_op_embedding_grad = {.name = "embedding_grad",
                                    .min_in = 2,
                                    .max_in = 3,
                                    .n_out = 1,
                                    .mutates = 1u << 2,
                                    .adds_into = 2,
                                    .int_attrs = {"vocab", "dtype", "first"},
                                    .begins = {{.attr = 1 + SN_EMBEDDING_GRAD_FIRST, .operand = SN_MAX_IN, .dim = 0}},
                                    .shape = shape,
                                    .axes = axes,
                                    .accepts = accepts,
                                    .cost = cost,
                                    .kernels = {sn_embedding_grad_cpu}};
