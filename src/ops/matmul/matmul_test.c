#include "ops/matmul/matmul.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "graph/op.h"
#include "support/support.h"
#include "tensor/convert.h"

extern const sn_op sn_op_matmul;

static const sn_kernel *const tables[] = {sn_matmul_cpu, sn_matmul_avx2, sn_matmul_avx512, sn_matmul_avx512_bf16};
enum { TABLES = sizeof tables / sizeof *tables };

static sn_call call_of(sn_dtype a, sn_shape as, sn_dtype b, sn_shape bs, bool ta, bool tb, sn_dtype y) {
    sn_call c = {.n_in = 2, .n_out = 1};
    c.in[0] = (sn_tensor){.dtype = a, .shape = as};
    c.in[1] = (sn_tensor){.dtype = b, .shape = bs};
    c.attrs.i[SN_MATMUL_TRANS_A] = ta;
    c.attrs.i[SN_MATMUL_TRANS_B] = tb;
    c.attrs.i[SN_MATMUL_DTYPE] = y;
    return c;
}

static void shapes(void **state) {
    (void)state;
    sn_call c = call_of(SN_F32, sn_shape_of(5, 7), SN_BF16, sn_shape_of(3, 7), false, true, SN_BF16);
    assert_ok(sn_op_matmul.shape(&c));
    assert_int_equal(c.out[0].dtype, SN_BF16);
    assert_int_equal(c.out[0].shape.d[0], 5);
    assert_int_equal(c.out[0].shape.d[1], 3);
    assert_string_equal(sn_op_matmul.axes(&c), "tk,nk->tn");
    assert_true(sn_op_matmul.cost(&c).flops == 2.0 * 5 * 3 * 7);
    assert_true(sn_op_matmul.cost(&c).bytes == 4 * 35 + 2 * 21 + 2 * 15);
    c.n_in = 3;
    c.in[2] = (sn_tensor){.dtype = SN_F32, .shape = sn_shape_of(3)};
    assert_ok(sn_op_matmul.shape(&c));
    assert_string_equal(sn_op_matmul.axes(&c), "tk,nk,n->tn");
    c.in[2].shape = sn_shape_of(5);
    assert_int_equal(sn_op_matmul.shape(&c), SN_ERR_SHAPE);
    assert_non_null(strstr(sn_error_text(), "bias"));
    c = call_of(SN_F32, sn_shape_of(7, 5), SN_F32, sn_shape_of(7, 3), true, false, SN_F32);
    assert_ok(sn_op_matmul.shape(&c));
    assert_int_equal(c.out[0].shape.d[0], 5);
    assert_string_equal(sn_op_matmul.axes(&c), "kt,kn->tn");
    c = call_of(SN_F32, sn_shape_of(7, 5), SN_F32, sn_shape_of(3, 7), true, true, SN_F32);
    assert_string_equal(sn_op_matmul.axes(&c), "kt,nk->tn");
    c = call_of(SN_F32, sn_shape_of(5, 7), SN_F32, sn_shape_of(7, 3), false, false, SN_F32);
    assert_string_equal(sn_op_matmul.axes(&c), "tk,kn->tn");
}

