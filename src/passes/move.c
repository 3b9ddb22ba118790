/* Inserts what lies between a value's result, its rest and each use, from one table:
 *
 *   form -> form            cast                      whole -> shard     view (no bytes moved): flat, or of rows
 *   host <-> device         copy                      partial -> shard   reduce_scatter
 *   disk <-> host           fetch, store              shard -> whole     all_gather
 *   at(i) -> at(j)          send_recv                partial -> whole   reduce_scatter + all_gather
 *
 * What an op changes in a shard of a value that rests whole is gathered into that value again behind it. Of a value that is
 * used by slice, the slice alone is moved. A moved copy is shared by the uses that follow in the same block; what was sent is, by
 * all that follow where it has arrived. Then copies that move nothing are taken out again: their producer writes in place. */
#include <string.h>

#include "graph/op.h"
#include "ops/cast/cast.h"
#include "passes/move.h"

enum { RECENT = SN_MOVE_RECENT };

void sn_remember(mover *m, const sn_use *from, sn_vid to, sn_dtype form, const sn_node *n, bool copied) {
    m->recent[m->next % RECENT].from = from->value;
    m->recent[m->next % RECENT].slice_at = from->slice_at;
    m->recent[m->next % RECENT].slice_n = from->slice_n;
    m->recent[m->next % RECENT].to = to;
    m->recent[m->next % RECENT].form = form;
    m->recent[m->next % RECENT].layer = n->layer;
    m->recent[m->next % RECENT].phase = n->phase;
    m->recent[m->next % RECENT].copied = copied;
    m->next++;
}

sn_vid sn_recall(const mover *m, const sn_use *from, sn_dtype form, const sn_node *n, bool copied) {
    for (int i = 0; i < RECENT && i < m->next; i++)
        if (m->recent[i].from == from->value && m->recent[i].slice_at == from->slice_at && m->recent[i].slice_n == from->slice_n &&
            m->recent[i].form == form && m->recent[i].copied == copied && m->recent[i].phase == n->phase &&
            (copied || m->recent[i].layer == n->layer) &&
            !memcmp(&m->g->nodes[m->g->values[m->recent[i].to].producer].where, &n->where, sizeof n->where))
            return m->recent[i].to;
    return SN_NONE;
}

sn_vid sn_moved(sn_graph *g, sn_opcode op, const sn_attrs *a, sn_use from, sn_class class_of) {
    const char *name = g->values[from.value].name;
    sn_vid out[SN_MAX_OUT];
    from.form = SN_DTYPE_COUNT;
    sn_append_uses(g, op, a, 1, &from, name ? name : sn_ops[op]->name, out);
    if (out[0] != SN_NONE) {
        g->values[out[0]].class_of = class_of;
        g->values[out[0]].result = g->values[from.value].result;
        g->values[out[0]].run = g->values[from.value].run;
        g->values[out[0]].runs_of = g->values[from.value].runs_of;
        for (int x = 0; x < SN_MESH_AXES; x++)
            if (g->where.axis[x].kind == SN_AT) g->values[out[0]].result.axis[x] = g->where.axis[x];
    }
    return out[0];
}

/* A value in the form that a use wants. */
static sn_status move_form(mover *m, sn_nid id, sn_use *at, sn_dtype form) {
    sn_graph *g = m->g;
    sn_vid found = sn_recall(m, at, form, &g->nodes[id], false);
    if (found == SN_NONE) {
        sn_attrs a = {0};
        a.i[SN_CAST_DTYPE] = form;
        found = sn_moved(g, SN_OP_cast, &a, *at, SN_CLASS_STAGING);
        SN_TRY(g->status);
        sn_remember(m, at, found, form, &g->nodes[id], false);
    }
    *at = sn_use_of(found);
    return SN_OK;
}

static double element_bytes(sn_dtype form) { return (double)sn_dtypes[form].bytes / sn_dtypes[form].block; }

/* A shard that is to be gathered, in a smaller form: it takes that form before it is sent. Its units are whole blocks, so bits are the
 * same. */
