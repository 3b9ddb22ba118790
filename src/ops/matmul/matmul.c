#include "ops/matmul/matmul.h"

#include "graph/op.h"
#include "ops/matmul/matmul_quant.h"
#include "ops/rules.h"
#include "ops/sum_rows/sum_rows.h"

enum { A, B, BIAS };

static bool is_weight_format(sn_dtype t) { return sn_quant_activation(t) != SN_DTYPE_COUNT; }

static sn_status check_forms(const sn_call *c) {
    sn_dtype a = c->in[A].dtype, b = c->in[B].dtype;
    bool trans_a = c->attrs.i[SN_MATMUL_TRANS_A] != 0, trans_b = c->attrs.i[SN_MATMUL_TRANS_B] != 0;
    if (!sn_dtype_is_float(b) && !is_weight_format(b))
        return sn_fail(SN_ERR_SHAPE, "matmul: b must be f32, bf16, f16 or a quantised weight, found %s", sn_dtype_name(b));
    if (sn_dtype_is_float(a)) return SN_OK;
    if (a != SN_Q8_1 && a != SN_Q8_K)
        return sn_fail(SN_ERR_SHAPE, "matmul: a must be f32, bf16, f16, q8_1 or q8_k, found %s", sn_dtype_name(a));
    if (a != sn_quant_activation(b))
        return sn_fail(SN_ERR_SHAPE, "matmul: a in %s does not go with b in %s", sn_dtype_name(a), sn_dtype_name(b));
    if (trans_a || !trans_b) return sn_fail(SN_ERR_SHAPE, "matmul: with a in %s, a must be [M,K] and b [N,K]", sn_dtype_name(a));
    return SN_OK;
}

static sn_status shape(sn_call *c) {
    const sn_tensor *a = &c->in[A], *b = &c->in[B];
    sn_dtype form;
    bool trans_a = c->attrs.i[SN_MATMUL_TRANS_A] != 0, trans_b = c->attrs.i[SN_MATMUL_TRANS_B] != 0;
    char at[96], bt[96];
    SN_TRY(sn_need_rank("matmul", c, A, "a", 2));
    SN_TRY(sn_need_rank("matmul", c, B, "b", 2));
    SN_TRY(check_forms(c));
    SN_TRY(sn_need_float_attr("matmul", "dtype", c->attrs.i[SN_MATMUL_DTYPE], &form));
    int64_t m = a->shape.d[trans_a], k = a->shape.d[!trans_a], bk = b->shape.d[trans_b], n = b->shape.d[!trans_b];
    if (k != bk)
        return sn_fail(SN_ERR_SHAPE, "matmul: a %s%s sums over %lld, b %s%s over %lld", sn_shape_text(&a->shape, at),
                       trans_a ? " transposed" : "", (long long)k, sn_shape_text(&b->shape, bt), trans_b ? " transposed" : "",
                       (long long)bk);
    if (sn_has(c, BIAS)) {
        SN_TRY(sn_need_float("matmul", c, BIAS, "bias"));
        SN_TRY(sn_need_shape("matmul", c, BIAS, "bias", &(sn_shape){1, {n}}));
    }
    sn_set_out(c, 0, form, sn_shape_of(m, n));
    return SN_OK;
}

/* A split k gives partial sums; a bias is added to one of them. */
static const char *axes(const sn_call *c) {
    static const char *const letters[2][2][2] = {{{"tk,kn->tn", "tk,kn,n->tn"}, {"tk,nk->tn", "tk,nk,n->tn"}},
                                                 {{"kt,kn->tn", "kt,kn,n->tn"}, {"kt,nk->tn", "kt,nk,n->tn"}}};
    return letters[c->attrs.i[SN_MATMUL_TRANS_A] != 0][c->attrs.i[SN_MATMUL_TRANS_B] != 0][sn_has(c, BIAS)];
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    if (sn_dtype_is_float(form)) return true;
    if (input == A)
        return is_weight_format(c->in[B].dtype) && form == sn_quant_activation(c->in[B].dtype) && !c->attrs.i[SN_MATMUL_TRANS_A] &&
               c->attrs.i[SN_MATMUL_TRANS_B];
    return input == B && is_weight_format(form);
}

