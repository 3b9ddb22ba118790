#include <string.h>

#include "ops/split_cols/split_cols_cpu.h"

enum { ROWS_A_TASK = 64 };

static void copy_rows(const sn_call *c, int64_t task, bool split) {
    const sn_tensor *whole = split ? &c->in[0] : &c->out[0], *parts = split ? c->out : c->in;
    size_t part_bytes = sn_row_bytes(&parts[0]);
    int64_t end = (task + 1) * ROWS_A_TASK < sn_rows(whole) ? (task + 1) * ROWS_A_TASK : sn_rows(whole);
    for (int64_t r = task * ROWS_A_TASK; r < end; r++)
        for (int p = 0; p < SN_SPLIT_COLS_PARTS; p++) {
            char *w = (char *)whole->data + (size_t)r * part_bytes * SN_SPLIT_COLS_PARTS + (size_t)p * part_bytes;
            char *s = (char *)parts[p].data + (size_t)r * part_bytes;
            memcpy(split ? s : w, split ? w : s, part_bytes);
        }
}

static void split_task(void *call, int64_t task, int member) {
    (void)member;
    copy_rows(call, task, true);
}
static void concat_task(void *call, int64_t task, int member) {
    (void)member;
    copy_rows(call, task, false);
}

static void run_split(const sn_call *c) {
    sn_team_run(c->team, (sn_rows(&c->in[0]) + ROWS_A_TASK - 1) / ROWS_A_TASK, split_task, (void *)(uintptr_t)c);
}
static void run_concat(const sn_call *c) {
    sn_team_run(c->team, (sn_rows(&c->in[0]) + ROWS_A_TASK - 1) / ROWS_A_TASK, concat_task, (void *)(uintptr_t)c);
}

static bool takes(const sn_call *c) { return !sn_dtype_is_quantised(c->in[0].dtype); }

const sn_kernel sn_split_cols_cpu[] = {{.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .run = run_split}, {0}};
const sn_kernel sn_concat_cols_cpu[] = {{.name = "reference", .device = SN_DEVICE_CPU, .takes = takes, .run = run_concat}, {0}};
