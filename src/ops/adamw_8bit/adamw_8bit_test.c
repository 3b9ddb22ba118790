#include "support/small_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/adamw_8bit/adamw_8bit.h"
#include "tensor/convert.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/optimizers/golden.txt"
enum { ELEMENTS = 600 /* of the golden script */ };

extern const sn_op sn_op_adamw_8bit;

static sn_call call(sn_dtype w, sn_dtype g, sn_dtype w16, int64_t n) { /* w16 = SN_F32: none */
    sn_call c = {.attrs = {.f = {0.9, 0.95, 1e-8, 0}, .i = {[SN_ADAMW_PARAMETER] = 5}}};
    const int64_t blocks = (n + SN_DYNAMIC_BLOCK - 1) / SN_DYNAMIC_BLOCK;
    c.in[0] = op_tensor(w, sn_shape_of(n), 1, 1);
    c.in[1] = op_tensor(g, sn_shape_of(n), 2, 1);
    for (int k = 2; k < 6; k += 2) {
        c.in[k] = op_tensor(SN_U8, sn_shape_of(n), 0, 0);
        c.in[k + 1] = op_tensor(SN_F32, sn_shape_of(blocks), 0, 0);
        for (int64_t i = 0; i < n; i++) ((uint8_t *)c.in[k].data)[i] = (uint8_t)(i * (k == 2 ? 37 : 101) % 256);
        for (int64_t i = 0; i < blocks; i++) op_set(&c.in[k + 1], i, 0.05 * (double)(1 + i % 3));
    }
    c.in[6] = op_tensor_of(SN_F32, sn_shape_of(8), (float[]){1e-2f, 0.19f, 0.0975f, 1, 2, sn_bits_f32(123), sn_bits_f32(456), 0});
    c.in[7] = op_tensor_of(SN_F32, sn_shape_of(4), (float[]){0.5f, 1, 3, 0});
    if (w16 != SN_F32) c.in[8] = op_tensor(w16, sn_shape_of(n), 6, 1);
    op_prepare(&sn_op_adamw_8bit, &c, w16 != SN_F32 ? 9 : 8);
    return c;
}

/* What ran before any step: states of zero bytes. */
static void clear_states(sn_call *c) {
    for (int k = 2; k < 6; k++) memset(c->in[k].data, 0, sn_tensor_bytes(&c->in[k]));
}

static void maps_of_bitsandbytes(void **state) {
    (void)state;
    const sn_dynamic_map *maps[2] = {sn_dynamic_map_signed(), sn_dynamic_map_unsigned()};
    const char *const names[2] = {"map.signed", "map.unsigned"};
    for (int k = 0; k < 2; k++) {
        float want[256];
        op_golden(GOLDEN, names[k], want, 256);
        for (int i = 0; i < 256; i++) assert_true(fabsf(maps[k]->value[i] - want[i]) <= 3e-7f * fabsf(want[i]));
    }
}

/* The code of the nearest number, by looking at all of them. */
static int nearest(const float *map, float x) {
    int best = 0;
    for (int i = 1; i < 256; i++)
        if (fabs((double)map[i] - (double)x) < fabs((double)map[best] - (double)x)) best = i;
    return best;
}

/* With learning rate 0, betas 0 and zero states a step is nothing but quantisation: of g, and of g squared. */
static void quantise(sn_call *c) {
    clear_states(c);
    c->attrs.f[SN_ADAMW_BETA1] = c->attrs.f[SN_ADAMW_BETA2] = 0;
    op_set(&c->in[6], 0, 0);
    op_set(&c->in[7], 0, 1);
    op_same_bits(&sn_op_adamw_8bit, c);
}

/* bitsandbytes' CPU path rounds quotients to a grid of 1/32768 first, so that small ones get a neighbour's code, or another's near
 * 0. Where the grid is fine enough, codes are equal. */
static void quantises_as_bitsandbytes(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, ELEMENTS);
    float want[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) {
        float x = (float)((7919 * i + 13) % 10007 - 5003) / 5003.0f;
        ((float *)c.in[1].data)[i] = powf(x, 5);
    }
    quantise(&c);
    op_golden(GOLDEN, "quantise.signed.codes", want, ELEMENTS);
    for (int i = 0; i < ELEMENTS; i++) {
        const int code = ((uint8_t *)c.in[2].data)[i], apart = abs(code - (int)want[i]);
        const double q = fabs(op_get(&c.in[1], i)) / op_get(&c.in[3], i / SN_DYNAMIC_BLOCK);
        if (apart > (q > 0.03 ? 0 : q > 1e-4 ? 1 : 4)) fail_msg("code of %d (%g): %d, wanted %d", i, q, code, (int)want[i]);
    }
    op_golden(GOLDEN, "quantise.signed.absmax", want, 3);
    for (int i = 0; i < 3; i++) assert_true(fabs(op_get(&c.in[3], i) - (double)want[i]) < 1e-6);
    op_free_call(&c);
}

