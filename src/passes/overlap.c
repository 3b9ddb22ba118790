/* Communication beside computing. What rests in shards over ranks is gathered while the block before is computed, not when its own block
 * waits for it. A gradient's sum over ranks may take until the block behind is computed: what is sent stays where it is, and what is done
 * with the sum is done, so long. A block here is a run of nodes of the same layer and phase; the one before or behind is that which the
 * same ranks compute, another stage's of a pipeline is none. What one rank sends another is sent before that one needs it, and a gradient's
 * part of the norm is gathered when the gradient is complete. Bits do not change. The second buffer of weights and the gradients still on
 * their way are in the bill. What goes where is a matter of the graph alone, so the order of collectives is the same on all ranks.
 * DeepSpeed: overlap_comm, stage3_prefetch_bucket_size. */
#include <stdlib.h>

#include "graph/op.h"
#include "ops/all_gather/all_gather.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "overlap_comm",
     .kind = SN_OPTION_INT,
     .default_text = "1",
     .metavar = "N",
     .has_least = true,
     .most = 8,
     .has_most = true,
     .help = "blocks by which weights in shards are gathered ahead, and gradients summed behind; 0: neither"}};

enum { EARLY, FIRST, SECOND, AMID, LAST, BEHIND }; /* where a node stands in its block */

typedef struct item {
    sn_nid node;
    uint32_t home, block; /* its block, and the one it is put into */
    uint32_t stands, at;  /* and where: EARLY ..; twice its position before */
} item;

typedef struct overlapper {
    sn_graph *g;
    uint32_t blocks;    /* to run ahead or behind */
    item *items;        /* in order */
    uint32_t *at;       /* by node: its item */
    sn_nid *ends;       /* by block: its last node */
    bool *summed;       /* by value: comes from a sum over ranks that is awaited late */
    uint8_t *taken;     /* by persistent value: how it is touched up to there: */
    uint32_t *complete; /* by persistent value, of gradients: the block at whose end that is done */
    size_t n_backward;  /* nodes in the order up to the last of backward; updates may stand between */
} overlapper;

enum { TOUCHED = 1, READ_SOON = 2 }; /* once, and then by what only adds sums to it; otherwise */

static bool is_block(const sn_node *n) { return n->layer >= 0 && n->phase != SN_PHASE_UPDATE; }

/* From one rank to one other: it stands between the blocks of both. */
static bool is_pair(const sn_node *n) { return sn_ops[n->op]->comm_from != 0; }

static bool is_collective(const sn_node *n) { return sn_ops[n->op]->comm_axis != 0; }

static sn_pid rests_as(const sn_graph *g, sn_vid v) {
    return g->values[v].persistent != SN_NONE && g->values[v].producer == SN_NONE ? g->values[v].persistent : SN_NONE;
}

/* The persistent value in shards that a node gathers for a block's use, or narrows before that; SN_NONE: it does neither. */
static sn_pid gathered(const sn_graph *g, const sn_node *n) {
    if (!is_block(n) || n->n_in != 1 || (n->op != SN_OP_all_gather && n->op != SN_OP_cast)) return SN_NONE;
    const sn_pid p = rests_as(g, n->in[0].value);
    const sn_value *from = &g->values[n->in[0].value];
    if (n->op == SN_OP_cast) return p != SN_NONE && sn_is_flat(&from->result.axis[SN_MESH_DP]) ? p : SN_NONE;
    if (p != SN_NONE || from->producer == SN_NONE || g->nodes[from->producer].op != SN_OP_cast) return p;
    return gathered(g, &g->nodes[from->producer]);
}

static bool gathers(const sn_graph *g, const sn_node *n) { return gathered(g, n) != SN_NONE; }

static bool is_of_rows(int64_t axis) { return axis == SN_MESH_DP || axis == SN_MESH_REPLICA; }

/* Sums a gradient over data-parallel ranks, or gathers that sum. */
static bool sums(const overlapper *o, const sn_node *n) {
    if (n->op == SN_OP_all_reduce) return true;
    if (n->phase != SN_PHASE_BACKWARD || !is_block(n) || n->n_in != 1 || o->g->values[n->in[0].value].persistent != SN_NONE) return false;
    if (n->op == SN_OP_reduce_scatter) return is_of_rows(n->attrs.i[SN_REDUCE_SCATTER_AXIS]);
    return n->op == SN_OP_all_gather && is_of_rows(n->attrs.i[SN_ALL_GATHER_AXIS]) && o->summed[n->in[0].value];
}

