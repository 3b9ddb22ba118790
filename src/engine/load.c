#include "engine/load.h"

#include "engine/job.h"

/* Draws what this rank holds, in logical runs, and writes it where it rests. */
static sn_status initialise(sn_run *run, const sn_persistent *e, sn_pid p, sn_pid key, uint64_t seed) {
    enum { CHUNK = 4096 };
    float buffer[CHUNK]; /* no form is wider */
    const sn_placed *at = sn_run_placed(run, p);
    size_t block = (size_t)sn_dtypes[e->rest.form].block, item = (size_t)sn_dtypes[e->rest.form].bytes;
    int64_t where, n;
    for (int64_t k = 0; k < at->count; k += n) {
        n = sn_placed_run(at, &e->shape, k, &where);
        if (n > CHUNK) n = CHUNK;
        sn_initialise(e, key, seed, where, n, buffer);
        SN_TRY(sn_run_write(run, p, (uint64_t)k / block * item, buffer, (size_t)n / block * item));
    }
    return SN_OK;
}

sn_status sn_load_weights(sn_run *run, const sn_job *job, uint64_t seed) {
    int load = sn_job_role_index(job, SN_ROLE_LOAD);
    if (load >= 0) SN_TRY(sn_run_program(run, load, 0));
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        bool master = e->parent != SN_NONE && sn_job_master(job, e->parent) == p;
        if (sn_job_turn(job, (sn_pid)p) >= 0 || e->source.file >= 0 || !(e->class_of == SN_CLASS_WEIGHTS || master)) continue;
        if (sn_run_persistent(run, (sn_pid)p) || sn_run_placed(run, (sn_pid)p)->tier == SN_TIER_DISK)
            SN_TRY(initialise(run, e, (sn_pid)p, master ? e->parent : (sn_pid)p, seed));
    }
    return SN_OK;
}