static void refuses(sn_call c, const char *part) {
    assert_int_equal(sn_op_matmul.shape(&c), SN_ERR_SHAPE);
    if (!strstr(sn_error_text(), part)) fail_msg("'%s' does not say '%s'", sn_error_text(), part);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    refuses(call_of(SN_F32, sn_shape_of(5, 7), SN_F32, sn_shape_of(3, 8), false, true, SN_F32), "sums over 7");
    refuses(call_of(SN_F32, sn_shape_of(5, 7), SN_F32, sn_shape_of(3, 7), false, false, SN_F32), "sums over 7");
    refuses(call_of(SN_F32, sn_shape_of(5, 7, 1), SN_F32, sn_shape_of(3, 7), false, true, SN_F32), "dimensions");
    refuses(call_of(SN_I32, sn_shape_of(5, 7), SN_F32, sn_shape_of(3, 7), false, true, SN_F32), "i32");
    refuses(call_of(SN_F32, sn_shape_of(5, 7), SN_I8, sn_shape_of(3, 7), false, true, SN_F32), "i8");
    refuses(call_of(SN_F32, sn_shape_of(5, 7), SN_F32, sn_shape_of(3, 7), false, true, SN_Q4_0), "dtype");
    refuses(call_of(SN_F32, sn_shape_of(5, 7), SN_F32, sn_shape_of(3, 7), false, true, (sn_dtype)99), "dtype");
    refuses(call_of(SN_F32, sn_shape_of(5, 40), SN_Q4_0, sn_shape_of(3, 40), false, true, SN_F32), "q4_0");
    refuses(call_of(SN_Q8_1, sn_shape_of(5, 256), SN_Q4_K, sn_shape_of(3, 256), false, true, SN_F32), "does not go with");
    refuses(call_of(SN_Q8_1, sn_shape_of(5, 64), SN_F32, sn_shape_of(3, 64), false, true, SN_F32), "does not go with");
    refuses(call_of(SN_Q8_1, sn_shape_of(5, 64), SN_Q4_0, sn_shape_of(64, 64), false, false, SN_F32), "[N,K]");
    refuses(call_of(SN_F32, sn_shape_of(5, 64), SN_Q8_1, sn_shape_of(3, 64), false, true, SN_F32), "q8_1");
    sn_call c = call_of(SN_Q8_1, sn_shape_of(5, 64), SN_Q4_0, sn_shape_of(3, 64), false, true, SN_F32);
    assert_ok(sn_op_matmul.shape(&c));
    assert_true(sn_op_matmul.accepts(&c, 0, SN_Q8_1));
    assert_false(sn_op_matmul.accepts(&c, 0, SN_Q8_K));
    assert_true(sn_op_matmul.accepts(&c, 1, SN_Q6_K));
    assert_false(sn_op_matmul.accepts(&c, 1, SN_Q8_1));
    assert_false(sn_op_matmul.accepts(&c, 2, SN_Q4_0));
}

static void run_with(const sn_kernel *k, sn_call *c) {
    assert_true(k->takes(c));
    size_t bytes = k->scratch(c, 1);
    c->scratch = NULL;
    if (posix_memalign(&c->scratch, 64, bytes + 64)) fail();
    k->run(c);
    free(c->scratch);
}

static void kernels_agree(void **state) {
    (void)state;
    enum { M = 9, N = 20, K = 64 };
    float a[M * K], w[N * K], bias[N], want[M * N], got[M * N];
    char q[N * K];
    test_fill(a, M * K, 1, 1);
    test_fill(w, N * K, 2, 1);
    test_fill(bias, N, 3, 1);
    assert_ok(sn_from_f32(SN_Q5_1, w, N * K, q));
    for (int quantised = 0; quantised < 2; quantised++) {
        if (quantised) sn_to_f32(SN_Q5_1, q, N * K, w);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float acc = 0;
                for (int k = 0; k < K; k++) acc = fmaf(a[i * K + k], w[j * K + k], acc);
                want[i * N + j] = acc + bias[j];
            }
        sn_call c = call_of(SN_F32, sn_shape_of(M, K), quantised ? SN_Q5_1 : SN_F32, sn_shape_of(N, K), false, true, SN_F32);
        c.n_in = 3;
        c.in[2] = (sn_tensor){.data = bias, .dtype = SN_F32, .shape = sn_shape_of(N)};
        assert_ok(sn_op_matmul.shape(&c));
        assert_ptr_equal(sn_kernel_find(&sn_op_matmul, SN_DEVICE_CPU, 0, &c), sn_matmul_cpu);
        c.in[0].data = a;
        c.in[1].data = quantised ? (void *)q : w;
        c.out[0].data = got;
        for (int t = 0; t < TABLES; t++) {
            if ((sn_cpu_features() & tables[t]->needs) != tables[t]->needs) continue;
            memset(got, 0, sizeof got);
            run_with(tables[t], &c);
            assert_memory_equal(got, want, sizeof got);
        }
    }
}

/* Gradients: the appended nodes are run in order and compared with finite differences of sum(y * r) in f64. */

static float *values_of(const sn_graph *g, float **data, sn_vid v) {
    if (!data[v]) data[v] = sn_alloc_zero(1, (size_t)sn_elements(&(sn_tensor){.shape = g->values[v].shape}) * 4);
    return data[v];
}

static void run_nodes(const sn_graph *g, float **data, size_t from) {
    for (size_t n = from; n < g->n_nodes; n++) {
        sn_call c;
        sn_node_call(g, &g->nodes[n], &c);
        for (int i = 0; i < c.n_in; i++)
            if (g->nodes[n].in[i].value != SN_NONE) c.in[i].data = values_of(g, data, g->nodes[n].in[i].value);
        c.out[0].data = values_of(g, data, g->nodes[n].out[0]);
        const sn_kernel *k = sn_kernel_find(sn_ops[g->nodes[n].op], SN_DEVICE_CPU, 0, &c);
        assert_non_null(k);
        size_t bytes = k->scratch ? k->scratch(&c, 1) : 0;
        if (posix_memalign(&c.scratch, 64, bytes + 64)) fail();
        k->run(&c);
        free(c.scratch);
    }
}

