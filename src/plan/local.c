/* What of a value a rank holds: shapes, where they begin, and the way back to logical coordinates. */
#include "plan/planner.h"

/* What of n elements in such units this rank holds on an axis of the mesh; *at: of those, where it begins. */
int64_t sn_share_of(int64_t n, const sn_split_axis *x, int size, int index, int64_t *at) {
    *at = 0;
    if (!sn_is_flat(x) && x->at == SN_DEAL_FOLDED) return n / size; /* no run of it; every share is full */
    const int64_t shard = sn_full_share(n, x, size);
    *at = shard * index < n ? shard * index : n;
    return n - *at < shard ? n - *at : shard;
}

/* The same of a dimension that may hold three matrices beside each other: a share of each, and where it begins in one. */
static int64_t share_of_dim(int64_t n, const sn_split_axis *x, int size, int index, int64_t *at) {
    return x->at == SN_DEAL_THIRDS ? 3 * sn_share_of(n / 3, x, size, index, at) : sn_share_of(n, x, size, index, at);
}

sn_shape sn_local_block(const sn_shape *logical, const sn_split *split, const sn_mesh *mesh, int rank, int64_t begin[SN_MAX_DIMS]) {
    sn_shape s = *logical;
    int64_t at;
    for (int d = 0; d < SN_MAX_DIMS; d++) begin[d] = 0;
    for (int i = 0; i < 2 * SN_MESH_AXES; i++) { /* what is dealt is even; runs are then of a rank's hand, and may be uneven */
        const int a = i % SN_MESH_AXES;
        const sn_split_axis *x = &split->axis[a];
        if (x->kind != SN_SHARD || x->dim >= s.rank || (x->at == SN_DEAL_FOLDED) != (i < SN_MESH_AXES)) continue;
        s.d[x->dim] = share_of_dim(s.d[x->dim], x, mesh->size[a], sn_mesh_index(mesh, rank, a), &at);
        begin[x->dim] += at;
    }
    return s;
}

sn_shape sn_local_shape(const sn_shape *logical, const sn_split *split, const sn_mesh *mesh, int rank, int64_t *first) {
    int64_t begin[SN_MAX_DIMS], at;
    sn_shape s = sn_local_block(logical, split, mesh, rank, begin);
    if (first) *first = 0;
    if (!sn_split_holds(split, mesh, rank)) return sn_shape_of(0);
    for (int a = SN_MESH_AXES - 1; a >= 0; a--) {
        const sn_split_axis *x = &split->axis[a];
        if (!sn_is_flat(x)) continue;
        int64_t n = 1;
        for (int i = 0; i < s.rank; i++) n *= s.d[i];
        s = sn_shape_of(sn_share_of(n, x, mesh->size[a], sn_mesh_index(mesh, rank, a), &at));
        if (first) *first += at;
    }
    return s;
}

int64_t sn_placed_run(const sn_placed *at, const sn_shape *logical, int64_t element, int64_t *where) {
    int64_t run = 1, row = 1, in_block = at->first + element;
    int last = 0; /* the innermost dimension that is in shards: behind it all is there */
    for (int d = 0; d < logical->rank; d++)
        if (at->block.d[d] != logical->d[d]) last = d;
    for (int d = last; d < logical->rank; d++) run *= at->block.d[d];
    for (int d = last + 1; d < logical->rank; d++) row *= logical->d[d];
    if (!run) return 0;
    int64_t outer = in_block / run, in_run = in_block % run, left = at->count - element;
    int64_t piece = at->thirds == last + 1 ? run / 3 : run, third = in_run / piece;
    in_run %= piece;
    *where = in_run + (at->begin[last] + third * (at->thirds ? logical->d[last] / 3 : 0)) * row;
    row *= logical->rank ? logical->d[last] : 1;
    for (int d = last - 1; d >= 0; d--) {
        *where += (outer % at->block.d[d] + at->begin[d]) * row;
        outer /= at->block.d[d];
        row *= logical->d[d];
    }
    return piece - in_run < left ? piece - in_run : left;
}
