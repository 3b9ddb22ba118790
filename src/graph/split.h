/* How a value is spread over the ranks of a mesh. */
#ifndef SN_GRAPH_SPLIT_H
#define SN_GRAPH_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

/* Mesh axes in nesting order, the outermost first: ranks that differ along the innermost alone are neighbours, and share a node. The more
 * often ranks talk along an axis, and the more they say, the further in it lies (Narayanan et al. 2021, arXiv 2104.04473). Rows of a batch
 * are spread over two: what data-parallel ranks share out between them, they share out along SN_MESH_DP; along SN_MESH_REPLICA each holds
 * what the others do. */
typedef enum sn_mesh_axis { SN_MESH_PP, SN_MESH_REPLICA, SN_MESH_DP, SN_MESH_CP, SN_MESH_TP, SN_MESH_EP, SN_MESH_AXES } sn_mesh_axis;

typedef struct sn_mesh {
    int size[SN_MESH_AXES]; /* 1 where unused */
} sn_mesh;

/* whole: every rank holds all of it. shard: each rank holds a run of units of one axis. partial: each rank holds a
 * summand. at: only the rank with this index holds it, or the two with these. */
typedef enum sn_split_kind { SN_WHOLE, SN_SHARD, SN_PARTIAL, SN_AT } sn_split_kind;

/* Shard of the flattened tensor, not of one dimension: of what a rank has of its dimensions. Over several axes the innermost is dealt
 * first. */
enum { SN_SPLIT_FLAT = 0xff };

typedef struct sn_split_axis {
    uint8_t kind; /* sn_split_kind */
    uint8_t dim;  /* of a shard: dimension, or SN_SPLIT_FLAT */
    uint16_t at;  /* of SN_AT: index, the lower one of two; of a shard of a dimension: sn_deal */
    union {
        int32_t unit; /* of a shard: elements that stay together */
        int32_t also; /* of SN_AT: the other index, or `at` again */
    };
} sn_split_axis;

static inline sn_split_axis sn_at(int index) { return (sn_split_axis){.kind = SN_AT, .at = (uint16_t)index, .also = index}; }

/* Whether the rank with this index on the axis has anything of what is spread so: all but SN_AT leave it something, perhaps nothing. */
static inline bool sn_axis_holds(const sn_split_axis *x, int index) { return x->kind != SN_AT || x->at == index || x->also == index; }
/* Whether all ranks at `inner` are at `outer` too. Of two SN_AT, or of an outer one that is everywhere. */
static inline bool sn_axis_within(const sn_split_axis *inner, const sn_split_axis *outer) {
    return sn_axis_holds(outer, inner->at) && sn_axis_holds(outer, inner->also);
}

/* Which units of a dimension a rank of n holds. Folded: units are dealt to ranks 0 .. n - 1 and back, two a rank and turn, so that of
 * work that grows along the dimension all get the same (Llama 3's zigzag order: Dubey et al. 2024, arXiv 2407.21783). Thirds: three
 * matrices lie beside each other, of each of which a rank holds a run of units, as of the others. */
typedef enum sn_deal { SN_DEAL_RUN, SN_DEAL_FOLDED, SN_DEAL_THIRDS } sn_deal;

typedef struct sn_split {
    sn_split_axis axis[SN_MESH_AXES];
} sn_split;

/* The same with 1 for each size that is not given. */
static inline sn_mesh sn_mesh_of(sn_mesh given) {
    for (int a = 0; a < SN_MESH_AXES; a++) given.size[a] = given.size[a] ? given.size[a] : 1;
    return given;
}

static inline sn_mesh sn_mesh_alone(void) { return sn_mesh_of((sn_mesh){.size = {0}}); }

/* Where a rank stands on one axis of the mesh, the axes nested with the first outermost. */
static inline int sn_mesh_index(const sn_mesh *m, int rank, int axis) {
    for (int a = SN_MESH_AXES - 1; a > axis; a--) rank /= m->size[a];
    return rank % m->size[axis];
}

