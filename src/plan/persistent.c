/* Where inputs, outputs and persistent values lie in their arenas. */
#include <string.h>

#include "plan/place.h"
#include "plan/planner.h"

/* The host arena opens with the inputs of all programs, once for each slot, then the outputs. */
sn_status sn_plan_place_io(sn_plan *plan, const sn_job *job) {
    uint64_t at = 0;
    plan->input_slots = 2;
    for (int inputs = 1; inputs >= 0; inputs--) {
        for (int k = 0; k < job->n_graphs; k++) {
            const sn_graph *g = job->graphs[k];
            sn_planned *out = &plan->programs[k];
            if (!out->io) {
                size_t n = 0;
                for (size_t v = 0; v < g->n_values; v++) n += g->values[v].input || g->values[v].output;
                out->io = sn_alloc_zero(n, sizeof *out->io);
                if (!out->io) return sn_plan_no_memory();
            }
            for (size_t v = 0; v < g->n_values; v++) {
                const sn_value *x = &g->values[v];
                if (inputs ? !x->input : !x->output) continue;
                sn_shape local = sn_local_shape(&x->shape, &x->result, &job->mesh, plan->rank, NULL);
                size_t bytes;
                if (!sn_shape_bytes(&local, x->dtype, &bytes)) return sn_fail(SN_ERR_SHAPE, "%s: %s has no valid size", g->name, x->name);
                out->io[out->n_io++] =
                    (sn_io_slot){.name = x->name, .offset = at, .bytes = bytes, .shape = local, .dtype = x->dtype, .input = inputs};
                at += sn_round_up(bytes, SN_ALIGN);
            }
        }
        if (inputs) {
            plan->input_stride = at;
            at *= (uint64_t)plan->input_slots;
        }
    }
    plan->persistent_bytes[SN_TIER_HOST] = at;
    return SN_OK;
}

/* One program alone touches it, and writes it before it reads. */
static bool lives_within(const sn_job *job, sn_pid p) {
    int programs = 0;
    bool written = false;
    for (int k = 0; k < job->n_graphs; k++) {
        const sn_graph *g = job->graphs[k];
        if (p >= g->n_of_persistent || g->of_persistent[p] == SN_NONE) continue;
        written = g->values[g->of_persistent[p]].producer != SN_NONE;
        programs++;
    }
    return programs == 1 && written;
}

/* Places the values of one turn (-1: those that are always there) from at[] on, and moves at[] behind them. */
static sn_status place_turn(sn_plan *plan, const sn_job *job, int32_t turn, uint64_t at[SN_TIER_COUNT]) {
    for (size_t i = 0; i < job->n_persistent; i++) {
        const sn_persistent *e = &job->persistent[i];
        sn_placed *x = &plan->persistent[i];
        size_t bytes;
        if (x->within || x->turn != turn) continue;
        if (!sn_shape_bytes(&x->shape, e->rest.form, &bytes))
            return sn_fail(SN_ERR_SHAPE, "%s in form %s has no valid size", e->name, sn_dtype_name(e->rest.form));
        x->bytes = bytes;
        x->offset = at[x->tier];
        at[x->tier] += sn_round_up(bytes, x->tier == SN_TIER_DISK ? SN_DISK_ALIGN : SN_ALIGN);
    }
    return SN_OK;
}

sn_status sn_plan_place_persistent(sn_plan *plan, const sn_job *job) {
    plan->n_persistent = job->n_persistent;
    plan->persistent = sn_alloc_zero(job->n_persistent, sizeof *plan->persistent);
    if (!plan->persistent) return sn_plan_no_memory();
    for (size_t i = 0; i < job->n_persistent; i++) {
        const sn_persistent *e = &job->persistent[i];
        sn_placed *x = &plan->persistent[i];
        for (int a = 0; a < SN_MESH_AXES; a++)
            if (e->rest.split.axis[a].kind == SN_SHARD && e->rest.split.axis[a].at == SN_DEAL_THIRDS && !sn_is_flat(&e->rest.split.axis[a]))
                x->thirds = e->rest.split.axis[a].dim + 1;
        x->block = sn_local_block(&e->shape, &e->rest.split, &job->mesh, plan->rank, x->begin);
        x->shape = sn_local_shape(&e->shape, &e->rest.split, &job->mesh, plan->rank, &x->first);
        x->tier = e->rest.tier;
        x->turn = sn_job_turn(job, (sn_pid)i);
        sn_shape_elements(&x->shape, &x->count);
        x->within = lives_within(job, (sn_pid)i);
    }
    uint64_t at[SN_TIER_COUNT], ends[SN_TIER_COUNT];
    memcpy(at, plan->persistent_bytes, sizeof at);
    SN_TRY(place_turn(plan, job, -1, at));
    memcpy(ends, at, sizeof ends);
    for (int turn = 0; turn < job->turns.count; turn++) { /* one lot at a time lies behind what is always there */
        uint64_t end[SN_TIER_COUNT];
        memcpy(end, at, sizeof end);
        SN_TRY(place_turn(plan, job, turn, end));
        for (int t = 0; t < SN_TIER_COUNT; t++)
            if (end[t] > ends[t]) ends[t] = end[t];
    }
    memcpy(plan->persistent_bytes, ends, sizeof ends);
    for (int t = 0; plan->persistent_bytes[SN_TIER_DISK] && t < SN_TIER_DISK; t++) /* staged tiles are aligned in the part behind */
        plan->persistent_bytes[t] = sn_round_up(plan->persistent_bytes[t], SN_DISK_ALIGN);
    return SN_OK;
}
