#include "ops/muon/muon.h"

#include "ops/rules.h"

static sn_status shape(sn_call *c) {
    SN_TRY(sn_need_update("muon", c, 3));
    SN_TRY(sn_need_rank("muon", c, 0, "w", 2));
    return sn_need_state("muon", c, 2, "m");
}

static bool accepts(const sn_call *c, int input, sn_dtype form) {
    (void)c;
    return sn_accepts_update(input, form, 3);
}

static sn_cost cost(const sn_call *c) {
    const double n = (double)sn_elements(&c->in[0]), rows = (double)c->in[0].shape.d[0], columns = (double)c->in[0].shape.d[1];
    const double side = rows < columns ? rows : columns;
    sn_cost k = sn_cost_each(c, 10, 1u << 0 | 1u << 2);
    k.flops += SN_MUON_STEPS * (4 * n * side + 2 * side * side * side);
    k.bytes += SN_MUON_STEPS * 4 * (6 * n + 6 * side * side);
    return k;
}

/* No index letters: a step needs the whole parameter. */
const sn_op sn_op_muon = {.name = "muon",
                          .min_in = 5,
                          .max_in = 6,
                          .n_out = 0,
                          .mutates = 1u << 0 | 1u << 2 | 1u << 5,
                          .int_attrs = {"parameter"},
                          .float_attrs = {"momentum", "weight_decay", "scale"},
                          .shape = shape,
                          .accepts = accepts,
                          .cost = cost,
                          .kernels = {sn_muon_avx512, sn_muon_avx2, sn_muon_cpu}};