static double objective(const float *a, const float *b, const float *bias, const float *r, int m, int n, int k, bool ta, bool tb) {
    double sum = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double y = bias[j];
            for (int l = 0; l < k; l++) y += (double)a[ta ? l * m + i : i * k + l] * b[tb ? j * k + l : l * n + j];
            sum += y * r[i * n + j];
        }
    return sum;
}

static void gradients(void **state) {
    (void)state;
    enum { M = 4, N = 5, K = 3 };
    for (int t = 0; t < 4; t++) {
        bool ta = t & 1, tb = t & 2;
        sn_job *job;
        assert_ok(sn_job_new(&job));
        sn_graph *g = sn_job_add_graph(job, "test", SN_ROLE_TRAIN);
        sn_vid in[3] = {sn_input(g, "a", SN_F32, ta ? sn_shape_of(K, M) : sn_shape_of(M, K)),
                        sn_input(g, "b", SN_F32, tb ? sn_shape_of(N, K) : sn_shape_of(K, N)), sn_input(g, "bias", SN_F32, sn_shape_of(N))};
        sn_attrs attrs = {.i = {ta, tb, SN_F32}};
        sn_vid out[SN_MAX_OUT], dy = sn_input(g, "dy", SN_F32, sn_shape_of(M, N)), din[3] = {SN_NONE, SN_NONE, SN_NONE};
        sn_nid node = sn_append(g, SN_OP_matmul, &attrs, 3, in, "y", out);
        assert_ok(g->status);
        size_t first = g->n_nodes;
        assert_ok(sn_op_matmul.grad(g, node, &dy, (bool[]){true, true, true}, din));
        assert_ok(sn_graph_verify(g));
        float **data = sn_alloc_zero(g->n_values, sizeof *data);
        sn_vid all[] = {in[0], in[1], in[2], dy};
        int sizes[] = {M * K, K * N, N, M * N};
        for (int i = 0; i < 4; i++) test_fill(values_of(g, data, all[i]), (size_t)sizes[i], 10 + (uint32_t)i, 1);
        run_nodes(g, data, first);
        for (int i = 0; i < 3; i++) {
            assert_true(sn_shape_equal(&g->values[din[i]].shape, &g->values[in[i]].shape));
            for (int e = 0; e < sizes[i]; e++) {
                float *x = data[in[i]] + e, old = *x;
                *x = old + 0.5f;
                double up = objective(data[in[0]], data[in[1]], data[in[2]], data[dy], M, N, K, ta, tb);
                *x = old - 0.5f;
                double down = objective(data[in[0]], data[in[1]], data[in[2]], data[dy], M, N, K, ta, tb);
                *x = old;
                assert_true(fabs((up - down) - data[din[i]][e]) < 1e-5);
            }
        }
        for (size_t i = 0; i < g->n_values; i++) sn_free(data[i]);
        sn_free(data);
        sn_job_free(job);
    }
}

static void gradient_of_a_quantised_weight_is_refused(void **state) {
    (void)state;
    sn_job *job;
    assert_ok(sn_job_new(&job));
    sn_graph *g = sn_job_add_graph(job, "test", SN_ROLE_TRAIN);
    sn_vid in[2] = {sn_input(g, "a", SN_BF16, sn_shape_of(4, 64)), sn_input(g, "b", SN_Q4_1, sn_shape_of(32, 64))};
    sn_vid out[SN_MAX_OUT], dy = sn_input(g, "dy", SN_F32, sn_shape_of(4, 32)), din[3] = {SN_NONE, SN_NONE, SN_NONE};
    sn_nid node = sn_append(g, SN_OP_matmul, &(sn_attrs){.i = {0, 1, SN_F32}}, 2, in, "q_proj", out);
    assert_int_equal(sn_op_matmul.grad(g, node, &dy, (bool[]){false, true, false}, din), SN_ERR_UNSUPPORTED);
    assert_non_null(strstr(sn_error_text(), "q_proj"));
    assert_ok(sn_op_matmul.grad(g, node, &dy, (bool[]){true, false, false}, din));
    assert_int_equal(g->values[din[0]].dtype, SN_BF16); /* in a's form, from the quantised weight */
    assert_int_equal(din[1], SN_NONE);
    sn_job_free(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(kernels_agree),
        cmocka_unit_test(gradients),
        cmocka_unit_test(gradient_of_a_quantised_weight_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