static bool narrows_first(const sn_graph *g, const sn_use *use, sn_dtype from) {
    if (!use->has_split || use->slice_n || use->form >= SN_DTYPE_COUNT || element_bytes((sn_dtype)use->form) >= element_bytes(from))
        return false;
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *x = &g->values[use->value].result.axis[a];
        if (g->job->mesh.size[a] > 1 && sn_is_flat(x) && use->split.axis[a].kind == SN_WHOLE && x->unit % sn_dtypes[use->form].block == 0)
            return true;
    }
    return false;
}

static sn_status move_use(mover *m, sn_nid id, int i) {
    sn_graph *g = m->g;
    sn_vid *used = &g->nodes[id].in[i].value;
    if (*used < m->n_values && m->stand_in[*used] != SN_NONE) *used = m->stand_in[*used];
    sn_use use = g->nodes[id].in[i];
    if (use.value == SN_NONE) return SN_OK;
    sn_value v = g->values[use.value];
    const sn_node *n = &g->nodes[id];
    sn_use at = use; /* what the value has become so far */
    sn_vid found;
    SN_TRY(sn_check_way(g, n, i));
    bool mutated = sn_ops[n->op]->mutates >> i & 1;
    sn_insert_like(g, id, "move");
    at.has_split = false;
    if (sn_rests_away(m, use.value) && !mutated && (n->op != SN_OP_copy || v.rest.tier == SN_TIER_DISK)) { /* a copy is the way itself */
        found = sn_recall(m, &at, v.dtype, n, true);
        if (found == SN_NONE) {
            found = sn_bring(m, at);
            SN_TRY(g->status);
            sn_remember(m, &at, found, v.dtype, &g->nodes[id], true);
        }
        at = sn_use_of(found);
    }
    if (!mutated && narrows_first(g, &use, v.dtype)) SN_TRY(move_form(m, id, &at, (sn_dtype)use.form));
    if (use.has_split && !mutated) SN_TRY(sn_move_split(m, id, &at, &use.split));
    if (use.form < SN_DTYPE_COUNT && use.form != g->values[at.value].dtype) SN_TRY(move_form(m, id, &at, (sn_dtype)use.form));
    sn_use *out = &g->nodes[id].in[i];
    out->value = at.value;
    out->slice_at = at.slice_at;
    out->slice_n = at.slice_n;
    out->form = SN_DTYPE_COUNT;
    for (int a = 0; out->has_split && a < SN_MESH_AXES; a++) /* what was brought is where the node is */
        if (g->values[at.value].result.axis[a].kind == SN_AT && out->split.axis[a].kind == SN_WHOLE)
            out->split.axis[a] = g->values[at.value].result.axis[a];
    return SN_OK;
}

/* A value of one turn is made by a node that runs in other turns too: it may write there only if it can leave that output out. */
static bool keeps_apart(const sn_graph *g, sn_vid from, sn_vid to) {
    if (to == SN_NONE || g->values[to].persistent == SN_NONE || sn_job_turn(g->job, g->values[to].persistent) < 0 ||
        g->values[from].producer == SN_NONE)
        return false;
    const sn_node *maker = &g->nodes[g->values[from].producer];
    int outputs = 0;
    bool left_out = false;
    for (int o = 0; o < maker->n_out; o++) {
        outputs += maker->out[o] != SN_NONE;
        left_out |= maker->out[o] == from && sn_ops[maker->op]->leaves_out >> o & 1;
    }
    return outputs > 1 && !left_out;
}

