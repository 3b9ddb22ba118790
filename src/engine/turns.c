#include "engine/turns.h"

#include <string.h>

#include "tensor/convert.h"

enum { CHUNK = 4096 /* bytes, or elements of a master */ };

static sn_status fill_zero(sn_run *run, sn_pid p) {
    static const char zeros[CHUNK];
    const uint64_t bytes = sn_run_placed(run, p)->bytes;
    for (uint64_t at = 0; at < bytes; at += CHUNK)
        SN_TRY(sn_run_write(run, p, at, zeros, bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK));
    return SN_OK;
}

/* A master is its weight, or, where states are split further than weights, this rank's shard of it. */
static sn_status copy_weight(sn_run *run, const sn_job *job, sn_pid master, sn_pid weight) {
    const sn_placed *m = sn_run_placed(run, master), *w = sn_run_placed(run, weight);
    const sn_dtype form = job->persistent[weight].rest.form;
    const size_t item = (size_t)sn_dtypes[form].bytes;
    char raw[CHUNK * 4];
    float values[CHUNK];
    if (m->first < w->first || m->first - w->first + m->count > w->count)
        return sn_fail(SN_ERR_INTERNAL, "%s is no part of what this rank holds of %s", job->persistent[master].name,
                       job->persistent[weight].name);
    for (int64_t at = 0, n; at < m->count; at += n) {
        n = m->count - at < CHUNK ? m->count - at : CHUNK;
        SN_TRY(sn_run_read(run, weight, (uint64_t)(m->first - w->first + at) * item, raw, (size_t)n * item));
        sn_to_f32(form, raw, n, values);
        SN_TRY(sn_run_write(run, master, (uint64_t)at * sizeof *values, values, (size_t)n * sizeof *values));
    }
    return SN_OK;
}

sn_status sn_take_turn(sn_run *run, const sn_job *job, int64_t update) {
    if (!job->turns.count) return SN_OK;
    const int turn = sn_turn_at(&job->turns, update);
    sn_run_take_turn(run, turn);
    if (sn_turn_step(&job->turns, update)) return SN_OK;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        const bool shared = e->class_of == SN_CLASS_OPTIMIZER && e->parent == SN_NONE; /* norms of gradients that there are no more */
        if (sn_run_placed(run, (sn_pid)p)->within || !(shared || sn_job_turn(job, (sn_pid)p) == turn)) continue;
        if (e->parent != SN_NONE && sn_job_master(job, e->parent) == p) SN_TRY(copy_weight(run, job, (sn_pid)p, e->parent));
        else SN_TRY(fill_zero(run, (sn_pid)p));
    }
    return SN_OK;
}

int32_t sn_turn_in_progress(const sn_job *job, int64_t update) {
    return job->turns.count && update > 0 && sn_turn_step(&job->turns, update) ? sn_turn_at(&job->turns, update) : -1;
}