/* x times y for the gradient of `of`, whose form the result takes. The forms in which the node uses its inputs stay. */
static sn_vid product(sn_graph *g, const sn_node *n, sn_use x, bool trans_x, sn_use y, bool trans_y, sn_vid of, const char *suffix) {
    sn_attrs attrs = {.i = {[SN_MATMUL_TRANS_A] = trans_x, [SN_MATMUL_TRANS_B] = trans_y, [SN_MATMUL_DTYPE] = g->values[of].dtype}};
    sn_vid out[SN_MAX_OUT];
    sn_nid id =
        sn_append(g, SN_OP_matmul, &attrs, 2, (sn_vid[]){x.value, y.value}, sn_name(g, "%s.%s", n->name ? n->name : "matmul", suffix), out);
    if (id != SN_NONE) {
        g->nodes[id].in[A].form = x.form;
        g->nodes[id].in[B].form = y.form;
    }
    return out[0];
}

static sn_status grad(sn_graph *g, sn_nid node, const sn_vid *dout, const bool *want, sn_vid *din) {
    const sn_node n = g->nodes[node]; /* a copy: appending moves the nodes */
    bool trans_a = n.attrs.i[SN_MATMUL_TRANS_A] != 0, trans_b = n.attrs.i[SN_MATMUL_TRANS_B] != 0;
    if (dout[0] == SN_NONE) return SN_OK;
    sn_use a = n.in[A], b = n.in[B], dy = {.value = dout[0], .form = SN_DTYPE_COUNT};
    a.has_split = b.has_split = false;
    sn_dtype b_form = g->values[b.value].dtype, a_form = g->values[a.value].dtype;
    const char *name = n.name ? n.name : "matmul";
    if (want[B] && !sn_dtype_is_float(b_form))
        return sn_fail(SN_ERR_UNSUPPORTED,
                       "%s: the gradient of b in %s is wanted, but a quantised weight cannot be trained: freeze it or train an adapter",
                       name, sn_dtype_name(b_form));
    if (want[A] && (!sn_dtype_is_float(a_form) || (trans_a && !sn_dtype_is_float(b_form))))
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: no gradient of a in %s%s with b in %s", name, sn_dtype_name(a_form),
                       trans_a ? " transposed" : "", sn_dtype_name(b_form));
    if (want[A])
        din[A] = trans_a ? product(g, &n, b, trans_b, dy, true, a.value, "da") : product(g, &n, dy, false, b, !trans_b, a.value, "da");
    if (want[B])
        din[B] = trans_b ? product(g, &n, dy, true, a, trans_a, b.value, "db") : product(g, &n, a, !trans_a, dy, false, b.value, "db");
    if (n.n_in > BIAS && n.in[BIAS].value != SN_NONE && want[BIAS]) {
        sn_attrs attrs = {.i = {[SN_SUM_ROWS_DTYPE] = g->values[n.in[BIAS].value].dtype}};
        din[BIAS] = sn_append1(g, SN_OP_sum_rows, &attrs, 1, dout, sn_name(g, "%s.dbias", name));
    }
    return g->status;
}

static sn_cost cost(const sn_call *c) {
    int64_t k = c->in[A].shape.d[c->attrs.i[SN_MATMUL_TRANS_A] == 0];
    sn_cost cost = {.flops = 2 * (double)sn_elements(&c->out[0]) * (double)k};
    for (int i = 0; i < c->n_in; i++)
        if (sn_has(c, i)) cost.bytes += (double)sn_tensor_bytes(&c->in[i]);
    cost.bytes += (double)sn_tensor_bytes(&c->out[0]);
    return cost;
}

const sn_op sn_op_matmul = {
    .name = "matmul",
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .int_attrs = {"trans_a", "trans_b", "dtype"},
    .shape = shape,
    .axes = axes,
    .accepts = accepts,
    .grad = grad,
    .cost = cost,
    .linear = 1u << A,
    .added_once = 1u << BIAS,
    .kernels = {sn_matmul_avx512_bf16, sn_matmul_avx512, sn_matmul_avx2, sn_matmul_cpu, sn_matmul_quant_avx512_vnni, sn_matmul_quant_avx512,
                sn_matmul_quant_avx2, sn_matmul_quant_cpu},
};
