/* Context parallelism: each rank of a group holds some of the tokens of the group's rows, and keys and values go round in a ring.
 *
 * The token axis of all inputs is sharded over the cp axis of the mesh, folded: rank i of n holds runs i and 2n - 1 - i of 2n, so
 * that all have the same pairs to visit under a causal mask, of whatever rows (token t of a row of L and its mirror image
 * L - 1 - t see L + 1 keys together). Everything but attention follows from the ops' index letters: weight gradients come
 * out partial, as over dp. An attention node becomes a ring of n steps, each with the next keys and values already under
 * way; its gradient the same ring again, in which dk and dv travel with their keys and are back home after n shifts, under way while dq
 * of the next step is computed.
 *
 * This runs behind backward and behind what clones forward nodes, although it splits: until then attention is one node with one
 * gradient, and a clone of it one node too. Else the graph would keep the keys and values of all ranks for the gradients of the ring's
 * steps. Sources: Liu et al. 2023 (arXiv 2310.01889); Brandon et al. 2023 (arXiv 2311.09431); Dubey et al. 2024 (arXiv 2407.21783). */
#include <string.h>

#include "graph/op.h"
#include "ops/attention/attention.h"
#include "ops/cast/cast.h"
#include "ops/ring_attention/ring_attention.h"
#include "ops/ring_attention_grad/ring_attention_grad.h"
#include "ops/shift/shift.h"
#include "passes/pass.h"
#include "program/comm.h"

static const sn_option options[] = {
    {.key = "context_parallel_size",
     .aliases = "cp,context_parallel",
     .kind = SN_OPTION_INT,
     .default_text = "1",
     .metavar = "N",
     .help = "ranks that share the tokens of their rows; keys and values go round; laid out around tensor-parallel ones"}};

typedef struct ring {
    sn_graph *g;
    int ranks;
    sn_vid index;                   /* of this rank's tokens */
    sn_vid visiting[SN_RANKS_MOST]; /* by step: of the keys that are here then */
} ring;

static sn_vid shift(sn_graph *g, sn_vid x, const char *name) {
    sn_attrs a = {0};
    a.i[SN_SHIFT_AXIS] = SN_MESH_CP;
    sn_vid y = sn_append1(g, SN_OP_shift, &a, 1, &x, name);
    if (y != SN_NONE) g->values[y].class_of = SN_CLASS_COMMUNICATION;
    return y;
}

/* `made` takes the place of value `old`, in its form. */
static void give(sn_graph *g, sn_vid made, sn_vid old, const char *name) {
    if (g->status != SN_OK || old == SN_NONE) return;
    if (g->values[made].dtype != g->values[old].dtype) {
        sn_attrs a = {0};
        a.i[SN_CAST_DTYPE] = g->values[old].dtype;
        made = sn_append1(g, SN_OP_cast, &a, 1, &made, name);
        if (made == SN_NONE) return;
    }
    sn_node *n = &g->nodes[g->values[made].producer];
    for (int o = 0; o < n->n_out; o++)
        if (n->out[o] == made) n->out[o] = old;
    g->values[old].producer = g->values[made].producer;
}

/* q, k, v, seq_start -> o, lse. */
static void forward(const ring *r, const sn_node *n) {
    sn_graph *g = r->g;
    sn_vid k = n->in[1].value, v = n->in[2].value, state[SN_MAX_OUT] = {SN_NONE, SN_NONE};
    for (int step = 0; step < r->ranks; step++) {
        sn_vid in[] = {n->in[0].value, k, v, r->index, r->visiting[step], n->in[3].value, state[0], state[1]};
        if (step + 1 < r->ranks) {
            k = shift(g, k, sn_name(g, "%s.k", n->name));
            v = shift(g, v, sn_name(g, "%s.v", n->name));
        }
        sn_append(g, SN_OP_ring_attention, &n->attrs, step ? 8 : 6, in, n->name, state);
    }
    give(g, state[0], n->out[0], n->name);
    give(g, state[1], n->out[1], n->name);
}

/* do, q, k, v, o, lse, seq_start -> dq, dk, dv. */
static void backward(const ring *r, const sn_node *n) {
    sn_graph *g = r->g;
    sn_vid k = n->in[2].value, v = n->in[3].value, dq = SN_NONE, dk = SN_NONE, dv = SN_NONE, out[SN_MAX_OUT];
    const char *dk_name = sn_name(g, "%s.dk", n->name), *dv_name = sn_name(g, "%s.dv", n->name);
    for (int step = 0; step < r->ranks; step++) {
        sn_vid in[SN_MAX_IN] = {n->in[0].value,    n->in[1].value, k,  v,       n->in[4].value, n->in[5].value, r->index,
                                r->visiting[step], n->in[6].value, dq, SN_NONE, SN_NONE};
        if (step + 1 < r->ranks) {
            k = shift(g, k, sn_name(g, "%s.k", n->name));
            v = shift(g, v, sn_name(g, "%s.v", n->name));
        }
        sn_attrs attrs = n->attrs;
        attrs.i[SN_RING_ATTENTION_GRAD_OF] = SN_RING_OF_QUERIES;
        sn_append(g, SN_OP_ring_attention_grad, &attrs, step ? 10 : 9, in, n->name, out);
        dq = out[0];
        in[9] = SN_NONE;
        in[10] = dk;
        in[11] = dv;
        attrs.i[SN_RING_ATTENTION_GRAD_OF] = SN_RING_OF_KEYS;
        sn_append(g, SN_OP_ring_attention_grad, &attrs, step ? 12 : 9, in, n->name, out);
        if (g->status != SN_OK) return;
        dk = shift(g, out[1], dk_name);
        dv = shift(g, out[2], dv_name);
    }
    give(g, dq, n->out[0], n->name);
    give(g, dk, n->out[1], dk_name);
    give(g, dv, n->out[2], dv_name);
}