static void takes_the_nearest_number(void **state) {
    (void)state;
    const int64_t n = 70001;
    sn_call c = call(SN_F32, SN_F32, SN_F32, n);
    float *g = c.in[1].data;
    for (int64_t i = 0; i < n; i++) g[i] = (float)((double)((i * 48271) % 65537 - 32768) / 32768.0 * pow(10, -(int)(i % 9)));
    for (int64_t i = 0; i < n; i += SN_DYNAMIC_BLOCK) g[i] = i / SN_DYNAMIC_BLOCK % 2 ? 3 : -3; /* the blocks' maxima */
    quantise(&c);
    const sn_dynamic_map *m = sn_dynamic_map_signed(), *v = sn_dynamic_map_unsigned();
    for (int64_t i = 0; i < n; i++) {
        const float x = g[i] / 3, y = g[i] * g[i] / 9;
        const int a = ((uint8_t *)c.in[2].data)[i], b = ((uint8_t *)c.in[4].data)[i];
        const double mine = fabs((double)m->value[a] - (double)x), best = fabs((double)m->value[nearest(m->value, x)] - (double)x);
        const double mine2 = fabs((double)v->value[b] - (double)y), best2 = fabs((double)v->value[nearest(v->value, y)] - (double)y);
        assert_true(mine <= best + 1e-7 * fabs((double)x));
        assert_true(mine2 <= best2 + 3e-7 * fabs((double)y));
        assert_true(((x > 0) - (x < 0)) * (m->value[a] >= 0 ? 1 : -1) >= 0 || m->value[a] == 0);
    }
    op_free_call(&c);
}

/* bitsandbytes divides by absolute maxima by another rounding, and keeps tiny negative moments from becoming 0. */
static void ten_steps_of_bitsandbytes(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, ELEMENTS);
    float want[ELEMENTS];
    clear_states(&c);
    op_set(&c.in[7], 0, 1);
    for (int i = 0; i < ELEMENTS; i++) op_set(&c.in[0], i, (double)((5 * i) % 17 - 8) / 16);
    for (int step = 1; step <= 10; step++) {
        for (int i = 0; i < ELEMENTS; i++) op_set(&c.in[1], i, pow((double)((13 * i + 7 * step) % 29 - 14) / 64, 3));
        op_set(&c.in[6], 1, 1 - pow(0.9, step));
        op_set(&c.in[6], 2, 1 - pow(0.95, step));
        op_run(&sn_op_adamw_8bit, &c);
        op_golden(GOLDEN, step == 1 ? "adamw_8bit.w.1" : "adamw_8bit.w.10", want, ELEMENTS);
        for (int i = 0; i < ELEMENTS && (step == 1 || step == 10); i++)
            if (!(fabs(op_get(&c.in[0], i) - (double)want[i]) < (step == 1 ? 2e-6 : 2e-3)))
                fail_msg("step %d, %d: %.9g, wanted %.9g", step, i, op_get(&c.in[0], i), (double)want[i]);
    }
    for (int k = 0; k < 2; k++) {
        int same = 0;
        op_golden(GOLDEN, k ? "adamw_8bit.exp_avg_sq.10" : "adamw_8bit.exp_avg.10", want, ELEMENTS);
        for (int i = 0; i < ELEMENTS; i++) same += abs(((uint8_t *)c.in[2 + 2 * k].data)[i] - (int)want[i]) <= 1;
        if (same < ELEMENTS * 98 / 100) fail_msg("only %d of %d codes are next to bitsandbytes'", same, ELEMENTS);
    }
    op_free_call(&c);
}

static void every_form(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 63, 65, 256, 4097, 40009};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int w = 0; w < 2; w++) TEST_EACH_FORM(g)
    for (int w16 = 0; w16 < 3; w16++) {
        sn_call c = call(test_forms[w], test_forms[g], test_forms[w16], sizes[s]);
        op_same_bits(&sn_op_adamw_8bit, &c);
        for (int64_t i = 0; i < sizes[s]; i++) assert_true(isfinite(op_get(&c.in[0], i)));
        op_free_call(&c);
    }
}