static sn_pid gradient_of(const sn_graph *g, sn_vid v) {
    const sn_pid p = v == SN_NONE ? SN_NONE : g->values[v].persistent;
    return p != SN_NONE && g->job->persistent[p].class_of == SN_CLASS_GRADIENTS ? p : SN_NONE;
}

/* The gradient into whose place a node puts or adds a sum, when it does nothing else; SN_NONE. */
static sn_pid takes_sum(const overlapper *o, const sn_node *n) {
    const sn_graph *g = o->g;
    if (n->phase != SN_PHASE_BACKWARD || !is_block(n) || is_collective(n)) return SN_NONE;
    if (n->op != SN_OP_accumulate && n->op != SN_OP_copy && n->op != SN_OP_cast) return SN_NONE;
    const sn_use *from = &n->in[n->op == SN_OP_accumulate];
    if (from->value == SN_NONE || !o->summed[from->value]) return SN_NONE;
    return gradient_of(g, n->op == SN_OP_accumulate ? n->in[0].value : n->out[0] != SN_NONE ? n->out[0] : n->in[n->n_in - 1].value);
}

static void find_sums(const overlapper *o) {
    const sn_graph *g = o->g;
    for (size_t k = 0; k < o->n_backward; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        if (sums(o, n) && n->out[0] != SN_NONE) o->summed[n->out[0]] = true;
    }
    for (size_t k = 0; k < o->n_backward; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in + n->n_out; i++) {
            const sn_pid p = gradient_of(g, i < n->n_in ? n->in[i].value : n->out[i - n->n_in]);
            if (p == SN_NONE) continue;
            if (!o->taken[p]) o->taken[p] = TOUCHED;
            else if (takes_sum(o, n) != p) o->taken[p] = READ_SOON;
        }
    }
}

/* Whether a node between two positions of the order changes persistent value p. */
static bool changes(const sn_graph *g, sn_pid p, size_t from, size_t to) {
    for (size_t k = from; k < to; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value != SN_NONE && sn_ops[n->op]->mutates >> i & 1 && g->values[n->in[i].value].persistent == p) return true;
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] != SN_NONE && g->values[n->out[i]].persistent == p) return true;
    }
    return false;
}

/* The block of each node; of a gather, a joined sum (which may stand in any block), and what one rank sends another, that of the first node
 * behind it that is none. */
static void find_blocks(const overlapper *o) {
    const sn_graph *g = o->g;
    const sn_node *last = NULL;
    uint32_t b = 0;
    for (size_t k = 0, first = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        o->at[g->order[k]] = (uint32_t)k;
        o->items[k] = (item){.node = g->order[k], .stands = AMID, .at = 2 * (uint32_t)k};
        if ((gathers(g, n) || n->op == SN_OP_all_reduce || is_pair(n) || (n->phase == SN_PHASE_UPDATE && k < o->n_backward)) &&
            k + 1 < g->n_order)
            continue;
        if (last && (n->layer != last->layer || n->phase != last->phase)) b++;
        for (last = n; first <= k; first++) o->items[first].home = o->items[first].block = b;
        o->ends[b] = g->order[k];
    }
}

/* The last block of backward. A joined sum may belong to the one behind that. */
static uint32_t last_block(const overlapper *o) {
    size_t k = o->n_backward;
    while (k > 0 && o->g->nodes[o->items[k - 1].node].op == SN_OP_all_reduce) k--;
    return k ? o->items[k - 1].home : 0;
}

/* Whether there is a rank that runs both. */
static bool meet(const sn_node *a, const sn_node *b) {
    for (int i = 0; i < SN_MESH_AXES; i++) {
        const sn_split_axis *x = &a->where.axis[i], *y = &b->where.axis[i];
        if (x->kind == SN_AT && y->kind == SN_AT && !sn_axis_holds(x, y->at) && !sn_axis_holds(x, y->also)) return false;
    }
    return true;
}