static sn_status split_tokens(ring *r, sn_vid seq_start) {
    sn_graph *g = r->g;
    int64_t tokens = g->values[seq_start].shape.d[0], data_ranks = sn_mesh_data_ranks(&g->job->mesh), rows = tokens / data_ranks,
            runs = 2 * r->ranks;
    if (r->ranks > SN_RANKS_MOST) return sn_fail(SN_ERR_USAGE, "context_parallel_size is %d, wanted at most %d", r->ranks, SN_RANKS_MOST);
    if (rows * data_ranks != tokens || rows % runs)
        return sn_fail(SN_ERR_USAGE,
                       "context_parallel_size %d cuts the %lld tokens of a micro-batch into %lld runs: per_device_train_batch_size x "
                       "cutoff_len must be a multiple of that",
                       r->ranks, (long long)rows, (long long)runs);
    r->index = sn_input(g, "token_index", SN_I32, sn_shape_of(tokens));
    SN_TRY(g->status);
    for (size_t i = 0; i < g->n_values; i++) {
        sn_value *v = &g->values[i];
        if (!v->input || v->dtype != SN_I32 || v->shape.d[0] != tokens) continue;
        for (int a = SN_MESH_REPLICA; a <= SN_MESH_DP; a++) v->result.axis[a] = g->values[seq_start].result.axis[a];
        v->result.axis[SN_MESH_CP] = (sn_split_axis){.kind = SN_SHARD, .dim = 0, .at = SN_DEAL_FOLDED, .unit = (int32_t)(rows / runs)};
    }
    sn_insert_at_end(g, "context_parallel");
    g->insert_at = 0;
    g->phase = SN_PHASE_FORWARD;
    r->visiting[0] = r->index;
    for (int step = 1; step < r->ranks; step++) r->visiting[step] = shift(g, r->visiting[step - 1], "token_index");
    return g->status;
}

/* Attention nodes become rings; what draws by row is told which rows it has. */
static sn_status rewrite(const ring *r, sn_nid id) {
    sn_graph *g = r->g;
    sn_node n = g->nodes[id];
    if (n.op == SN_OP_dropout && n.n_in == 2) {
        g->nodes[id].in[2] = sn_use_of(r->index);
        g->nodes[id].n_in = 3;
    }
    if (n.op != SN_OP_attention && n.op != SN_OP_attention_grad) return SN_OK;
    sn_insert_before(g, id, "context_parallel");
    if (n.op == SN_OP_attention) forward(r, &n);
    else backward(r, &n);
    g->nodes[id].dead = true;
    return g->status;
}

static sn_status ring_graph(sn_graph *g, sn_vid seq_start) {
    ring r = {.g = g, .ranks = g->job->mesh.size[SN_MESH_CP]};
    SN_TRY(split_tokens(&r, seq_start));
    for (size_t k = 0; k < g->n_order; k++) {
        sn_nid id = g->order[k];
        SN_TRY(rewrite(&r, id));
        if (g->nodes[id].dead) k = g->insert_at; /* the node itself stands behind its ring */
    }
    size_t kept = 0;
    for (size_t k = 0; k < g->n_order; k++)
        if (!g->nodes[g->order[k]].dead) g->order[kept++] = g->order[k];
    g->n_order = kept;
    sn_insert_at_end(g, "model");
    return sn_graph_infer_splits(g);
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)recipe;
    for (int k = 0; cluster->mesh.size[SN_MESH_CP] > 1 && k < job->n_graphs; k++) {
        sn_graph *g = job->graphs[k];
        sn_vid seq_start = sn_graph_find(g, "seq_start");
        if (seq_start != SN_NONE) SN_TRY(ring_graph(g, seq_start));
    }
    return SN_OK;
}

const sn_pass sn_pass_context_parallel = {.name = "context_parallel",
                                          .saves = "activations: the tokens of a row spread over ranks; keys and values go round",
                                          .run = run,
                                          .options = SN_OPTION_GROUP("Context parallelism", options),
                                          .mesh_key = "context_parallel_size",
                                          .mesh_axis = SN_MESH_CP};
