#include "ops/adafactor/adafactor.h"

#include "ops/math/rows.h"
#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_update("adafactor", c, 4));
    SN_TRY(sn_need_form("adafactor", c, 2, c->in[0].shape.rank == 2 ? "row" : "v", SN_F32));
    if (c->in[0].shape.rank != 2) return sn_need_shape("adafactor", c, 2, "v", &c->in[0].shape);
    const sn_shape rows = sn_shape_of(c->in[0].shape.d[0]), columns = sn_shape_of(c->in[0].shape.d[1]);
    SN_TRY(sn_need_shape("adafactor", c, 2, "row", &rows));
    SN_TRY(sn_need_shape("adafactor", c, 3, "col", &columns));
    return sn_need_form("adafactor", c, 3, "col", SN_F32);
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return input == 2 || input == 3 ? form == SN_F32 : sn_accepts_update(input, form, 4);
}

/* The gradient is read four times: for rows, columns, the root mean square and the update. */
static sn_cost cost(const sn_call *c) {
    sn_cost k = sn_cost_each(c, 20, 1u << 0);
    k.bytes += 3 * (double)sn_tensor_bytes(&c->in[1]);
    return k;
}

size_t sn_adafactor_scratch(const sn_call *c, int n_threads) {
    (void)n_threads;
    const sn_tensor *w = &c->in[0];
    if (w->shape.rank != 2) return (size_t)sn_tasks(sn_elements(w), SN_PIECE) * sizeof(double);
    return (size_t)w->shape.d[0] * sizeof(double) + (size_t)w->shape.d[1] * sizeof(float);
}

/* No index letters: a step needs the whole parameter. */
const sn_op sn_op_adafactor = {.name = "adafactor",
                               .min_in = 3,
                               .max_in = 7,
                               .n_out = 0,
                               .mutates = 1u << 0 | 1u << 2 | 1u << 3 | 1u << 6,
                               .int_attrs = {"parameter"},
                               .float_attrs = {"weight_decay"},
                               .shape = shape,
                               .accepts = accepts,
                               .cost = cost,
                               .kernels = {sn_adafactor_avx512, sn_adafactor_avx2, sn_adafactor_cpu}};
