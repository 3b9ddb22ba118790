#include "engine/session.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/system.h"
#include "engine/peft.h"

sn_status sn_session_machine(sn_session *s, const sn_options *recipe) {
    int64_t threads = sn_options_int(recipe, "threads"), ranks = sn_options_int(recipe, "thread_ranks");
    if (ranks < 1 || ranks > 256) return sn_fail(SN_ERR_USAGE, "thread_ranks is %lld, wanted 1 to 256", (long long)ranks);
    if (threads < 0 || threads > 1024) return sn_fail(SN_ERR_USAGE, "threads is %lld, wanted 0 to 1024", (long long)threads);
    if (!threads) threads = sn_cpu_count() / ranks > 0 ? sn_cpu_count() / ranks : 1;
    SN_TRY(sn_device_find(sn_options_string(recipe, "device"), (int)threads, &s->device));
    s->cluster.addresses = s->device.shape.addresses;
    for (int a = 0; a < SN_MESH_AXES; a++) s->cluster.mesh.size[a] = 1;
    s->cluster.mesh.size[SN_MESH_DP] = (int)ranks;
    return SN_OK;
}

static bool in_shards(const sn_persistent *e) { return sn_is_flat(&e->rest.split.axis[SN_MESH_DP]); }

static bool is_put_together(const sn_persistent *e) { return in_shards(e) || e->rest.tier == SN_TIER_DISK; }

/* Bytes of the largest value that an export has to put together. */
static uint64_t most_put_together(const sn_job *job) {
    uint64_t most = 0;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        bool exported = e->class_of == SN_CLASS_WEIGHTS || (e->parent != SN_NONE && sn_job_master(job, e->parent) == p);
        size_t bytes;
        if (exported && is_put_together(e) && sn_shape_bytes(&e->shape, e->rest.form, &bytes) && bytes > most) most = bytes;
    }
    return most;
}

bool sn_session_piece(const sn_session *s, sn_pid p, int i, int64_t *first, sn_run **holder, size_t *bytes) {
    int pieces = in_shards(&s->job->persistent[p]) && s->runs ? s->n_runs : 1;
    if (i >= pieces) return false;
    *holder = s->runs ? s->runs[i] : s->run;
    const sn_placed *at = sn_run_placed(*holder, p);
    *first = at->first;
    *bytes = (size_t)at->bytes;
    return true;
}

const void *sn_session_whole(const sn_session *s, sn_pid p) {
    if (!is_put_together(&s->job->persistent[p])) return sn_run_persistent(s->run, p);
    uint64_t room;
    char *whole = sn_run_transient(s->run, &room), *to;
    int64_t first;
    size_t bytes;
    sn_run *holder;
    if (!whole) return NULL;
    to = whole += s->exports ? SN_STAGING_BYTES : 0;
    for (int i = 0; sn_session_piece(s, p, i, &first, &holder, &bytes); i++, to += bytes)
        if (sn_run_read(holder, p, 0, to, bytes) != SN_OK) return NULL;
    return whole;
}

sn_status sn_session_plan(sn_session *s) {
    sn_plan_request request = {.device = s->device.shape, .reserved = sn_reserved_bytes(s->model, s->exports), .files = s->files, .staging = (s->exports ? SN_STAGING_BYTES : 0) + most_put_together(s->job), .rank = s->rank, .reuse = true};
    return sn_plan_make(s->job, &request, &s->plan);
}

uint64_t sn_budget_bytes(const sn_options *recipe, int ranks) {
    if (!sn_options_given(recipe, "memory")) return sn_memory_free() / (uint64_t)ranks;
    sn_budget b = sn_options_budget(recipe, "memory");
    return b.bare != UINT64_MAX ? b.bare : b.device != UINT64_MAX ? b.device : b.host;
}

sn_status sn_session_check_budget(const sn_session *s, const sn_options *recipe) {
    const sn_bill *b = &s->plan->bill;
    uint64_t budget = sn_budget_bytes(recipe, s->cluster.mesh.size[SN_MESH_DP]);
    char need[24], have[24], missing[24], largest[24];
    if (b->total <= budget || !strcmp(s->device.shape.name, "null")) return SN_OK;
    return sn_fail(SN_ERR_BUDGET, "the plan needs %s (%llu bytes), the budget is %s: %s (%llu bytes) missing; the peak is in %s at %s, the largest value there is %s (%s)",
                   sn_bytes_text(b->total, need), (unsigned long long)b->total, sn_bytes_text(budget, have), sn_bytes_text(b->total - budget, missing),
                   (unsigned long long)(b->total - budget), b->peak_program, b->peak_op, b->largest[0].name, sn_bytes_text(b->largest[0].bytes, largest));
}

sn_status sn_session_open(sn_session *s, const sn_options *recipe, const char *adapter, sn_comm *comm) {
    malloc_trim(0); /* what planning needed for a while goes back before the arenas come */
    SN_TRY(sn_run_open(s->plan, &s->device, comm, &s->run));
    if (!s->device.map) return SN_OK;
    SN_TRY(sn_load_weights(s->run, s->job, (uint64_t)sn_options_int(recipe, "seed")));
    return adapter && *adapter ? sn_adapter_load(s->run, s->job, adapter) : SN_OK;
}

void sn_session_close(sn_session *s) {
    sn_run_close(s->run);
    sn_plan_free(s->plan);
    sn_job_free(s->job);
    s->run = NULL;
    s->plan = NULL;
    s->job = NULL;
}
