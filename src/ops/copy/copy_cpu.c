#include "ops/copy/copy.h"

#include "ops/math/rows.h"

enum { COPY_BYTES = 1 << 18 }; /* of one task */

static void copy_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const int64_t first = task * COPY_BYTES, end = sn_min_i64(first + COPY_BYTES, (int64_t)sn_tensor_bytes(&c->in[0]));
    memcpy((char *)(sn_has(c, 1) ? &c->in[1] : &c->out[0])->data + first, (const char *)c->in[0].data + first, (size_t)(end - first));
}

static void copy_run(const sn_call *c) {
    sn_team_run(c->team, sn_tasks((int64_t)sn_tensor_bytes(&c->in[0]), COPY_BYTES), copy_task, (void *)c);
}

SN_ONE_KERNEL(sn_copy_cpu, "reference", SN_CPU_REFERENCE, NULL, copy_run);
