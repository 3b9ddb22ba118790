#include "engine/load.h"

#include <string.h>

#include "base/file.h"
#include "engine/job.h"
#include "io/safetensors.h"
#include "tensor/convert.h"

sn_status sn_load_weights(sn_run *run, const sn_job *job, uint64_t seed) {
    int load = sn_job_role_index(job, SN_ROLE_LOAD);
    if (load >= 0) SN_TRY(sn_run_program(run, load, 0));
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        bool master = e->parent != SN_NONE && sn_job_master(job, e->parent) == p;
        void *data = sn_run_persistent(run, (sn_pid)p);
        if (data && e->source.file < 0 && (e->class_of == SN_CLASS_WEIGHTS || master)) sn_initialise(e, master ? e->parent : (sn_pid)p, seed, data);
    }
    return SN_OK;
}

static sn_status put_adapter_tensor(sn_run *run, const sn_job *job, const sn_st *st, size_t index, const char *dir) {
    const sn_st_tensor *t = &st->tensors[index];
    char wanted[96], found[96];
    sn_pid p = sn_job_find(job, t->name);
    if (p == SN_NONE || job->persistent[p].class_of != SN_CLASS_WEIGHTS)
        return sn_fail(SN_ERR_FORMAT, "%s: tensor %s matches no module of this model and recipe", dir, t->name);
    const sn_persistent *e = &job->persistent[p];
    if (!sn_shape_equal(&t->shape, &e->shape))
        return sn_fail(SN_ERR_SHAPE, "%s: tensor %s is %s, wanted %s (is --lora-rank the adapter's?)", dir, t->name, sn_shape_text(&t->shape, found),
                       sn_shape_text(&e->shape, wanted));
    int64_t n = e->shape.d[0] * e->shape.d[1];
    char *raw = sn_alloc((size_t)t->bytes);
    float *values = sn_alloc((size_t)n * sizeof *values);
    sn_status s = raw && values ? sn_st_read(st, t, 0, raw, (size_t)t->bytes) : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a tensor of %s", dir);
    if (s == SN_OK) {
        sn_to_f32(t->dtype, raw, n, values);
        s = sn_from_f32(e->rest.form, values, n, sn_run_persistent(run, p));
    }
    sn_pid master = sn_job_master(job, p);
    if (s == SN_OK && master != SN_NONE) s = sn_from_f32(SN_F32, values, n, sn_run_persistent(run, master));
    sn_free(raw);
    sn_free(values);
    return s;
}

sn_status sn_load_adapter(sn_run *run, const sn_job *job, const char *dir) {
    sn_st st;
    char *path = sn_path_join(dir, "adapter_model.safetensors");
    if (!path) return sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_status s = sn_st_open(path, &st);
    sn_free(path);
    SN_TRY(s);
    size_t wanted = 0;
    for (size_t p = 0; p < job->n_persistent; p++) wanted += job->persistent[p].class_of == SN_CLASS_WEIGHTS && strstr(job->persistent[p].name, ".lora_");
    for (size_t i = 0; s == SN_OK && i < st.tensor_count; i++) s = put_adapter_tensor(run, job, &st, i, dir);
    if (s == SN_OK && st.tensor_count != wanted)
        s = sn_fail(SN_ERR_FORMAT, "%s holds %zu tensors, this recipe's adapters have %zu (check --lora-target)", dir, st.tensor_count, wanted);
    sn_st_close(&st);
    return s;
}
