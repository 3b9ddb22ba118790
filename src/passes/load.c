/* The program "load": reads the weights from their files, once, before anything else runs.
 *
 * A weight (or its f32 master) that rests in the form of its file is read into its place; what rests in another form is
 * cast from that, or from tiles of the file, each cast into its rows:
 *
 *     read into @w                         read tile 0    read tile 1    cast tile 0 into @w[0:n]    read tile 2    ...
 *
 * A tile is read one ahead of the cast of the one before, so that two are alive at any time and reading, which is the io
 * queue's, goes on while the compute queue casts. On a device whose memory the host does not address, every tile rests in
 * the host tier, and is copied from there. A weight in flat shards is read whole, as one tile, of which each rank keeps its shard; of one
 * in shards of a dimension each rank reads its own, of rows as one tile. A job whose weights have no file has no such program. */
#include "graph/op.h"
#include "ops/cast/cast.h"
#include "ops/copy/copy.h"
#include "ops/read/read.h"
#include "passes/pass.h"

enum {
    TILE_BYTES = 7 << 18, /* two tiles, and what reading a permuted or transposed one needs besides, take less than 4 MiB */
    MOST_TILES = 2048,    /* of a whole model: the tiles of a large one are larger, so that its plan stays short */
    VECTOR_UNIT = 256     /* elements: whole blocks of every form */
};

typedef struct loader {
    sn_graph *g;
    uint32_t addresses;
    int64_t tile_bytes;
    /* The tile that was read and not yet used: rows [at, at + n) of the targets. */
    sn_vid tile, into[2];
    int64_t at, n;
} loader;

/* Whether the io queue, which is the host's, can write a value where it rests. */
static bool io_writes(const loader *l, const sn_persistent *e) {
    return e->rest.tier == SN_TIER_HOST || (e->rest.tier == SN_TIER_DEVICE && l->addresses >> SN_TIER_HOST & 1);
}

static bool is_flat(const sn_persistent *e) { return sn_is_flat(&e->rest.split.axis[SN_MESH_DP]); }

/* Rows are counted in the whole: of shards of them, or flat ones, there are no slices. */
static bool has_no_slices(const sn_persistent *e) {
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (e->rest.split.axis[a].kind == SN_SHARD && (is_flat(e) || e->rest.split.axis[a].dim == 0)) return true;
    return false;
}

static sn_status row_bytes_of(const sn_persistent *e, size_t *out) {
    bool vector = e->shape.rank == 1;
    if (e->source.transposed && (vector || sn_dtypes[e->source.form].block > 1))
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: %s blocks cannot be transposed", e->name, sn_dtype_name(e->source.form));
    if (e->shape.rank > 2) return sn_fail(SN_ERR_UNSUPPORTED, "%s: a weight of rank %d in a file", e->name, e->shape.rank);
    *out = (size_t)sn_dtypes[e->source.form].bytes;
    if (!vector && !sn_dtype_row_bytes(e->source.form, e->shape.d[1], out))
        return sn_fail(SN_ERR_SHAPE, "%s: rows of %lld elements do not fit form %s", e->name, (long long)e->shape.d[1],
                       sn_dtype_name(e->source.form));
    return SN_OK;
}

/* Reads rows [at, at + n) as they are in the file; into: a value that takes them, else the tile is returned. */
static sn_vid read_rows(loader *l, const sn_persistent *e, size_t row_bytes, int64_t at, int64_t n, sn_vid into) {
    const sn_source *s = &e->source;
    bool vector = e->shape.rank == 1;
    int64_t block = vector ? sn_dtypes[s->form].block : 1;
    sn_attrs a = {0};
    a.i[SN_READ_FILE] = s->file;
    a.i[SN_READ_OFFSET] = (int64_t)s->offset + at / block * (int64_t)(s->transposed ? (size_t)sn_dtypes[s->form].bytes : row_bytes);
    a.i[SN_READ_BYTES] = n / block * (int64_t)row_bytes;
    a.i[SN_READ_DTYPE] = s->form;
    a.i[SN_READ_COLUMNS] = vector ? 0 : e->shape.d[1];
    a.i[SN_READ_HEAD_DIM] = s->row_heads ? e->shape.d[0] / s->row_heads : 0;
    a.i[SN_READ_STRIDE] = s->transposed ? e->shape.d[0] * sn_dtypes[s->form].bytes : 0;
    for (int axis = 0; axis < SN_MESH_AXES; axis++)
        if (e->rest.split.axis[axis].kind == SN_SHARD && e->rest.split.axis[axis].at == SN_DEAL_THIRDS) a.i[SN_READ_PARTS] = 3;
    sn_use use = sn_use_of(into);
    sn_vid out[SN_MAX_OUT];
    sn_append_uses(l->g, SN_OP_read, &a, into == SN_NONE ? 0 : 1, &use, e->name, out);
    if (out[0] == SN_NONE) return SN_NONE;
    sn_value *tile = &l->g->values[out[0]];
    tile->class_of = SN_CLASS_STAGING;
    if (l->addresses >> SN_TIER_HOST & 1) return out[0];
    tile->has_rest = true;
    tile->rest.tier = SN_TIER_HOST;
    return out[0];
}