/* A gradient of nothing but zeros, and one whose square overflows: what comes out is finite numbers, and the next step too. */
static void extremes(void **state) {
    (void)state;
    const double values[] = {0, 1e-30, 1e20, -3e38};
    for (int k = 0; k < 4; k++) {
        sn_call c = call(SN_F32, SN_F32, SN_F32, 300);
        clear_states(&c);
        op_set(&c.in[7], 0, 1);
        for (int64_t i = 0; i < 300; i++) op_set(&c.in[1], i, values[k]);
        for (int step = 0; step < 3; step++) op_same_bits(&sn_op_adamw_8bit, &c);
        for (int64_t i = 0; i < 300; i++) assert_true(isfinite(op_get(&c.in[0], i)));
        op_free_call(&c);
    }
}

static void not_applied(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_BF16, 1027), before = call(SN_F32, SN_F32, SN_BF16, 1027);
    op_set(&c.in[7], 1, 0);
    op_set(&c.in[7], 0, NAN);
    op_set(&c.in[1], 3, NAN);
    op_same_bits(&sn_op_adamw_8bit, &c);
    const int changed[] = {0, 2, 3, 4, 5, 8};
    for (int k = 0; k < 6; k++) assert_memory_equal(c.in[changed[k]].data, before.in[changed[k]].data, sn_tensor_bytes(&c.in[changed[k]]));
    op_free_call(&c);
    op_free_call(&before);
}

static void shards_keep_their_bits(void **state) {
    (void)state;
    enum { FIRST = 5 * SN_DYNAMIC_BLOCK, COUNT = 1000 };
    sn_call whole = call(SN_BF16, SN_F32, SN_F32, FIRST + COUNT), part = call(SN_BF16, SN_F32, SN_F32, COUNT);
    for (int k = 0; k < 6; k++) {
        const int64_t first = k == 3 || k == 5 ? FIRST / SN_DYNAMIC_BLOCK : FIRST, item = sn_dtypes[part.in[k].dtype].bytes;
        memcpy(part.in[k].data, (char *)whole.in[k].data + first * item, sn_tensor_bytes(&part.in[k]));
    }
    part.attrs.i[SN_ADAMW_FIRST] = FIRST;
    op_run(&sn_op_adamw_8bit, &whole);
    op_run(&sn_op_adamw_8bit, &part);
    for (int k = 0; k < 6; k++) {
        const int64_t first = k == 3 || k == 5 ? FIRST / SN_DYNAMIC_BLOCK : FIRST, item = sn_dtypes[part.in[k].dtype].bytes;
        assert_memory_equal(part.in[k].data, (char *)whole.in[k].data + first * item, sn_tensor_bytes(&part.in[k]));
    }
    op_free_call(&whole);
    op_free_call(&part);
}

/* Scales that lie in rows as their blocks do. */
static void blocks_in_rows(void **state) {
    (void)state;
    enum { ROWS = 3, BLOCKS = 2 };
    sn_call flat = call(SN_F32, SN_F32, SN_F32, ROWS * BLOCKS * SN_DYNAMIC_BLOCK),
            rows = call(SN_F32, SN_F32, SN_F32, ROWS * BLOCKS * SN_DYNAMIC_BLOCK);
    for (int k = 0; k < 6; k++) rows.in[k].shape = sn_shape_of(ROWS, k == 3 || k == 5 ? BLOCKS : BLOCKS * SN_DYNAMIC_BLOCK);
    op_prepare(&sn_op_adamw_8bit, &rows, rows.n_in);
    op_run(&sn_op_adamw_8bit, &flat);
    op_run(&sn_op_adamw_8bit, &rows);
    for (int k = 0; k < 6; k++) assert_memory_equal(rows.in[k].data, flat.in[k].data, sn_tensor_bytes(&flat.in[k]));
    rows.in[3].shape = sn_shape_of(BLOCKS, ROWS);
    op_refused(&sn_op_adamw_8bit, &rows, rows.n_in, "m_max must be [6], found [2,3]");
    op_free_call(&flat);
    op_free_call(&rows);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = call(SN_F32, SN_F32, SN_F32, 300);
    c.in[5].shape = sn_shape_of(3);
    op_refused(&sn_op_adamw_8bit, &c, 8, "v_max must be [2], found [3]");
    c.in[2].dtype = SN_I8;
    op_refused(&sn_op_adamw_8bit, &c, 8, "m must be u8, found i8");
    c.in[1].shape = sn_shape_of(5);
    op_refused(&sn_op_adamw_8bit, &c, 8, "g must be [300], found [5]");
    op_free_call(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_of_bitsandbytes),
        cmocka_unit_test(quantises_as_bitsandbytes),
        cmocka_unit_test(takes_the_nearest_number),
        cmocka_unit_test(ten_steps_of_bitsandbytes),
        cmocka_unit_test(every_form),
        cmocka_unit_test(extremes),
        cmocka_unit_test(not_applied),
        cmocka_unit_test(shards_keep_their_bits),
        cmocka_unit_test(blocks_in_rows),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