/* copy x -> persistent p, x made here and used by nothing else: x's producer writes p's bytes itself. */
static sn_status elide_copies(sn_graph *g) {
    uint32_t *uses = sn_count_uses(g);
    if (!uses) return SN_ERR_NO_MEMORY;
    size_t kept = 0;
    for (size_t k = 0; k < g->n_order; k++) {
        sn_nid id = g->order[k];
        sn_node *n = &g->nodes[id];
        sn_vid from = n->in[0].value, to = n->out[0];
        bool elide = n->op == SN_OP_copy && !keeps_apart(g, from, to) && to != SN_NONE && !n->in[0].slice_n && !sn_is_view(g, &n->in[0]) &&
                     g->values[to].persistent != SN_NONE && uses[from] == 1 && g->values[from].producer != SN_NONE &&
                     g->values[from].persistent == SN_NONE && g->values[from].dtype == g->values[to].dtype && !g->values[from].output;
        if (!elide) {
            g->order[kept++] = id;
            continue;
        }
        n->dead = true;
        sn_nid producer = g->values[from].producer;
        g->values[to].producer = producer;
        for (int o = 0; o < g->nodes[producer].n_out; o++)
            if (g->nodes[producer].out[o] == from) g->nodes[producer].out[o] = to;
    }
    g->n_order = kept;
    sn_free(uses);
    return SN_OK;
}

/* accumulate acc x, x made here for nothing else by an op that can add into acc itself: it does. */
static void fold_accumulation(sn_graph *g) {
    size_t kept = 0;
    for (size_t k = 0; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        bool folds = false;
        if (n->op == SN_OP_accumulate && !n->in[1].slice_n && !sn_is_view(g, &n->in[1]) && g->values[n->in[1].value].producer != SN_NONE) {
            sn_vid x = n->in[1].value;
            sn_node *maker = &g->nodes[g->values[x].producer];
            int slot = sn_ops[maker->op]->adds_into;
            folds = slot && maker->out[0] == x && g->values[x].persistent == SN_NONE && k > 0 && g->order[k - 1] == g->values[x].producer &&
                    g->values[x].dtype == g->values[n->in[0].value].dtype;
            if (folds) {
                maker->in[slot] = n->in[0];
                maker->n_in = (uint8_t)(slot + 1);
                maker->out[0] = SN_NONE;
                n->dead = true;
            }
        }
        if (!folds) g->order[kept++] = g->order[k];
    }
    g->n_order = kept;
}

/* An op that writes what rests away: it gives an output instead, which is sent there. Of a copy, what it would copy is. */
static sn_status write_away(mover *m, sn_nid id) {
    sn_graph *g = m->g;
    sn_node n = g->nodes[id];
    sn_vid out[SN_MAX_OUT];
    sn_use made = n.in[0], into = n.in[n.n_in - 1];
    g->nodes[id].dead = true;
    if (n.op != SN_OP_copy) {
        sn_insert_like(g, id, n.made_by);
        sn_nid other = sn_append_uses(g, n.op, &n.attrs, n.n_in - 1, n.in, n.name, out);
        SN_TRY(g->status);
        g->nodes[other].origin = id;
        g->values[out[0]].class_of = SN_CLASS_STAGING;
        made = sn_use_of(out[0]);
    }
    sn_insert_like(g, id, "move");
    sn_send(m, made, into);
    return g->status;
}

/* Whether its last input takes the place of its output and rests away. What reads files writes the host tier itself. */
static bool writes_away(const mover *m, const sn_node *n) {
    if (!n->n_in || !(sn_ops[n->op]->into >> (n->n_in - 1) & 1) || !sn_rests_away(m, n->in[n->n_in - 1].value)) return false;
    return (n->op != SN_OP_read && n->op != SN_OP_copy) || m->g->values[n->in[n->n_in - 1].value].rest.tier == SN_TIER_DISK;
}

/* What a pass wants to rest in another split than it is made in is moved once, behind its op. */
static sn_status move_results(mover *m, sn_nid id) {
    sn_graph *g = m->g;
    for (int o = 0; o < g->nodes[id].n_out; o++) {
        sn_vid v = g->nodes[id].out[o];
        if (v >= m->n_values || !g->values[v].rests_split) continue;
        sn_use at = sn_use_of(v);
        sn_split rest = g->values[v].result;
        for (int a = 0; a < SN_MESH_AXES; a++)
            if (g->values[v].rests_split >> a & 1) rest.axis[a] = g->values[v].rest.split.axis[a];
        sn_insert_like(g, id, "move");
        SN_TRY(sn_move_split(m, id, &at, &rest));
        if (at.value != v) m->stand_in[v] = at.value;
    }
    return SN_OK;
}

