/* Between tiers: what rests where the device cannot address it is brought before a use and sent back after a change. An op
 * that works element by element on large states is stamped in tiles:
 *
 *     bring tile 0    bring tile 1    work on tile 0    send tile 0    bring tile 2    work on tile 1    send tile 1    ...
 *
 * so that two tiles are alive at any time, and moving, on queues of its own, goes on while the compute queue works. A tile is
 * brought ahead over the end of a parameter, too. What is in shards is moved whole. */
#include "graph/op.h"
#include "ops/copy/copy.h"
#include "passes/move.h"

enum {
    TILE_BYTES = 2 << 20, /* of one state */
    MOST_TILES = 2048,    /* of a graph: the tiles of a large model are larger, so that its plan stays short */
    ALIGNED = SN_DISK_ALIGN
};

static bool addresses_host(const mover *m) { return m->cluster->addresses >> SN_TIER_HOST & 1; }

bool sn_rests_away(const mover *m, sn_vid v) {
    const sn_value *x = &m->g->values[v];
    return !(m->cluster->addresses >> x->rest.tier & 1) && (x->producer == SN_NONE || x->has_rest || x->persistent != SN_NONE);
}

static sn_vid copy_to(mover *m, sn_use from, sn_tier tier) {
    sn_attrs a = {0};
    a.i[SN_COPY_TIER] = tier;
    sn_vid v = sn_moved(m->g, SN_OP_copy, &a, from, SN_CLASS_STAGING);
    if (v == SN_NONE || tier == SN_TIER_DEVICE) return v;
    m->g->values[v].has_rest = true;
    m->g->values[v].rest.tier = tier;
    return v;
}

sn_vid sn_bring(mover *m, sn_use from) {
    from.has_split = false;
    if (m->g->values[from.value].rest.tier != SN_TIER_DISK) return copy_to(m, from, SN_TIER_DEVICE);
    sn_vid v = sn_moved(m->g, SN_OP_fetch, NULL, from, SN_CLASS_STAGING);
    if (v == SN_NONE || addresses_host(m)) return v;
    m->g->values[v].has_rest = true;
    m->g->values[v].rest.tier = SN_TIER_HOST;
    return copy_to(m, sn_use_of(v), SN_TIER_DEVICE);
}

void sn_send(mover *m, sn_use from, sn_use into) {
    sn_vid out[SN_MAX_OUT];
    sn_attrs a = {0};
    const char *name = m->g->values[into.value].name;
    into.has_split = false;
    into.form = SN_DTYPE_COUNT;
    for (int i = 0; i < SN_MOVE_RECENT; i++) /* what was brought of it is old now */
        if (m->recent[i].from == into.value) m->recent[i].from = SN_NONE;
    if (m->g->values[into.value].rest.tier != SN_TIER_DISK) {
        a.i[SN_COPY_TIER] = SN_TIER_HOST;
        sn_append_uses(m->g, SN_OP_copy, &a, 2, (sn_use[]){from, into}, name, out);
        return;
    }
    const sn_value *v = &m->g->values[from.value];
    bool in_host = v->has_rest && v->rest.tier == SN_TIER_HOST;
    if (!addresses_host(m) && !in_host) from = sn_use_of(copy_to(m, from, SN_TIER_HOST));
    if (from.value != SN_NONE) sn_append_uses(m->g, SN_OP_store, NULL, 2, (sn_use[]){from, into}, name, out);
}

static bool undivided(const sn_split_axis *x) { return x->kind == SN_WHOLE || x->kind == SN_AT; }

/* Rows are logical: operands in shards have none, nor do those that come in another form. */
static bool has_rows(const mover *m, const sn_use *u) {
    const sn_value *v = &m->g->values[u->value];
    bool plain = (u->form == SN_DTYPE_COUNT || u->form == v->dtype) && !u->slice_n;
    for (int a = 0; a < SN_MESH_AXES; a++) {
        if (m->g->job->mesh.size[a] <= 1) continue;
        plain &= undivided(&v->rest.split.axis[a]) && undivided(&v->result.axis[a]) && (!u->has_split || undivided(&u->split.axis[a]));
    }
    return plain;
}

bool sn_takes_tiles(const mover *m, const sn_node *n) {
    const sn_op *op = sn_ops[n->op];
    bool away = false;
    for (int i = 0; op->tile && i < n->n_in; i++) {
        if (!sn_goes_by_tile(op, i) || n->in[i].value == SN_NONE) continue;
        if (!has_rows(m, &n->in[i])) return false;
        away |= op->mutates >> i & 1 && sn_rests_away(m, n->in[i].value);
    }
    return away;
}

/* Elements of a row, and bytes of its largest and smallest operand that rests away. */
static void row_of(const mover *m, const sn_node *n, int64_t *elements, int64_t *most, int64_t *least) {
    const sn_shape *s = &m->g->values[n->in[0].value].shape;
    *elements = 1;
    *most = 0;
    *least = INT64_MAX;
    for (int d = 1; d < s->rank; d++) *elements *= s->d[d];
    for (int i = 0; i < n->n_in; i++) {
        if (!(sn_ops[n->op]->tile >> i & 1) || n->in[i].value == SN_NONE || !sn_rests_away(m, n->in[i].value)) continue;
        int64_t bytes = *elements * sn_dtypes[m->g->values[n->in[i].value].dtype].bytes;
        if (bytes > *most) *most = bytes;
        if (bytes < *least) *least = bytes;
    }
}

