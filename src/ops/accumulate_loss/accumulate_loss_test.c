#include "support/small_ops.h"

#include <math.h>

#include "ops/accumulate_loss/accumulate_loss.h"

extern const sn_op sn_op_accumulate_loss;

static void add(sn_tensor *total, int64_t n, const float *loss, const int32_t *labels) {
    sn_call c = {0};
    c.in[0] = *total;
    c.in[1] = op_tensor_of(SN_F32, sn_shape_of(n), loss);
    c.in[2] = op_tensor_i32(sn_shape_of(n), labels);
    op_prepare(&sn_op_accumulate_loss, &c, 3);
    op_same_bits(&sn_op_accumulate_loss, &c);
    c.in[0].data = NULL;
    op_free_call(&c);
}

static void tokens_not_micro_batches(void **state) { /* one token of loss 4 and three of loss 1: the step's loss is 7/4 */
    (void)state;
    sn_tensor total = op_tensor(SN_F64, sn_shape_of(2), 0, 0);
    add(&total, 2, (float[]){4, 0}, (int32_t[]){17, SN_NO_LABEL});
    add(&total, 4, (float[]){1, 1, NAN, 1}, (int32_t[]){0, 2, SN_NO_LABEL, 3}); /* what has no label is not read */
    add(&total, 0, (float[]){0}, (int32_t[]){0});
    assert_true(op_get(&total, 0) == 7 && op_get(&total, 1) == 4);
    op_free_tensor(&total);
}

static void refuses(void **state) {
    (void)state;
    sn_call c = {.in = {{.dtype = SN_F64, .shape = sn_shape_of(2)},
                        {.dtype = SN_F32, .shape = sn_shape_of(3)},
                        {.dtype = SN_I32, .shape = sn_shape_of(2)}}};
    op_refused(&sn_op_accumulate_loss, &c, 3, "labels must be [3], found [2]");
    c.in[0].dtype = SN_F32;
    op_refused(&sn_op_accumulate_loss, &c, 3, "total must be f64, found f32");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_not_micro_batches), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
