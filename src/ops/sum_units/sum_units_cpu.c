#include "ops/sum_units/sum_units.h"

#include "ops/math/rows.h"

static void sum_units_run(const sn_call *c) {
    const double *units = c->in[0].data;
    double sum = 0;
    for (int64_t u = 0; sn_has(c, 0) && u < sn_elements(&c->in[0]); u++) sum += units[u];
    if (sn_has(c, 1)) ((double *)c->in[1].data)[c->attrs.i[SN_SUM_UNITS_SLOT]] = sum;
    else ((double *)c->out[0].data)[0] = sum;
}

SN_ONE_KERNEL(sn_sum_units_cpu, "reference", SN_CPU_REFERENCE, NULL, sum_units_run);
