#include "engine/load.h"

#include "engine/job.h"

sn_status sn_load_weights(sn_run *run, const sn_job *job, uint64_t seed) {
    int load = sn_job_role_index(job, SN_ROLE_LOAD);
    if (load >= 0) SN_TRY(sn_run_program(run, load, 0));
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        bool master = e->parent != SN_NONE && sn_job_master(job, e->parent) == p;
        void *data = sn_run_persistent(run, (sn_pid)p);
        if (data && e->source.file < 0 && (e->class_of == SN_CLASS_WEIGHTS || master)) {
            const sn_placed *at = sn_run_placed(run, (sn_pid)p);
            sn_initialise(e, master ? e->parent : (sn_pid)p, seed, at->first, at->count, data);
        }
    }
    return SN_OK;
}