void sn_choose_tiles(mover *m) {
    int64_t all = 0, elements, most, least;
    for (size_t k = 0; k < m->g->n_order; k++) {
        const sn_node *n = &m->g->nodes[m->g->order[k]];
        if (!sn_takes_tiles(m, n)) continue;
        row_of(m, n, &elements, &most, &least);
        all += m->g->values[n->in[0].value].shape.d[0] * most;
    }
    m->tile_bytes = all / MOST_TILES > TILE_BYTES ? all / MOST_TILES : TILE_BYTES;
    m->pending.node = SN_NONE;
}

/* Tiles are whole runs of the op's; where it costs little, they begin at whole blocks of the disk. */
static int64_t rows_of_tile(const mover *m, const sn_node *n) {
    int64_t elements, most, least, unit = 1, least_rows = 1, run = sn_ops[n->op]->flat_runs_in ? sn_ops[n->op]->flat_run : 1;
    row_of(m, n, &elements, &most, &least);
    while (least_rows < run && least_rows * elements % run) least_rows *= 2; /* forms, blocks and runs are powers of two */
    while (unit < ALIGNED && unit * least % ALIGNED) unit *= 2;
    if (unit < least_rows) unit = least_rows;
    int64_t rows = m->tile_bytes / most;
    if (rows < unit && unit * most <= 4 * m->tile_bytes) return unit;
    if (rows < least_rows) return least_rows;
    return rows < unit ? rows - rows % least_rows : rows - rows % unit;
}

/* A tile's part of an operand. */
static sn_use part_of(const mover *m, const sn_node *n, int i, int64_t at, int64_t rows) {
    const sn_op *op = sn_ops[n->op];
    if (!(op->flat_runs_in >> i & 1)) return sn_use_rows(n->in[i].value, at, rows);
    int64_t elements, most, least;
    row_of(m, n, &elements, &most, &least);
    return sn_use_rows(n->in[i].value, at * elements / op->flat_run, (rows * elements + op->flat_run - 1) / op->flat_run);
}

/* The rows of a tile: those that rest away, on the device. */
static sn_status bring_tile(mover *m, sn_nid id, int64_t at, int64_t rows, sn_tile *t) {
    *t = (sn_tile){.node = id, .at = at, .n = rows};
    sn_insert_like(m->g, id, "move");
    for (int i = 0; i < SN_MAX_IN; i++) {
        t->brought[i] = SN_NONE;
        const sn_node *n = &m->g->nodes[id];
        if (i >= n->n_in || !sn_goes_by_tile(sn_ops[n->op], i) || n->in[i].value == SN_NONE || !sn_rests_away(m, n->in[i].value)) continue;
        t->brought[i] = sn_bring(m, part_of(m, n, i, at, rows));
    }
    return m->g->status;
}

sn_status sn_finish_tiles(mover *m) {
    sn_graph *g = m->g;
    sn_tile t = m->pending;
    if (t.node == SN_NONE) return SN_OK;
    m->pending.node = SN_NONE;
    sn_node n = g->nodes[t.node];
    const sn_op *op = sn_ops[n.op];
    sn_use in[SN_MAX_IN];
    sn_vid out[SN_MAX_OUT];
    for (int i = 0; i < n.n_in; i++) {
        in[i] = n.in[i];
        if (!sn_goes_by_tile(op, i) || n.in[i].value == SN_NONE) continue;
        in[i] = t.brought[i] != SN_NONE ? sn_use_of(t.brought[i]) : part_of(m, &n, i, t.at, t.n);
    }
    sn_insert_like(g, t.node, n.made_by);
    if (op->flat_first) {
        int64_t elements, most, least;
        row_of(m, &n, &elements, &most, &least);
        n.attrs.i[op->flat_first - 1] += t.at * elements;
    }
    sn_nid stamped = sn_append_uses(g, n.op, &n.attrs, n.n_in, in, n.name, out);
    SN_TRY(g->status);
    g->nodes[stamped].site = n.site;
    g->nodes[stamped].origin = t.node;
    sn_insert_like(g, t.node, "move");
    for (int i = 0; i < n.n_in; i++)
        if (t.brought[i] != SN_NONE && op->mutates >> i & 1) sn_send(m, sn_use_of(t.brought[i]), part_of(m, &n, i, t.at, t.n));
    return g->status;
}

sn_status sn_move_tiles(mover *m, sn_nid id) {
    sn_graph *g = m->g;
    int64_t rows = g->values[g->nodes[id].in[0].value].shape.d[0], step = rows_of_tile(m, &g->nodes[id]), n;
    for (int64_t at = 0; at < rows; at += n) {
        sn_tile next;
        n = rows - at < step ? rows - at : step;
        SN_TRY(bring_tile(m, id, at, n, &next));
        SN_TRY(sn_finish_tiles(m));
        m->pending = next;
    }
    g->nodes[id].dead = true;
    return SN_OK;
}