/* The same bytes or the same values of `from` in rows [at, at + n) of `to` (n 0: all of it). */
static void put(loader *l, sn_vid from, sn_vid to, int64_t at, int64_t n) {
    sn_graph *g = l->g;
    const sn_value *v = &g->values[to];
    bool same = g->values[from].dtype == v->dtype;
    sn_attrs a = {0};
    if (!same) a.i[SN_CAST_DTYPE] = v->dtype;
    sn_vid out[SN_MAX_OUT];
    bool all = n == v->shape.d[0];
    sn_append_uses(g, same ? SN_OP_copy : SN_OP_cast, &a, 2, (sn_use[]){sn_use_of(from), all ? sn_use_of(to) : sn_use_rows(to, at, n)},
                   v->name, out);
}

static void use_tile(loader *l) {
    for (int i = 0; i < 2 && l->tile != SN_NONE; i++)
        if (l->into[i] != SN_NONE) put(l, l->tile, l->into[i], l->at, l->n);
    l->tile = SN_NONE;
}

/* The rows of one tile: whole heads where rows are permuted, at least one. */
static int64_t rows_of_tile(const loader *l, const sn_persistent *e, size_t row_bytes) {
    int64_t unit = e->shape.rank == 1 ? VECTOR_UNIT : 1;
    if (e->source.row_heads) unit = e->shape.d[0] / e->source.row_heads;
    if (unit < 1) unit = 1;
    int64_t units = l->tile_bytes / (int64_t)row_bytes / unit;
    return (units ? units : 1) * unit;
}

static sn_status load_weight(loader *l, sn_pid p) {
    sn_graph *g = l->g;
    const sn_job *job = g->job;
    const sn_persistent *e = &job->persistent[p];
    sn_pid master = sn_job_master(job, p);
    if (master != SN_NONE && sn_job_turn(job, master) >= 0) master = SN_NONE; /* made from its weight when its turn comes */
    sn_pid targets[2] = {p, master};
    size_t row_bytes;
    SN_TRY(row_bytes_of(e, &row_bytes));
    g->layer = e->layer;
    sn_vid into[2] = {sn_use_persistent(g, p), master == SN_NONE ? SN_NONE : sn_use_persistent(g, master)};
    SN_TRY(g->status);
    for (int i = 0; i < 2; i++) {
        bool alone = targets[!i] == SN_NONE || io_writes(l, &job->persistent[targets[!i]]); /* else the other would be staged whole */
        if (targets[i] == SN_NONE || job->persistent[targets[i]].rest.form != e->source.form ||
            !io_writes(l, &job->persistent[targets[i]]) || is_flat(&job->persistent[targets[i]]) || !alone)
            continue;
        read_rows(l, e, row_bytes, 0, e->shape.d[0], into[i]);
        if (into[!i] != SN_NONE) put(l, into[i], into[!i], 0, 0);
        return g->status;
    }
    bool whole = has_no_slices(e) || (master != SN_NONE && has_no_slices(&job->persistent[master]));
    int64_t step = whole ? e->shape.d[0] : rows_of_tile(l, e, row_bytes), n;
    for (int64_t at = 0; at < e->shape.d[0]; at += n) {
        n = e->shape.d[0] - at < step ? e->shape.d[0] - at : step;
        sn_vid tile = read_rows(l, e, row_bytes, at, n, SN_NONE);
        SN_TRY(g->status);
        use_tile(l);
        l->tile = tile;
        l->at = at;
        l->n = n;
        l->into[0] = into[0];
        l->into[1] = into[1];
    }
    return g->status;
}

static bool has_file(const sn_persistent *e) { return e->class_of == SN_CLASS_WEIGHTS && e->source.file >= 0; }

static int64_t choose_tile(const sn_job *job) {
    uint64_t all = 0;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        size_t bytes;
        if (has_file(e) && sn_shape_bytes(&e->shape, e->source.form, &bytes)) all += bytes;
    }
    return all / MOST_TILES > TILE_BYTES ? (int64_t)(all / MOST_TILES) : TILE_BYTES;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)recipe;
    loader l = {.addresses = cluster->addresses, .tile_bytes = choose_tile(job), .tile = SN_NONE};
    for (size_t p = 0; p < job->n_persistent; p++) {
        if (!has_file(&job->persistent[p])) continue;
        if (!l.g && !(l.g = sn_job_add_graph(job, "load", SN_ROLE_LOAD))) return SN_ERR_NO_MEMORY;
        l.g->made_by = "load";
        SN_TRY(load_weight(&l, (sn_pid)p));
    }
    if (!l.g) return SN_OK;
    use_tile(&l);
    return l.g->status;
}

const sn_pass sn_pass_load = {
    .name = "load", .saves = "a program that reads the weights from their files, by tiles where forms differ", .run = run};
