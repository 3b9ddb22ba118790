#include "plan/cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static sn_status no_memory(void) { return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the ranks of a cluster"); }

/* ---- Classes ---- */

/* starts[a][i]: on mesh axis a some value's shard at index i has another size than at i - 1. */
typedef struct bounds {
    const sn_mesh *mesh;
    bool *starts[SN_MESH_AXES];
} bounds;

static void note_flat(bounds *b, const sn_shape *shape, const sn_split *split) {
    int flat = 0;
    for (int a = 0; a < SN_MESH_AXES; a++) flat += sn_is_flat(&split->axis[a]) && b->mesh->size[a] > 1;
    for (int a = 0; flat && a < SN_MESH_AXES; a++) {
        int size = b->mesh->size[a];
        if (!sn_is_flat(&split->axis[a]) || size <= 1) continue;
        if (flat > 1) { /* shards of shards: no two alike */
            memset(b->starts[a], true, (size_t)size);
            continue;
        }
        int64_t n = 1, unit = split->axis[a].unit > 0 ? split->axis[a].unit : 1;
        for (int i = 0; i < shape->rank; i++) n *= shape->d[i];
        int64_t units = (n + unit - 1) / unit, shard = (units + size - 1) / size * unit;
        int64_t full = shard > 0 ? n / shard : 0, empty = full + (shard > 0 && n % shard != 0);
        if (full < size) b->starts[a][full] = true;
        if (empty < size) b->starts[a][empty] = true;
    }
}

static void note_graph(bounds *b, const sn_graph *g) {
    for (size_t v = 0; v < g->n_values; v++) note_flat(b, &g->values[v].shape, &g->values[v].result);
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value != SN_NONE && n->in[i].has_split) note_flat(b, &g->values[n->in[i].value].shape, &n->in[i].split);
    }
}

/* The lowest rank of each combination of intervals. */
static sn_status lowest_ranks(const bounds *b, int ranks, int **first, size_t *n) {
    int64_t *keys = sn_alloc((size_t)ranks * sizeof *keys);
    *first = sn_alloc((size_t)ranks * sizeof **first);
    if (!keys || !*first) {
        sn_free(keys);
        return no_memory();
    }
    for (int r = 0; r < ranks; r++) {
        int64_t key = 0;
        for (int a = 0; a < SN_MESH_AXES; a++) {
            int64_t interval = 0;
            for (int i = 1; i <= sn_mesh_index(b->mesh, r, a); i++) interval += b->starts[a][i];
            key = key * b->mesh->size[a] + interval;
        }
        size_t k = 0;
        while (k < *n && keys[k] != key) k++;
        if (k < *n) continue;
        keys[*n] = key;
        (*first)[(*n)++] = r;
    }
    sn_free(keys);
    return SN_OK;
}

sn_status sn_plan_rank_classes(const sn_job *job, int **first, size_t *n) {
    bounds b = {.mesh = &job->mesh};
    sn_status s = SN_OK;
    int ranks = 1;
    *first = NULL;
    *n = 0;
    for (int a = 0; s == SN_OK && a < SN_MESH_AXES; a++) {
        ranks *= job->mesh.size[a];
        b.starts[a] = sn_alloc_zero((size_t)job->mesh.size[a], sizeof *b.starts[a]);
        if (!b.starts[a]) s = no_memory();
    }
    if (s == SN_OK) {
        for (size_t p = 0; p < job->n_persistent; p++) note_flat(&b, &job->persistent[p].shape, &job->persistent[p].rest.split);
        for (int k = 0; k < job->n_graphs; k++) note_graph(&b, job->graphs[k]);
        s = lowest_ranks(&b, ranks, first, n);
    }
    for (int a = 0; a < SN_MESH_AXES; a++) sn_free(b.starts[a]);
    if (s != SN_OK) {
        sn_free(*first);
        *first = NULL;
        *n = 0;
    }
    return s;
}

/* ---- Collectives ---- */

/* The side of a collective that every rank has alike; on the other one ranks hold as much as there is for them. */
static const sn_arg *whole_side(const sn_instr *in) {
    if (!strcmp(in->op, "reduce_scatter")) return &in->in[0];
    return in->n_in > 1 ? &in->in[1] : &in->out[0];
}

