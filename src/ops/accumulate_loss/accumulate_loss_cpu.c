#include "ops/accumulate_loss/accumulate_loss.h"

#include "ops/math/rows.h"

static void accumulate_loss_run(const sn_call *c) {
    double *total = c->in[0].data;
    const float *loss = c->in[1].data;
    const int32_t *labels = c->in[2].data;
    const int64_t n = sn_elements(&c->in[1]);
    double sum = 0, count = 0;
    for (int64_t t = 0; t < n; t++) {
        if (labels[t] == SN_NO_LABEL) continue;
        sum += (double)loss[t];
        count += 1;
    }
    total[0] += sum;
    total[1] += count;
}

SN_ONE_KERNEL(sn_accumulate_loss_cpu, "reference", SN_CPU_REFERENCE, NULL, accumulate_loss_run);
