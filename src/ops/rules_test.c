/* Gradient rules on graphs, index letters, and the choice of a kernel. */
#include "support/op_call.h"

#include <string.h>

#include "base/cpu.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rules.h"

enum { T = 6, E = 8 };

typedef struct fixture {
    sn_job *job;
    sn_graph *g;
} fixture;

static fixture make(void) {
    fixture f;
    assert_ok(sn_job_new(&f.job));
    f.g = sn_job_add_graph(f.job, "test", SN_ROLE_TRAIN);
    assert_non_null(f.g);
    return f;
}

static sn_vid input(fixture f, const char *name, sn_dtype form, sn_shape shape) {
    sn_vid v = sn_input(f.g, name, form, shape);
    assert_int_not_equal(v, SN_NONE);
    return v;
}

/* Appends op over in[] and its gradient; every wanted gradient must have its input's shape. Returns the last node. */
static sn_node differentiate(fixture f, sn_opcode op, const sn_attrs *attrs, int n_in, const sn_vid *in, const bool *want, sn_vid *din) {
    sn_vid out[SN_MAX_OUT], dout[SN_MAX_OUT];
    sn_nid node = sn_append(f.g, op, attrs, n_in, in, "y", out);
    assert_ok(f.g->status);
    for (int o = 0; o < SN_MAX_OUT; o++) dout[o] = SN_NONE;
    dout[0] = input(f, "dy", f.g->values[out[0]].dtype, f.g->values[out[0]].shape);
    for (int i = 0; i < SN_MAX_IN; i++) din[i] = SN_NONE;
    assert_ok(sn_ops[op]->grad(f.g, node, dout, want, din));
    assert_ok(sn_graph_verify(f.g));
    for (int i = 0; i < n_in; i++) {
        assert_int_equal(din[i] != SN_NONE, want[i]);
        if (want[i]) assert_true(sn_shape_equal(&f.g->values[din[i]].shape, &f.g->values[in[i]].shape));
    }
    return f.g->nodes[f.g->n_nodes - 1];
}

static void add_and_scale(void **state) {
    (void)state;
    fixture f = make();
    sn_vid in[] = {input(f, "a", SN_F32, sn_shape_of(T, E)), input(f, "b", SN_BF16, sn_shape_of(T, E))}, din[SN_MAX_IN];
    sn_node n = differentiate(f, SN_OP_add, &(sn_attrs){.f = {[SN_ADD_ALPHA] = 1}}, 2, in, (bool[]){true, true}, din);
    assert_int_equal(f.g->values[din[0]].input, true); /* dy itself */
    assert_int_equal(n.op, SN_OP_cast);                /* in the form of b */
    assert_int_equal(f.g->values[din[1]].dtype, SN_BF16);
    n = differentiate(f, SN_OP_add, &(sn_attrs){.f = {[SN_ADD_ALPHA] = 0.5}}, 2, (sn_vid[]){in[0], in[0]}, (bool[]){false, true}, din);
    assert_int_equal(n.op, SN_OP_scale);
    assert_true(n.attrs.f[0] == 0.5);
    n = differentiate(f, SN_OP_scale, &(sn_attrs){.f = {2}}, 1, in, (bool[]){true}, din);
    assert_int_equal(n.op, SN_OP_scale);
    assert_true(n.attrs.f[0] == 2);
    sn_job_free(f.job);
}

static void norms(void **state) {
    (void)state;
    for (int want_x = 0; want_x <= 1; want_x++)
        for (int want_w = 0; want_w <= 1; want_w++) {
            fixture f = make();
            sn_vid din[SN_MAX_IN];
            sn_vid in[] = {input(f, "x", SN_BF16, sn_shape_of(T, E)), input(f, "w", SN_F32, sn_shape_of(E)),
                           input(f, "b", SN_F32, sn_shape_of(E))};
            sn_node n = differentiate(f, SN_OP_rms_norm, NULL, 2, in, (bool[]){want_x, want_w}, din);
            if (want_x || want_w) assert_int_equal(n.op, SN_OP_rms_norm_grad);
            n = differentiate(f, SN_OP_layer_norm, NULL, 3, in, (bool[]){want_x, want_w, want_w}, din);
            if (want_x || want_w) assert_int_equal(n.op, SN_OP_layer_norm_grad);
            differentiate(f, SN_OP_layer_norm, NULL, 2, in, (bool[]){want_x, want_w, true}, din);
            sn_job_free(f.job);
        }
}

