#include "engine/session.h"

#include <malloc.h>

#include "engine/peft.h"
#include "io/safetensors.h"
#include "plan/cluster.h"

static const sn_option cluster_options[] = {
    {.key = "ranks",
     .often = true,
     .kind = SN_OPTION_INT,
     .default_text = "1",
     .metavar = "N",
     .help = "ranks of a job that is only planned, nested: stages of a pipeline, data-, context-, tensor-parallel ones",
     .has_least = true,
     .least = 1,
     .has_most = true,
     .most = 1024}, /* what the reductions take */
    {.key = "nodes",
     .often = true,
     .kind = SN_OPTION_INT,
     .default_text = "1",
     .metavar = "N",
     .help = "machines over which the ranks are spread; of a run: found out unless it is given",
     .has_least = true,
     .least = 1},
    {.key = "device_shape",
     .often = true,
     .kind = SN_OPTION_CHOICE,
     .choices = "a100-40g,a100-80g,h100-80g,h200-141g,l40s-48g,rtx4090-24g",
     .help = "device that the job is planned for: its memory is the budget, its rates give the time"}};
const sn_option_group sn_cluster_options = SN_OPTION_GROUP("Cluster", cluster_options);

sn_status sn_session_cluster(sn_session *s, const sn_options *recipe) {
    int64_t planned = sn_options_int(recipe, "ranks"), nodes = sn_options_int(recipe, "nodes");
    if (planned > 1 && s->ranks > 1)
        return sn_fail(SN_ERR_USAGE, "ranks %lld and thread_ranks %d: one of them says how many there are", (long long)planned, s->ranks);
    if (planned > 1) s->ranks = (int)planned;
    s->whole_cluster = planned > 1;
    s->nodes = (int)nodes;
    s->accelerator = sn_accelerator_find(sn_options_string(recipe, "device_shape"));
    return SN_OK;
}

sn_status sn_session_refuse_planned(const sn_options *recipe) {
    static const char *const keys[] = {"ranks", "device_shape"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (sn_options_given(recipe, keys[i])) return sn_fail(SN_ERR_USAGE, "%s is of jobs that are only planned (snug plan)", keys[i]);
    return SN_OK;
}

sn_status sn_session_machine(sn_session *s, const sn_options *recipe) {
    int64_t threads = sn_options_int(recipe, "threads"), ranks = sn_options_int(recipe, "thread_ranks");
    if (ranks < 1 || ranks > 256) return sn_fail(SN_ERR_USAGE, "thread_ranks is %lld, wanted 1 to 256", (long long)ranks);
    if (threads < 0 || threads > 1024) return sn_fail(SN_ERR_USAGE, "threads is %lld, wanted 0 to 1024", (long long)threads);
    if (!threads) threads = sn_cpu_count() / ranks > 0 ? sn_cpu_count() / ranks : 1;
    SN_TRY(sn_device_find(sn_options_string(recipe, "device"), (int)threads, &s->device));
    s->cluster.addresses = s->device.shape.addresses;
    s->cluster.mesh = sn_mesh_alone();
    s->cluster.processes = false;
    s->ranks = (int)ranks;
    return SN_OK;
}

sn_status sn_session_mesh(sn_session *s, const sn_options *recipe) {
    if (s->nodes > 0 && s->ranks % s->nodes)
        return sn_fail(SN_ERR_USAGE, "%d ranks cannot be spread evenly over %d nodes", s->ranks, s->nodes);
    s->cluster.nodes = s->nodes;
    return sn_passes_mesh(recipe, s->ranks, s->nodes, &s->cluster.mesh);
}

sn_status sn_session_join(sn_session *s, const sn_options *recipe, const sn_world *world) {
    int64_t threads = sn_options_int(recipe, "threads");
    if (!world || world->size == 1) return SN_OK;
    if (!threads) threads = sn_cpu_count() / world->sharing > 0 ? sn_cpu_count() / world->sharing : 1;
    SN_TRY(sn_device_find(sn_options_string(recipe, "device"), (int)threads, &s->device));
    s->world = world;
    s->rank = world->rank;
    s->ranks = world->size;
    if (!sn_options_given(recipe, "nodes")) s->nodes = world->nodes;
    s->cluster.processes = true;
    return SN_OK;
}

static int axes_in_shards(const sn_persistent *e) {
    int n = 0;
    for (int a = 0; a < SN_MESH_AXES; a++) n += e->rest.split.axis[a].kind == SN_SHARD;
    return n;
}

static bool in_shards(const sn_persistent *e) { return axes_in_shards(e) > 0; }

/* Whether a rank is the first of those that hold the same part of a persistent value. */
static bool is_first_holder(const sn_session *s, sn_pid p, int rank) {
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &s->job->persistent[p].rest.split.axis[a];
        if (x->kind != SN_SHARD && sn_mesh_index(&s->job->mesh, rank, a) != (x->kind == SN_AT ? x->at : 0)) return false;
    }
    return true;
}

/* Whether rank 0, which exports, has to read it from another process. */
static bool is_elsewhere(const sn_session *s, sn_pid p) {
    return s->world && (in_shards(&s->job->persistent[p]) || !is_first_holder(s, p, 0));
}