static bool same_argument(const sn_arg *a, const sn_arg *b) {
    return a->arena == b->arena && a->dtype == b->dtype && (a->arena == SN_NO_ARENA || sn_shape_equal(&a->shape, &b->shape));
}

/* Attributes of a collective are integers. */
static bool same_collective(const sn_instr *a, const sn_instr *b) {
    return !strcmp(a->op, b->op) && a->n_in == b->n_in && a->n_out == b->n_out && !memcmp(a->attrs.i, b->attrs.i, sizeof a->attrs.i) &&
           same_argument(whole_side(a), whole_side(b));
}

static const sn_instr *next_collective(const sn_program *p, uint32_t *k) {
    while (*k < p->count && p->instrs[*k].queue != SN_QUEUE_COMM) ++*k;
    return *k < p->count ? &p->instrs[(*k)++] : NULL;
}

static const char *text_of(const sn_instr *in, char text[256]) {
    char shape[96];
    if (!in) return "none";
    const sn_arg *a = whole_side(in);
    size_t bytes = 0;
    sn_shape_bytes(&a->shape, a->dtype, &bytes);
    snprintf(text, 256, "%s of %s, %s %s (%zu bytes)", in->op, in->name ? in->name : "?", sn_dtype_name(a->dtype),
             sn_shape_text(&a->shape, shape), bytes);
    return text;
}

static sn_status compare_programs(const sn_plan *a, const sn_plan *b, const sn_program *p, const sn_program *q) {
    uint32_t i = 0, j = 0;
    for (int number = 0;; number++) {
        const sn_instr *x = next_collective(p, &i), *y = next_collective(q, &j);
        char one[256], other[256];
        if (!x && !y) return SN_OK;
        if (x && y && same_collective(x, y)) continue;
        return sn_fail(
            SN_ERR_PLAN,
            "ranks %d and %d would wait for each other for ever in program %s: its collective %d is %s on rank %d and %s on rank %d",
            a->rank, b->rank, p->name, number, text_of(x, one), a->rank, text_of(y, other), b->rank);
    }
}

sn_status sn_plan_compare_collectives(const sn_plan *a, const sn_plan *b) {
    if (a->n_programs != b->n_programs)
        return sn_fail(SN_ERR_PLAN, "rank %d has %d programs, rank %d has %d", a->rank, a->n_programs, b->rank, b->n_programs);
    for (int k = 0; k < a->n_programs; k++) SN_TRY(compare_programs(a, b, &a->programs[k].program, &b->programs[k].program));
    return SN_OK;
}

/* ---- All of them ---- */

sn_status sn_plan_cluster(const sn_job *job, const sn_plan_request *request, sn_plan **out) {
    sn_plan_request one = *request;
    sn_plan *zero = NULL, *most = NULL;
    int *first, ranks = 1;
    size_t n;
    *out = NULL;
    for (int a = 0; a < SN_MESH_AXES; a++) ranks *= job->mesh.size[a];
    SN_TRY(sn_plan_rank_classes(job, &first, &n));
    sn_status s = SN_OK;
    for (size_t k = 0; s == SN_OK && k < n; k++) {
        sn_plan *plan = NULL;
        one.rank = first[k];
        s = sn_plan_make(job, &one, &plan);
        if (s != SN_OK) {
            s = sn_fail_in(s, "rank %d", first[k]);
            break;
        }
        if (!zero) {
            zero = most = plan;
            continue;
        }
        s = sn_plan_compare_collectives(zero, plan);
        if (plan->bill.total > most->bill.total) {
            if (most != zero) sn_plan_free(most);
            most = plan;
        } else {
            sn_plan_free(plan);
        }
    }
    sn_free(first);
    if (most != zero || s != SN_OK) sn_plan_free(zero);
    if (s != SN_OK) {
        if (most != zero) sn_plan_free(most);
        return s;
    }
    most->ranks = ranks;
    most->ranks_planned = (int)n;
    *out = most;
    return SN_OK;
}
