#include "plan/cluster.h"

#include <string.h>

#include "base/mem.h"
#include "plan/courses.h"
#include "plan/planner.h"

static sn_status no_memory(void) { return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the ranks of a cluster"); }

/* ---- Classes ---- */

/* starts[a][i]: on mesh axis a some value's shard at index i has another size than at i - 1. */
typedef struct bounds {
    const sn_mesh *mesh;
    bool *starts[SN_MESH_AXES];
} bounds;

/* Ranks at which a value is, or is not, have no like. */
static void note_places(bounds *b, const sn_split *split) {
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (split->axis[a].kind == SN_AT) memset(b->starts[a], true, (size_t)b->mesh->size[a]);
}

/* Where along axis a shares of n elements in such units become smaller, or nothing. */
static void note_shares(bounds *b, int a, int64_t n, const sn_split_axis *x) {
    int64_t at, before = sn_share_of(n, x, b->mesh->size[a], 0, &at);
    for (int i = 1; i < b->mesh->size[a]; i++) {
        const int64_t share = sn_share_of(n, x, b->mesh->size[a], i, &at);
        b->starts[a][i] |= share != before;
        before = share;
    }
}

/* The same of flat shares of n elements on axis a and those around it: the last full share may be smaller, and is shared out further. */
static void note_flat(bounds *b, int a, int64_t n, const sn_split *split) {
    while (a >= 0 && (!sn_is_flat(&split->axis[a]) || b->mesh->size[a] <= 1)) a--;
    if (a < 0) return;
    int64_t at, full = sn_share_of(n, &split->axis[a], b->mesh->size[a], 0, &at);
    note_shares(b, a, n, &split->axis[a]);
    note_flat(b, a - 1, full, split);
    if (full && n % full) note_flat(b, a - 1, n % full, split);
}

/* What is shared out of a dimension: it, or one of three matrices beside each other. */
static int64_t extent_of(const sn_shape *shape, const sn_split_axis *x) { return shape->d[x->dim] / (x->at == SN_DEAL_THIRDS ? 3 : 1); }

/* And of flat shares of what a rank holds of a dimension that is shared out over another axis. */
static void note_flat_of_cut(bounds *b, int64_t n, const sn_shape *shape, int cut, const sn_split *split) {
    const sn_split_axis *by = &split->axis[cut];
    const int64_t extent = extent_of(shape, by), row = extent ? n / extent : 0;
    int64_t at, full = sn_share_of(extent, by, b->mesh->size[cut], 0, &at);
    note_flat(b, SN_MESH_AXES - 1, full * row, split);
    if (full && extent % full) note_flat(b, SN_MESH_AXES - 1, extent % full * row, split);
}

/* All shares of a dimension are the same, whatever lies between. */
static bool is_even(const bounds *b, const sn_shape *shape, const sn_split_axis *x) {
    return extent_of(shape, x) % (sn_unit_of(x) * sn_mesh_ranks(b->mesh)) == 0;
}

static void note_all(bounds *b, int a) { memset(b->starts[a], true, (size_t)b->mesh->size[a]); }

static void note_split(bounds *b, const sn_shape *shape, const sn_split *split) {
    int flat = 0, uneven = 0, on[SN_MAX_DIMS] = {0}, cut = -1;
    int64_t n = 0;
    note_places(b, split);
    sn_shape_elements(shape, &n);
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &split->axis[a];
        if (x->kind != SN_SHARD || b->mesh->size[a] <= 1) continue;
        flat += sn_is_flat(x);
        if (x->dim >= shape->rank) continue;
        on[x->dim]++;
        if (is_even(b, shape, x)) {
            n /= b->mesh->size[a];
        } else {
            uneven++;
            cut = a;
        }
    }
    const bool lost = uneven > 1 || (uneven && on[split->axis[cut].dim] > 1); /* shards of shards: no two alike */
    if (flat && !lost && uneven) note_flat_of_cut(b, n, shape, cut, split);
    else if (flat && !lost) note_flat(b, SN_MESH_AXES - 1, n, split);
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &split->axis[a];
        if (x->kind != SN_SHARD || b->mesh->size[a] <= 1) continue;
        if (sn_is_flat(x) && lost) note_all(b, a);
        if (x->dim >= shape->rank || is_even(b, shape, x)) continue;
        if (on[x->dim] > 1) note_all(b, a);
        else note_shares(b, a, extent_of(shape, x), x);
    }
}

static void note_graph(bounds *b, const sn_graph *g) {
    for (size_t v = 0; v < g->n_values; v++) note_split(b, &g->values[v].shape, &g->values[v].result);
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value != SN_NONE && n->in[i].has_split) note_split(b, &g->values[n->in[i].value].shape, &n->in[i].split);
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
    *first = NULL;
    *n = 0;
    for (int a = 0; s == SN_OK && a < SN_MESH_AXES; a++) {
        b.starts[a] = sn_alloc_zero((size_t)job->mesh.size[a], sizeof *b.starts[a]);
        if (!b.starts[a]) s = no_memory();
    }
    if (s == SN_OK) {
        for (size_t p = 0; p < job->n_persistent; p++) note_split(&b, &job->persistent[p].shape, &job->persistent[p].rest.split);
        for (int k = 0; k < job->n_graphs; k++) note_graph(&b, job->graphs[k]);
        s = lowest_ranks(&b, sn_mesh_ranks(&job->mesh), first, n);
    }
    for (int a = 0; a < SN_MESH_AXES; a++) sn_free(b.starts[a]);
    if (s != SN_OK) {
        sn_free(*first);
        *first = NULL;
        *n = 0;
    }
    return s;
}

/* ---- All of them ---- */

/* Plans rank `rank`, keeps its course, and keeps the plan in *most if none before it is larger. */
static sn_status plan_rank(const sn_job *job, const sn_plan_request *request, int rank, sn_course *course, sn_plan **most) {
    sn_plan_request one = *request;
    sn_plan *plan = NULL;
    one.rank = rank;
    sn_status s = sn_plan_make(job, &one, &plan);
    if (s != SN_OK) return sn_fail_in(s, "rank %d", rank);
    s = sn_course_of(plan, request->rates, course);
    if (*most && (*most)->bill.total >= plan->bill.total) {
        sn_plan_free(plan);
    } else {
        sn_plan_free(*most);
        *most = plan;
    }
    return s;
}

sn_status sn_plan_cluster(const sn_job *job, const sn_plan_request *request, sn_plan **out) {
    sn_plan *most = NULL;
    int *first;
    size_t n;
    *out = NULL;
    SN_TRY(sn_plan_rank_classes(job, &first, &n));
    sn_course *courses = sn_alloc_zero(n, sizeof *courses);
    sn_status s = courses ? SN_OK : no_memory();
    for (size_t k = 0; s == SN_OK && k < n; k++) s = plan_rank(job, request, first[k], &courses[k], &most);
    if (s == SN_OK) s = sn_courses_follow(&job->mesh, courses, n);
    for (int k = 0; s == SN_OK && request->rates && k < most->n_programs; k++) most->programs[k].span = sn_courses_span(courses, n, k);
    for (size_t k = 0; courses && k < n; k++) sn_course_free(&courses[k]);
    sn_free(courses);
    sn_free(first);
    if (s != SN_OK) {
        sn_plan_free(most);
        return s;
    }
    most->ranks = sn_mesh_ranks(&job->mesh);
    most->ranks_planned = (int)n;
    *out = most;
    return SN_OK;
}
