#include "ops/cast/cast.h"

#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "base/rng.h"
#include "graph/op.h"
#include "support/support.h"
#include "tensor/convert.h"

static const sn_kernel *const TABLES[] = {sn_cast_cpu, sn_cast_avx2, sn_cast_avx512};

/* Random bits, and every special value once; finite scales for block forms so that their values can be compared. */
static void fill(sn_dtype t, uint8_t *data, size_t bytes, uint32_t seed) {
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)sn_philox(seed, 0, (uint32_t)i, 0, 0, 0).v[0];
    if (t == SN_F32) {
        static const float special[] = {0,     -0.0f,  INFINITY, -INFINITY, NAN,     1e-45f, 65519.996f,
                                        65520, -65536, 6e-8f,    3e-8f,     2.9e-8f, 3.4e38f};
        float *x = (float *)(void *)data;
        for (size_t i = 0; i < bytes / 4; i++) x[i] = i % 512 < 256 ? x[i] : sn_uniform((uint32_t)(i * 2654435761u)) - 0.5f;
        if (bytes >= 4 * 13 * 8)
            for (size_t i = 0; i < 13; i++) x[i * 7] = special[i];
        for (size_t i = 0; i < bytes / 4; i++) /* quiet NaNs only: a signalling one may be quietened by any move of a float */
            if (isnan(x[i])) x[i] = NAN;
    }
}

static void compare_with_scalar(sn_dtype from, sn_dtype to, int64_t rows, int64_t cols, sn_team *team) {
    sn_shape shape = sn_shape_of(rows, cols);
    sn_call c = {.n_in = 1, .n_out = 1, .team = team};
    c.in[0] = (sn_tensor){.dtype = from, .shape = shape};
    c.attrs.i[SN_CAST_DTYPE] = to;
    assert_ok(sn_op_cast.shape(&c));
    assert_int_equal(c.out[0].dtype, to);
    assert_true(sn_shape_equal(&c.out[0].shape, &shape));
    size_t in_bytes = sn_tensor_bytes(&c.in[0]), out_bytes = sn_tensor_bytes(&c.out[0]);
    int64_t n = rows * cols;
    uint8_t *x = sn_alloc(in_bytes), *y = sn_alloc(out_bytes + 8), *want = sn_alloc(out_bytes + 8);
    float *wide = sn_alloc((size_t)n * 4);
    fill(from, x, in_bytes, (uint32_t)(from * 64 + to));
    sn_to_f32(from, x, n, wide);
    assert_ok(sn_from_f32(to, wide, n, want));
    if (from == to) memcpy(want, x, in_bytes);
    memset(want + out_bytes, 0x5a, 8);
    c.in[0].data = x;
    for (size_t k = 0; k < sizeof TABLES / sizeof *TABLES; k++) {
        if ((sn_cpu_features() & TABLES[k]->needs) != TABLES[k]->needs) continue;
        assert_true(TABLES[k]->takes(&c));
        memset(y, 0x5a, out_bytes + 8);
        c.out[0].data = y;
        TABLES[k]->run(&c);
        if (memcmp(y, want, out_bytes + 8)) {
            size_t i = 0;
            while (y[i] == want[i]) i++;
            fail_msg("%s %s -> %s, %lld elements: byte %zu is %02x, wanted %02x", TABLES[k]->name, sn_dtype_name(from), sn_dtype_name(to),
                     (long long)n, i, y[i], want[i]);
        }
    }
    sn_free(x);
    sn_free(y);
    sn_free(want);
    sn_free(wide);
}

static void all_pairs_have_the_scalar_bits(void **state) {
    (void)state;
    sn_team *team;
    assert_ok(sn_team_open(3, NULL, &team));
    for (sn_dtype from = 0; from < SN_DTYPE_COUNT; from++)
        for (sn_dtype to = 0; to < SN_DTYPE_COUNT; to++) {
            if (!sn_cast_reads(from) || !sn_cast_writes(to)) continue;
            compare_with_scalar(from, to, 1, 256, NULL);
            compare_with_scalar(from, to, 69, 768, team); /* several tasks, the last one short */
            if (sn_dtypes[from].block == 1 && sn_dtypes[to].block == 1)
                for (int64_t cols = 1; cols < 36; cols += 1 + cols / 18) compare_with_scalar(from, to, 3, cols, team);
        }
    sn_team_close(team);
}

static void every_f16_and_bf16_pattern(void **state) {
    (void)state;
    uint16_t *h = sn_alloc(65536 * 2), *back = sn_alloc(65536 * 2);
    float *wide = sn_alloc(65536 * 4);
    for (int i = 0; i < 65536; i++) h[i] = (uint16_t)i;
    const sn_dtype forms[] = {SN_F16, SN_BF16};
    for (int f = 0; f < 2; f++)
        for (size_t k = 0; k < sizeof TABLES / sizeof *TABLES; k++) {
            if ((sn_cpu_features() & TABLES[k]->needs) != TABLES[k]->needs) continue;
            sn_call c = {.in = {{h, forms[f], sn_shape_of(65536)}}, .out = {{wide, SN_F32, sn_shape_of(65536)}}, .n_in = 1, .n_out = 1};
            TABLES[k]->run(&c);
            for (int i = 0; i < 65536; i++) {
                float want = forms[f] == SN_F16 ? sn_f16_to_f32(h[i]) : sn_bf16_to_f32(h[i]);
                if (sn_f32_bits(want) != sn_f32_bits(wide[i])) fail_msg("%s %s %04x", TABLES[k]->name, sn_dtype_name(forms[f]), i);
            }
            sn_call r = {.in = {{wide, SN_F32, sn_shape_of(65536)}}, .out = {{back, forms[f], sn_shape_of(65536)}}, .n_in = 1, .n_out = 1};
            TABLES[k]->run(&r);
            for (int i = 0; i < 65536; i++)
                if (back[i] != h[i] && !isnan(wide[i]))
                    fail_msg("%s %s %04x came back as %04x", TABLES[k]->name, sn_dtype_name(forms[f]), i, back[i]);
        }
    sn_free(h);
    sn_free(back);
    sn_free(wide);
}

