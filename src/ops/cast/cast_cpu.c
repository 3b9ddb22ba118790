/* The driver of every CPU cast, and the scalar kernel. */
#include <string.h>

#include "ops/cast/cast.h"
#include "ops/cast/convert_isa.h"

enum { TASK = 16384, PIECE = 1024 }; /* elements of a task, and of the f32 buffer between two 16-bit or block forms */

bool sn_cast_reads(sn_dtype t) { return sn_dtype_is_float(t) || sn_dtype_is_quantised(t); }

bool sn_cast_writes(sn_dtype t) { return sn_dtype_is_float(t) || (t >= SN_Q4_0 && t <= SN_Q8_1) || t == SN_Q8_K; }

static const sn_tensor *result(const sn_call *c) { return sn_has(c, 1) ? &c->in[1] : &c->out[0]; }

bool sn_cast_takes(const sn_call *c) {
    size_t bytes;
    const sn_dtype to = result(c)->dtype;
    return sn_cast_reads(c->in[0].dtype) && sn_cast_writes(to) && to == (sn_dtype)c->attrs.i[SN_CAST_DTYPE] &&
           sn_dtype_row_bytes(c->in[0].dtype, sn_cols(&c->in[0]), &bytes) && sn_dtype_row_bytes(to, sn_cols(&c->in[0]), &bytes);
}

typedef struct job {
    const sn_call *c;
    const sn_convert_isa *isa;
    int64_t n;
} job;

static size_t offset_of(sn_dtype t, int64_t element) { return (size_t)(element / sn_dtypes[t].block) * (size_t)sn_dtypes[t].bytes; }

/* A tensor is contiguous and its rows are whole blocks, so its elements are one long row. */
static void cast_task(void *context, int64_t task, int member) {
    (void)member;
    const job *j = context;
    const sn_dtype from = j->c->in[0].dtype, to = result(j->c)->dtype;
    const uint8_t *x = j->c->in[0].data;
    uint8_t *y = result(j->c)->data;
    const int64_t begin = task * TASK, end = begin + TASK < j->n ? begin + TASK : j->n;
    if (from == to) {
        memcpy(y + offset_of(to, begin), x + offset_of(from, begin), offset_of(to, end) - offset_of(to, begin));
    } else if (to == SN_F32) {
        sn_decode(j->isa, from, x + offset_of(from, begin), end - begin, (float *)(void *)y + begin);
    } else if (from == SN_F32) {
        sn_encode(j->isa, to, (const float *)(const void *)x + begin, end - begin, y + offset_of(to, begin));
    } else {
        float buffer[PIECE];
        for (int64_t i = begin; i < end; i += PIECE) {
            int64_t n = end - i < PIECE ? end - i : PIECE;
            sn_decode(j->isa, from, x + offset_of(from, i), n, buffer);
            sn_encode(j->isa, to, buffer, n, y + offset_of(to, i));
        }
    }
}

void sn_cast_run(const sn_call *c, const sn_convert_isa *isa) {
    job j = {c, isa, sn_elements(&c->in[0])};
    sn_team_run(c->team, (j.n + TASK - 1) / TASK, cast_task, &j);
}

const sn_convert_isa sn_convert_cpu = {0};

static void run(const sn_call *c) { sn_cast_run(c, &sn_convert_cpu); }

const sn_kernel sn_cast_cpu[] = {{"reference", SN_DEVICE_CPU, 0, sn_cast_takes, NULL, run}, {0}};
