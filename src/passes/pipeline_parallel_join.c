/* One program of all micro-batches of a step: the parts of each chunk, forward and backward, in the order of the schedule, then the
 * update. Gradients are added up in the order of micro-batches, as one program after another does it. */
#include <stdio.h>

#include "passes/pipeline_parallel.h"

int sn_pipeline_chunk(const sn_pipeline *p, int32_t layer) { return (int)((((int64_t)layer + 1) * sn_pipeline_chunks(p) - 1) / p->layers); }

/* Where the parts of a micro-batch begin in its order: forward by rising chunk, then backward by falling chunk. What is in no block belongs
 * to the part before it. starts: 2 * chunks + 1 of them. */
static sn_status find_parts(const sn_graph *g, const sn_pipeline *p, size_t *starts) {
    int chunks = sn_pipeline_chunks(p), at = 0;
    starts[0] = 0;
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        int part = n->phase == SN_PHASE_FORWARD ? 0 : chunks;
        if (n->layer >= 0)
            part = n->phase == SN_PHASE_FORWARD ? sn_pipeline_chunk(p, n->layer) : 2 * chunks - 1 - sn_pipeline_chunk(p, n->layer);
        if (n->layer >= 0 && part < at)
            return sn_fail(SN_ERR_PLAN,
                           "%s of block %d belongs to stage %d of the pipeline, but stage %d needs it made again: what is recomputed "
                           "together has to lie on one stage",
                           n->name, n->layer, sn_pipeline_chunk(p, n->layer) % p->stages,
                           (at < chunks ? at : 2 * chunks - 1 - at) % p->stages);
        for (; at < part; at++) starts[at + 1] = k;
    }
    for (; at < 2 * chunks; at++) starts[at + 1] = g->n_order;
    return SN_OK;
}

/* `first` and `next`: where the parts of the first and of the later micro-batches begin; the latter in the order that the graph has now. */
static sn_status put_in_order(sn_graph *g, const sn_pipeline *p, const size_t *first, const size_t *next) {
    int chunks = sn_pipeline_chunks(p);
    size_t n_units = 2 * (size_t)p->micro_batches * (size_t)chunks, n = 0;
    sn_pipeline_unit *units = sn_alloc(n_units * sizeof *units);
    sn_nid *order = sn_alloc(g->n_order * sizeof *order);
    sn_status s = units && order ? sn_pipeline_schedule(p, units) : sn_fail(SN_ERR_NO_MEMORY, "cannot order %s", g->name);
    for (size_t k = 0; s == SN_OK && k < n_units; k++) {
        int part = units[k].backward ? 2 * chunks - 1 - units[k].chunk : units[k].chunk;
        const size_t *starts = units[k].micro ? next : first;
        size_t base = units[k].micro ? first[2 * chunks] + (size_t)(units[k].micro - 1) * next[2 * chunks] : 0;
        for (size_t i = starts[part]; i < starts[part + 1]; i++) order[n++] = g->order[base + i];
    }
    for (size_t i = n; s == SN_OK && i < g->n_order; i++) order[n++] = g->order[i]; /* the update */
    sn_free(units);
    if (s == SN_OK) {
        sn_free(g->order);
        g->order = order;
        g->cap_order = g->n_order;
    } else {
        sn_free(order);
    }
    return s;
}

static sn_status stamp(sn_graph *g, const sn_graph *next, const sn_graph *update, const sn_pipeline *p, size_t *starts) {
    size_t *later = starts + 2 * sn_pipeline_chunks(p) + 1;
    SN_TRY(find_parts(g, p, starts));
    SN_TRY(find_parts(next, p, later));
    for (int64_t m = 1; m < p->micro_batches; m++) {
        char suffix[24];
        snprintf(suffix, sizeof suffix, "%lld", (long long)m);
        SN_TRY(sn_graph_stamp(g, next, suffix));
    }
    SN_TRY(sn_graph_stamp(g, update, NULL));
    return put_in_order(g, p, starts, later);
}

sn_status sn_pipeline_join(sn_job *job, const sn_pipeline *p) {
    int train = sn_job_role_index(job, SN_ROLE_TRAIN), next = sn_job_role_index(job, SN_ROLE_TRAIN_NEXT),
        update = sn_job_role_index(job, SN_ROLE_UPDATE);
    if (train < 0 || next < 0 || update < 0) return SN_OK;
    sn_graph *g = job->graphs[train], *later = job->graphs[next], *last = job->graphs[update];
    size_t *starts = sn_alloc(2 * (2 * (size_t)sn_pipeline_chunks(p) + 1) * sizeof *starts);
    if (!starts) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the parts of a pipeline");
    sn_status s = stamp(g, later, last, p, starts);
    sn_free(starts);
    SN_TRY(s);
    g->name = "step";
    g->micro_batches = (int)p->micro_batches;
    sn_job_remove_graph(job, later);
    sn_job_remove_graph(job, last);
    return SN_OK;
}