static void refusals(void **state) {
    (void)state;
    sn_call c = {.in = {{NULL, SN_F32, sn_shape_of(2, 48)}}, .n_in = 1, .n_out = 1};
    c.attrs.i[SN_CAST_DTYPE] = SN_Q8_1;
    assert_int_equal(sn_op_cast.shape(&c), SN_ERR_SHAPE);
    assert_non_null(strstr(sn_error_text(), "[2,48]"));
    c.attrs.i[SN_CAST_DTYPE] = SN_Q4_K;
    assert_int_equal(sn_op_cast.shape(&c), SN_ERR_UNSUPPORTED);
    c.attrs.i[SN_CAST_DTYPE] = SN_DTYPE_COUNT;
    assert_int_equal(sn_op_cast.shape(&c), SN_ERR_USAGE);
    c.attrs.i[SN_CAST_DTYPE] = SN_F32;
    c.in[0].dtype = SN_I32;
    assert_int_equal(sn_op_cast.shape(&c), SN_ERR_UNSUPPORTED);
    c.in[0] = (sn_tensor){NULL, SN_F32, sn_shape_of(2, 64)}; /* into a value of another form or shape */
    c.n_in = 2;
    c.in[1] = (sn_tensor){NULL, SN_BF16, sn_shape_of(2, 64)};
    assert_int_equal(sn_op_cast.shape(&c), SN_ERR_SHAPE);
    assert_non_null(strstr(sn_error_text(), "into"));
    c.in[1] = (sn_tensor){NULL, SN_F32, sn_shape_of(3, 64)};
    assert_int_equal(sn_op_cast.shape(&c), SN_ERR_SHAPE);
    c.in[1].shape = c.in[0].shape;
    assert_ok(sn_op_cast.shape(&c));
    assert_int_equal(c.out[0].shape.rank, 0);
}

static void rows_of_blocks_stay_whole(void **state) {
    (void)state;
    sn_call c = {.in = {{NULL, SN_F32, sn_shape_of(2, 64)}}, .n_in = 1, .n_out = 1};
    c.attrs.i[SN_CAST_DTYPE] = SN_BF16;
    assert_string_equal(sn_op_cast.axes(&c), "ab->ab");
    c.attrs.i[SN_CAST_DTYPE] = SN_Q8_1;
    assert_string_equal(sn_op_cast.axes(&c), "aB->aB");
    assert_true(sn_op_cast.accepts(&c, 0, SN_Q4_1));
    assert_false(sn_op_cast.accepts(&c, 0, SN_Q4_K)); /* 64 columns are no block of 256 */
    assert_false(sn_op_cast.accepts(&c, 0, SN_I32));
}

static void gradient_is_cast_back(void **state) {
    (void)state;
    sn_job *job;
    assert_ok(sn_job_new(&job));
    sn_graph *g = sn_job_add_graph(job, "test", SN_ROLE_TRAIN);
    sn_vid x = sn_input(g, "x", SN_F32, sn_shape_of(2, 64)), y, din = SN_NONE;
    sn_nid node = sn_append(g, SN_OP_cast, &(sn_attrs){.i = {SN_BF16}}, 1, &x, "y", &y);
    sn_vid dy = sn_input(g, "dy", SN_BF16, sn_shape_of(2, 64));
    const bool want = true;
    assert_ok(sn_op_cast.grad(g, node, &dy, &want, &din));
    assert_int_equal(g->values[din].dtype, SN_F32);
    assert_int_equal(g->nodes[g->values[din].producer].op, SN_OP_cast);
    assert_int_equal(g->nodes[g->values[din].producer].in[0].value, dy);
    sn_vid dy32 = sn_input(g, "dy32", SN_F32, sn_shape_of(2, 64)); /* already in x's form: nothing to add */
    assert_ok(sn_op_cast.grad(g, node, &dy32, &want, &din));
    assert_int_equal(din, dy32);
    const sn_vid none = SN_NONE;
    din = SN_NONE;
    assert_ok(sn_op_cast.grad(g, node, &none, &want, &din));
    assert_int_equal(din, SN_NONE);
    sn_job_free(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_pairs_have_the_scalar_bits), cmocka_unit_test(every_f16_and_bf16_pattern), cmocka_unit_test(refusals),
        cmocka_unit_test(rows_of_blocks_stay_whole),      cmocka_unit_test(gradient_is_cast_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