/* The block so many before b, or behind it and up to `last`, of those that the same ranks compute; the farthest where there are fewer. */
static uint32_t step_from(const overlapper *o, uint32_t b, int direction, uint32_t last) {
    const sn_node *own = &o->g->nodes[o->ends[b]];
    uint32_t found = b, left = o->blocks;
    for (uint32_t x = b; left && (direction < 0 ? x > 0 : x < last);) {
        x += (uint32_t)direction;
        if (!meet(own, &o->g->nodes[o->ends[x]])) continue;
        found = x;
        left--;
    }
    return found;
}

/* What one rank sends another does so while the other computes the block before the one that needs it, or when it is made, whichever is
 * later: the queue is served in order, so sooner it would keep waiting what is needed before, and later it would wait for sums. Only what
 * is made in another block, whose order is kept. */
static void place_pair(const overlapper *o, item *x, uint32_t last, const size_t *start) {
    const sn_graph *g = o->g;
    sn_node *n = &g->nodes[x->node];
    const sn_nid made = g->values[n->in[0].value].producer;
    const uint32_t ahead = step_from(o, x->home, -1, last);
    if (made == SN_NONE || g->nodes[made].phase == SN_PHASE_UPDATE) return;
    const item *from = &o->items[o->at[made]];
    if (from->home == x->home || from->stands != AMID) return;
    n->held = o->ends[step_from(o, from->home, 1, last)];
    if (start[ahead] > o->at[made]) {
        x->block = ahead;
        x->stands = SECOND;
    } else {
        x->block = from->block;
        x->at = from->at + 1;
    }
}

/* A gradient's squares are summed for the norm when it is complete, and gathered while the next block is computed, not one gradient after
 * another when backward has ended. `units`: the node that adds them up. */
static void sum_squares_early(const overlapper *o, const sn_node *units, item *x, uint32_t last) {
    const sn_graph *g = o->g;
    const sn_nid gather = g->values[units->in[0].value].producer;
    if (gather == SN_NONE || g->nodes[gather].op != SN_OP_all_gather) return;
    const sn_nid squares = g->values[g->nodes[gather].in[0].value].producer;
    if (squares == SN_NONE || g->nodes[squares].op != SN_OP_sum_squares) return;
    const sn_pid p = gradient_of(g, g->nodes[squares].in[0].value);
    if (p == SN_NONE || !o->taken[p] || o->at[squares] < o->n_backward || o->complete[p] > last) return;
    item *first = &o->items[o->at[squares]], *second = &o->items[o->at[gather]];
    first->block = second->block = o->complete[p];
    first->stands = second->stands = LAST;
    x->block = step_from(o, o->complete[p], 1, last);
    x->stands = BEHIND;
    g->nodes[gather].held = x->node;
}

/* Notes when what a node does with a gradient is done. */
static void note_complete(const overlapper *o, const sn_node *n, const item *x, uint32_t last) {
    const sn_graph *g = o->g;
    const bool behind = o->at[x->node] < o->n_backward && sums(o, n);
    const uint32_t done = behind ? step_from(o, x->home, 1, last) : x->block;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const sn_pid p = gradient_of(g, i < n->n_in ? n->in[i].value : n->out[i - n->n_in]);
        if (p != SN_NONE && o->complete[p] < done) o->complete[p] = done;
    }
}

/* Whether a collective with which a block begins may stand before what is brought ahead for others: the block waits for it. */
static bool comes_first(const overlapper *o, const sn_node *n, const item *x) {
    if (!is_collective(n) || n->phase == SN_PHASE_UPDATE) return false;
    for (int i = 0; i < n->n_in; i++) {
        const sn_nid made = n->in[i].value == SN_NONE ? SN_NONE : o->g->values[n->in[i].value].producer;
        if (made == SN_NONE) continue;
        const item *from = &o->items[o->at[made]];
        if (from->block == x->home && from->stands != EARLY) return false;
    }
    return true;
}

