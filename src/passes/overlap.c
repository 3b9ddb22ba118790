/* Communication beside computing. What rests in shards over ranks is gathered while the block before is computed, not when its own block
 * waits for it. A gradient's sum over ranks may take until the block behind is computed: what is sent stays where it is, and what is done
 * with the sum is done, so long. A block here is a run of nodes of the same layer and phase. Bits do not change. The second buffer of
 * weights and the gradients still on their way are in the bill. What goes where is a matter of the graph alone, so the order of collectives
 * is the same on all ranks. DeepSpeed: overlap_comm, stage3_prefetch_bucket_size. */
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

enum { FIRST, AMID, LAST }; /* where a node stands in its block */

typedef struct item {
    sn_nid node;
    uint32_t home, block; /* its block, and the one it is put into */
    uint32_t stands, at;  /* and where: FIRST ..; its position before */
} item;

typedef struct overlapper {
    sn_graph *g;
    uint32_t blocks;   /* to run ahead or behind */
    item *items;       /* in order */
    sn_nid *ends;      /* by block: its last node */
    bool *summed;      /* by value: comes from a sum over ranks that is awaited late */
    uint32_t *uses;    /* by persistent value: nodes that touch it up to there: */
    size_t n_backward; /* nodes in the order up to the last of backward; updates may stand between */
} overlapper;

static bool is_block(const sn_node *n) { return n->layer >= 0 && n->phase != SN_PHASE_UPDATE; }

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

/* Puts a sum where the gradient rests, and nothing else does anything with that before backward ends. */
static bool takes_sum(const overlapper *o, const sn_node *n) {
    const sn_graph *g = o->g;
    if (n->phase != SN_PHASE_BACKWARD || !is_block(n) || is_collective(n)) return false;
    if (n->op != SN_OP_accumulate && n->op != SN_OP_copy && n->op != SN_OP_cast) return false;
    const sn_use *from = &n->in[n->op == SN_OP_accumulate];
    const sn_pid p = gradient_of(g, n->op == SN_OP_accumulate ? n->in[0].value
                                    : n->out[0] != SN_NONE    ? n->out[0]
                                                              : n->in[n->n_in - 1].value);
    return p != SN_NONE && from->value != SN_NONE && o->summed[from->value] && o->uses[p] == 1;
}

static void count_uses(const overlapper *o) {
    const sn_graph *g = o->g;
    for (size_t k = 0; k < o->n_backward; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in + n->n_out; i++) {
            const sn_pid p = gradient_of(g, i < n->n_in ? n->in[i].value : n->out[i - n->n_in]);
            if (p != SN_NONE) o->uses[p]++;
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

/* The block of each node; of a gather, and of a joined sum (which may stand in any block), that of the first node behind it that is none.
 */
static void find_blocks(const overlapper *o) {
    const sn_graph *g = o->g;
    const sn_node *last = NULL;
    uint32_t b = 0;
    for (size_t k = 0, first = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        o->items[k] = (item){.node = g->order[k], .stands = AMID, .at = (uint32_t)k};
        if ((gathers(g, n) || n->op == SN_OP_all_reduce || (n->phase == SN_PHASE_UPDATE && k < o->n_backward)) && k + 1 < g->n_order)
            continue;
        if (last && (n->layer != last->layer || n->phase != last->phase)) b++;
        for (last = n; first <= k; first++) o->items[first].home = o->items[first].block = b;
        o->ends[b] = g->order[k];
    }
}

/* `last`: the last block of backward; `start`: by block, the position of its first node. */
static void choose_places(const overlapper *o, uint32_t last, const size_t *start) {
    const sn_graph *g = o->g;
    for (size_t k = 0; k < g->n_order; k++) {
        item *x = &o->items[k];
        sn_node *n = &g->nodes[x->node];
        const uint32_t behind = x->home + o->blocks < last ? x->home + o->blocks : last;
        if (gathers(g, n)) {
            const uint32_t ahead = x->home > o->blocks ? x->home - o->blocks : 0;
            if (changes(g, gathered(g, n), start[ahead], k)) continue;
            x->block = ahead;
            x->stands = FIRST;
        } else if (sums(o, n)) {
            n->held = o->ends[behind];
            if (n->out[0] != SN_NONE) o->summed[n->out[0]] = true;
        } else if (takes_sum(o, n)) {
            x->block = behind;
            x->stands = LAST;
        }
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
    o.ends = sn_alloc((n + 1) * sizeof *o.ends);
    o.summed = sn_alloc_zero(g->n_values + 1, sizeof *o.summed);
    o.uses = sn_alloc_zero(g->job->n_persistent + 1, sizeof *o.uses);
    size_t *start = sn_alloc_zero(n + 1, sizeof *start);
    const bool room = o.items && o.ends && o.summed && o.uses && start;
    if (room && n) {
        for (size_t k = 0; k < n; k++)
            if (g->nodes[g->order[k]].phase == SN_PHASE_BACKWARD) o.n_backward = k + 1;
        find_blocks(&o);
        for (size_t k = n; k-- > 0;) start[o.items[k].home] = k;
        count_uses(&o);
        choose_places(&o, o.items[o.n_backward ? o.n_backward - 1 : 0].home, start);
        qsort(o.items, n, sizeof *o.items, compare);
        for (size_t k = 0; k < n; k++) g->order[k] = o.items[k].node;
    }
    sn_free(o.items);
    sn_free(o.ends);
    sn_free(o.summed);
    sn_free(o.uses);
    sn_free(start);
    return room ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot order %s", g->name);
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    const int64_t blocks = sn_options_int(recipe, "overlap_comm");
    for (int k = 0; blocks && sn_mesh_ranks(&cluster->mesh) > 1 && k < job->n_graphs; k++) SN_TRY(overlap(job->graphs[k], (uint32_t)blocks));
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