static bool is_put_together(const sn_session *s, sn_pid p) {
    const sn_persistent *e = &s->job->persistent[p];
    return in_shards(e) || e->rest.tier == SN_TIER_DISK || is_elsewhere(s, p);
}

/* Bytes of the largest value that an export has to put together. */
static uint64_t most_put_together(const sn_session *s) {
    const sn_job *job = s->job;
    uint64_t most = 0;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        bool exported = (e->class_of == SN_CLASS_WEIGHTS && (e->trainable || (s->exports && !s->world))) ||
                        (e->parent != SN_NONE && sn_job_master(job, e->parent) == p);
        size_t bytes;
        if (exported && is_put_together(s, (sn_pid)p) && sn_shape_bytes(&e->shape, e->rest.form, &bytes) && bytes > most) most = bytes;
    }
    return most;
}

bool sn_session_piece(const sn_session *s, sn_pid p, int i, sn_run **holder, size_t *bytes) {
    int r = 0, here = s->runs ? s->n_runs : 1;
    for (; r < here; r++)
        if (is_first_holder(s, p, s->rank + r) && !i--) break;
    if (r == here) return false;
    *holder = s->runs ? s->runs[r] : s->run;
    *bytes = (size_t)sn_run_placed(*holder, p)->bytes;
    return true;
}

bool sn_session_part(const sn_session *s, const sn_run *holder, sn_pid p, sn_extent *part) {
    const sn_persistent *e = &s->job->persistent[p];
    const sn_placed *at = sn_run_placed(holder, p);
    const uint64_t block = (uint64_t)sn_dtypes[e->rest.form].block, item = (uint64_t)sn_dtypes[e->rest.form].bytes;
    const int64_t element = (int64_t)((part->here + part->bytes) / item * block);
    int64_t where;
    if (element >= at->count) return false;
    const int64_t n = sn_placed_run(at, &e->shape, element, &where);
    *part = (sn_extent){(uint64_t)element / block * item, (uint64_t)where / block * item, (uint64_t)n / block * item};
    return n > 0;
}

bool sn_session_in_order(const sn_session *s, sn_pid p) {
    const sn_persistent *e = &s->job->persistent[p];
    if (axes_in_shards(e) > 1) return false;
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (e->rest.split.axis[a].kind == SN_SHARD && !sn_is_run(&e->rest.split.axis[a])) return false;
    return true;
}

sn_status sn_session_whole(const sn_session *s, sn_pid p, const void **out) {
    const sn_persistent *e = &s->job->persistent[p];
    uint64_t room;
    char *whole = sn_run_transient(s->run, &room);
    size_t bytes;
    sn_run *holder;
    *out = NULL;
    const bool together = is_put_together(s, p);
    if (!together && sn_session_piece(s, p, 0, &holder, &bytes)) *out = sn_run_persistent(holder, p);
    if (!together || !whole) return SN_OK;
    *out = whole += s->exports ? SN_STAGING_BYTES : 0;
    if (s->saved && is_elsewhere(s, p)) {
        const sn_st_tensor *t = sn_st_find(s->saved, e->name);
        return t ? sn_st_read(s->saved, t, 0, whole, (size_t)t->bytes) : sn_fail(SN_ERR_INTERNAL, "the checkpoint lacks %s", e->name);
    }
    for (int i = 0; sn_session_piece(s, p, i, &holder, &bytes); i++)
        for (sn_extent part = {0}; sn_session_part(s, holder, p, &part);)
            SN_TRY(sn_run_read(holder, p, part.here, whole + part.whole, part.bytes));
    return SN_OK;
}

bool sn_session_ranks_differ(const sn_session *s) {
    for (size_t p = 0; p < s->job->n_persistent; p++)
        for (int a = 0; a < SN_MESH_AXES; a++)
            if (s->job->persistent[p].rest.split.axis[a].kind == SN_AT) return true;
    return false;
}

sn_status sn_session_plan(sn_session *s) { return sn_session_plan_within(s, 0, NULL); }

sn_status sn_session_plan_within(sn_session *s, uint64_t most, const sn_rates *rates) {
    sn_plan_request request = {.device = s->device.shape,
                               .reserved = sn_reserved_bytes(s->model, s->exports) + (s->world ? s->world->reserved : 0),
                               .files = s->files,
                               .staging = (s->exports ? SN_STAGING_BYTES : 0) + most_put_together(s),
                               .most = most,
                               .rates = rates,
                               .rank = s->rank,
                               .reuse = true};
    SN_TRY(s->whole_cluster ? sn_plan_cluster(s->job, &request, &s->plan) : sn_plan_make(s->job, &request, &s->plan));
    if (s->most.total) return SN_OK; /* known: another rank of the same job */
    s->most = s->plan->bill;
    if (s->whole_cluster || !sn_session_ranks_differ(s)) return SN_OK;
    sn_plan *largest;
    SN_TRY(sn_plan_cluster(s->job, &request, &largest));
    s->most = largest->bill;
    for (int k = 0; k < s->plan->n_programs; k++) s->plan->programs[k].span = largest->programs[k].span;
    sn_plan_free(largest);
    return SN_OK;
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
    s->most = (sn_bill){0};
}