static inline int sn_mesh_ranks(const sn_mesh *m) {
    int n = 1;
    for (int a = 0; a < SN_MESH_AXES; a++) n *= m->size[a];
    return n;
}

/* How many ranks have rows of the batch of their own, and which of those a rank is. */
static inline int sn_mesh_data_ranks(const sn_mesh *m) { return m->size[SN_MESH_REPLICA] * m->size[SN_MESH_DP]; }
static inline int sn_mesh_data_index(const sn_mesh *m, int rank) {
    return sn_mesh_index(m, rank, SN_MESH_REPLICA) * m->size[SN_MESH_DP] + sn_mesh_index(m, rank, SN_MESH_DP);
}

/* Of ranks spread over so many nodes, as many on each and in order: over how many of them those lie that share their place on the axes
 * around the data-parallel ones. 1 too where several such lots lie on one node; 0: some node has parts of two, or nobody knows the nodes.
 */
static inline int sn_mesh_data_nodes(const sn_mesh *m, int nodes) {
    int lots = 1;
    for (int a = 0; a < SN_MESH_REPLICA; a++) lots *= m->size[a];
    if (nodes < 1) return 0;
    return nodes % lots == 0 ? nodes / lots : lots % nodes == 0 ? 1 : 0;
}

/* Ranks from one to the next along an axis. */
static inline int sn_mesh_stride(const sn_mesh *m, int axis) {
    int stride = 1;
    for (int a = axis + 1; a < SN_MESH_AXES; a++) stride *= m->size[a];
    return stride;
}

/* The rank that stands where `rank` does but for `axis`, where it stands at `index`. */
static inline int sn_mesh_neighbour(const sn_mesh *m, int rank, int axis, int index) {
    return rank + (index - sn_mesh_index(m, rank, axis)) * sn_mesh_stride(m, axis);
}

/* Whether a rank holds something of what is spread so. */
static inline bool sn_split_holds(const sn_split *s, const sn_mesh *m, int rank) {
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (!sn_axis_holds(&s->axis[a], sn_mesh_index(m, rank, a))) return false;
    return true;
}

static inline bool sn_is_flat(const sn_split_axis *x) { return x->kind == SN_SHARD && x->dim == SN_SPLIT_FLAT; }

/* Elements, or rows, that stay together in a shard. */
static inline int64_t sn_unit_of(const sn_split_axis *x) { return x->unit > 0 ? x->unit : 1; }

/* Of n elements in such units, what each of so many ranks holds: ceil(units / ranks) of them; the last ones hold fewer. */
static inline int64_t sn_full_share(int64_t n, const sn_split_axis *x, int ranks) {
    const int64_t unit = sn_unit_of(x), units = (n + unit - 1) / unit;
    return (units + ranks - 1) / ranks * unit;
}

/* Whether a rank's shard is a run of the bytes of the whole: a flat one, or one of rows. */
static inline bool sn_is_run(const sn_split_axis *x) {
    return sn_is_flat(x) || (x->kind == SN_SHARD && x->dim == 0 && x->at == SN_DEAL_RUN);
}

static inline bool sn_axis_equal(const sn_split_axis *a, const sn_split_axis *b) {
    if (a->kind != b->kind) return false;
    if (a->kind == SN_SHARD) return a->dim == b->dim && a->unit == b->unit && a->at == b->at;
    return a->kind != SN_AT || (a->at == b->at && a->also == b->also);
}

const char *sn_split_kind_name(sn_split_kind kind); /* "shard" */

/* What this rank holds at place `local` of its share of a dimension of so many elements: its logical place. Every share is full. */
int64_t sn_split_place(const sn_split *s, const sn_mesh *m, int rank, int dim, int64_t extent, int64_t local);

static inline bool sn_split_is_whole(const sn_split *s) {
    for (int i = 0; i < SN_MESH_AXES; i++)
        if (s->axis[i].kind != SN_WHOLE) return false;
    return true;
}

#endif