static void activations(void **state) {
    (void)state;
    fixture f = make();
    sn_vid in[] = {input(f, "x", SN_BF16, sn_shape_of(T, E)), input(f, "u", SN_BF16, sn_shape_of(T, E))}, din[SN_MAX_IN];
    assert_int_equal(differentiate(f, SN_OP_swiglu, NULL, 2, in, (bool[]){true, true}, din).op, SN_OP_swiglu_grad);
    assert_int_equal(differentiate(f, SN_OP_swiglu, NULL, 2, in, (bool[]){false, true}, din).op, SN_OP_swiglu_grad);
    sn_node n = differentiate(f, SN_OP_gelu, &(sn_attrs){.i = {1}}, 1, in, (bool[]){true}, din);
    assert_int_equal(n.op, SN_OP_gelu_grad);
    assert_int_equal(n.attrs.i[0], 1);
    sn_vid drop[] = {in[0], input(f, "key", SN_U32, sn_shape_of(4))};
    n = differentiate(f, SN_OP_dropout, &(sn_attrs){.i = {42}, .f = {0.1}}, 2, drop, (bool[]){true, false}, din);
    assert_int_equal(n.op, SN_OP_dropout); /* by the same key and site */
    assert_int_equal(n.in[1].value, drop[1]);
    assert_true(n.attrs.i[0] == 42 && n.attrs.f[0] == 0.1);
    assert_int_equal(f.g->values[n.in[0].value].input, true);
    sn_job_free(f.job);
}

static void tables(void **state) {
    (void)state;
    fixture f = make();
    sn_vid in[] = {input(f, "ids", SN_I32, sn_shape_of(T)), input(f, "table", SN_F32, sn_shape_of(11, E))}, din[SN_MAX_IN];
    sn_node n = differentiate(f, SN_OP_embedding, NULL, 2, in, (bool[]){false, true}, din);
    assert_int_equal(n.op, SN_OP_embedding_grad);
    assert_int_equal(n.attrs.i[SN_EMBEDDING_GRAD_VOCAB], 11);
    sn_vid rows[] = {input(f, "h", SN_BF16, sn_shape_of(9, E)), in[0]};
    n = differentiate(f, SN_OP_select_rows, NULL, 2, rows, (bool[]){true, false}, din);
    assert_int_equal(n.op, SN_OP_embedding_grad);
    assert_int_equal(f.g->values[din[0]].dtype, SN_BF16);
    sn_job_free(f.job);
}

static void chooses_kernels(void **state) {
    (void)state;
    sn_call c = {.n_in = 2, .n_out = 1};
    c.in[0] = c.in[1] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(2, 3)};
    const sn_op *op = sn_ops[SN_OP_add];
    assert_string_equal(sn_kernel_find(op, SN_DEVICE_CPU, 0, &c)->name, "reference");
    assert_string_equal(sn_kernel_find(op, SN_DEVICE_CPU, SN_CPU_AVX2, &c)->name, "avx2");
    assert_string_equal(sn_kernel_find(op, SN_DEVICE_CPU, SN_CPU_AVX2 | SN_CPU_AVX512, &c)->name, "avx512");
    assert_null(sn_kernel_find(op, SN_DEVICE_CUDA, 90, &c));
}

static void every_op_is_complete(void **state) {
    (void)state;
    for (int i = 0; i < SN_OP_COUNT; i++) {
        const sn_op *op = sn_ops[i];
        assert_non_null(op);
        assert_non_null(op->name);
        assert_non_null(op->shape);
        assert_non_null(op->kernels[0]);
        assert_true(op->min_in <= op->max_in && op->max_in <= SN_MAX_IN && op->n_out <= SN_MAX_OUT);
        assert_true(op->mutates >> op->max_in == 0);
        assert_true(op->n_out > 0 || op->mutates);
        for (int o = 0; o < SN_MAX_OUT; o++) assert_true(o < op->n_out ? op->alias[o] >> op->max_in == 0 : op->alias[o] == 0);
        for (int k = 0; k < i; k++) assert_string_not_equal(op->name, sn_ops[k]->name);
    }
}

static void letters(void **state) {
    (void)state;
    assert_string_equal(sn_axes_same(1, 1, 0), "a->");
    assert_string_equal(sn_axes_same(2, 2, 1), "ab,ab->ab");
    assert_string_equal(sn_axes_same(3, 3, 2), "abc,abc,abc->abc,abc");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_and_scale), cmocka_unit_test(norms),           cmocka_unit_test(activations),
        cmocka_unit_test(tables),        cmocka_unit_test(chooses_kernels), cmocka_unit_test(every_op_is_complete),
        cmocka_unit_test(letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