/* `last`: the last block of backward; `start`: by block, the position of its first node. */
static void choose_places(const overlapper *o, uint32_t last, const size_t *start) {
    const sn_graph *g = o->g;
    bool begun = false;
    for (size_t k = 0; k < g->n_order; k++) {
        item *x = &o->items[k];
        sn_node *n = &g->nodes[x->node];
        const sn_pid into = takes_sum(o, n);
        const uint32_t behind = k < o->n_backward ? step_from(o, x->home, 1, last) : x->home;
        begun = (begun && k != start[x->home]) || (!is_collective(n) && !gathers(g, n));
        if (gathers(g, n)) {
            const uint32_t ahead = step_from(o, x->home, -1, last);
            if (changes(g, gathered(g, n), start[ahead], k)) continue;
            x->block = ahead;
            x->stands = FIRST;
        } else if (k < o->n_backward && sums(o, n)) {
            n->held = o->ends[behind];
        } else if (into != SN_NONE && o->taken[into] == TOUCHED) {
            x->block = behind;
            x->stands = LAST;
        } else if (is_pair(n)) {
            place_pair(o, x, last, start);
        } else if (!begun && comes_first(o, n, x)) {
            x->stands = EARLY;
        }
        if (n->op == SN_OP_sum_units && k >= o->n_backward) sum_squares_early(o, n, x, last);
        else if (n->op != SN_OP_sum_squares) note_complete(o, n, x, last);
    }
}

static int compare(const void *a, const void *b) {
    const item *x = a, *y = b;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    if (x->stands != y->stands) return x->stands < y->stands ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static sn_status overlap(sn_graph *g, uint32_t blocks) {
    const size_t n = g->n_order;
    overlapper o = {.g = g, .blocks = blocks};
    o.items = sn_alloc((n + 1) * sizeof *o.items);
    o.at = sn_alloc((g->n_nodes + 1) * sizeof *o.at);
    o.ends = sn_alloc((n + 1) * sizeof *o.ends);
    o.summed = sn_alloc_zero(g->n_values + 1, sizeof *o.summed);
    o.taken = sn_alloc_zero(g->job->n_persistent + 1, sizeof *o.taken);
    o.complete = sn_alloc_zero(g->job->n_persistent + 1, sizeof *o.complete);
    size_t *start = sn_alloc_zero(n + 1, sizeof *start);
    const bool room = o.items && o.at && o.ends && o.summed && o.taken && o.complete && start;
    if (room && n) {
        for (size_t k = 0; k < n; k++)
            if (g->nodes[g->order[k]].phase == SN_PHASE_BACKWARD) o.n_backward = k + 1;
        find_blocks(&o);
        for (size_t k = n; k-- > 0;) start[o.items[k].home] = k;
        find_sums(&o);
        choose_places(&o, last_block(&o), start);
        qsort(o.items, n, sizeof *o.items, compare);
        for (size_t k = 0; k < n; k++) g->order[k] = o.items[k].node;
    }
    sn_free(o.items);
    sn_free(o.at);
    sn_free(o.ends);
    sn_free(o.summed);
    sn_free(o.taken);
    sn_free(o.complete);
    sn_free(start);
    return room ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot order %s", g->name);
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    const int64_t blocks = sn_options_int(recipe, "overlap_comm");
    /* Where ranks only send along a pipeline the queue is empty but for that. */
    for (int k = 0; blocks && sn_mesh_ranks(&cluster->mesh) > cluster->mesh.size[SN_MESH_PP] && k < job->n_graphs; k++)
        SN_TRY(overlap(job->graphs[k], (uint32_t)blocks));
    return SN_OK;
}

/* One buffer of weights instead of two. */
static const sn_choice choices[] = {{"overlap_comm", "0", SN_CHOICE_EXACT, {0}}};

/* One rank alone sends nothing. */
static bool offers(const sn_options *recipe, const sn_cluster *cluster, const sn_choice *choice) {
    (void)recipe, (void)choice;
    return sn_mesh_ranks(&cluster->mesh) > 1;
}

const sn_pass sn_pass_overlap = {
    .name = "overlap",
    .saves = "time: gathers and sums over ranks run while other blocks are computed; costs a second block's weights and gradients",
    .run = run,
    .options = SN_OPTION_GROUP("Communication", options),
    SN_PASS_CHOICES(choices),
    .touches = SN_TOUCHES_RESTS,
    .offers = offers};