static sn_status move_node(mover *m, sn_nid id) {
    sn_graph *g = m->g;
    const sn_op *op = sn_ops[g->nodes[id].op];
    bool tiles = sn_takes_tiles(m, &g->nodes[id]);
    if (!tiles) SN_TRY(sn_finish_tiles(m));
    for (int i = 0; i < g->nodes[id].n_in; i++)
        if (!(tiles && sn_goes_by_tile(op, i))) SN_TRY(move_use(m, id, i));
    if (tiles) return sn_move_tiles(m, id);
    if (writes_away(m, &g->nodes[id])) return write_away(m, id);
    if (op == sn_ops[SN_OP_copy] && g->nodes[id].out[0] != SN_NONE && g->values[g->nodes[id].out[0]].persistent != SN_NONE &&
        sn_rests_away(m, g->nodes[id].out[0])) {
        sn_vid to = g->nodes[id].out[0]; /* rests there from now on, between programs too */
        g->values[to].producer = SN_NONE;
        g->nodes[id].dead = true;
        sn_insert_like(g, id, "move");
        sn_send(m, g->nodes[id].in[0], sn_use_of(to));
        return g->status;
    }
    sn_use changed[SN_MAX_IN]; /* whole values that rest away, worked on here */
    for (int i = 0; i < g->nodes[id].n_in; i++) {
        changed[i] = sn_use_of(SN_NONE);
        if (!(op->mutates >> i & 1) || op->into >> i & 1 || g->nodes[id].in[i].value == SN_NONE ||
            !sn_rests_away(m, g->nodes[id].in[i].value))
            continue;
        changed[i] = g->nodes[id].in[i];
        sn_insert_like(g, id, "move");
        sn_vid here = sn_bring(m, changed[i]);
        SN_TRY(g->status);
        g->nodes[id].in[i].value = here; /* a rank's shard of it stays a view */
        g->nodes[id].in[i].slice_at = g->nodes[id].in[i].slice_n = 0;
    }
    SN_TRY(sn_push(g, id));
    sn_insert_like(g, id, "move");
    for (int i = 0; i < g->nodes[id].n_in; i++) {
        if (op->mutates >> i & 1 && sn_is_view(g, &g->nodes[id].in[i])) SN_TRY(sn_gather_again(g, id, i));
        if (changed[i].value != SN_NONE) sn_send(m, sn_use_of(g->nodes[id].in[i].value), changed[i]);
    }
    SN_TRY(g->status);
    return move_results(m, id);
}

/* The order is written anew, so that inserting costs nothing but what is inserted. */
static sn_status move_graph(sn_graph *g, const sn_cluster *cluster) {
    mover m = {.g = g, .cluster = cluster, .n_values = g->n_values, .stand_in = sn_alloc((g->n_values + 1) * sizeof *m.stand_in)};
    if (!m.stand_in) return sn_fail(SN_ERR_NO_MEMORY, "cannot move the values of %s", g->name);
    for (size_t v = 0; v < m.n_values; v++) m.stand_in[v] = SN_NONE;
    sn_choose_tiles(&m);
    sn_nid *old = g->order;
    size_t n = g->n_order;
    g->order = NULL;
    g->n_order = g->cap_order = 0;
    sn_status s = SN_OK;
    for (size_t k = 0; s == SN_OK && k < n; k++) s = move_node(&m, old[k]);
    if (s == SN_OK) s = sn_finish_tiles(&m);
    sn_free(old);
    sn_free(m.stand_in);
    sn_free(m.arrived);
    return s;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)recipe;
    for (int k = 0; k < job->n_graphs; k++) {
        sn_graph *g = job->graphs[k];
        SN_TRY(sn_graph_infer_splits(g));
        SN_TRY(move_graph(g, cluster));
        sn_insert_at_end(g, "model");
        SN_TRY(elide_copies(g));
        fold_accumulation(g);
    }
    return SN_OK;
}

const sn_pass sn_pass_move = {.name = "move", .saves = "inserts copies, casts and collectives between result, rest and use", .run = run};
