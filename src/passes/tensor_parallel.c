/* Tensor parallelism: each rank holds some heads, some of the feed-forward and some rows of the vocabulary, so that a block takes
 * two sums over ranks in each direction: behind the attention's and the feed-forward's second matrix. Source: Shoeybi et al. 2019
 * (Megatron-LM, arXiv 1909.08053). What is between blocks is held alike, or with sequence_parallel in shards of tokens: the sums
 * then end in shards, which are gathered before the next matrix (Korthikanti et al. 2022, arXiv 2205.05198).
 *
 * The pass reads the axes that parameters are tagged with and says how these rest; all else follows from the ops' index letters. The
 * loss over a vocabulary in shards is taken in parts, which are joined. */
#include <string.h>

#include "base/log.h"
#include "graph/op.h"
#include "ops/attention/attention.h"
#include "ops/linear_cross_entropy/cross_entropy_part.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "tensor_parallel_size",
     .aliases = "tp,tensor_parallel",
     .kind = SN_OPTION_INT,
     .default_text = "1",
     .metavar = "N",
     .help = "ranks over which heads, feed-forward and vocabulary are spread; neighbours: the innermost axis"},
    {.key = "sequence_parallel",
     .kind = SN_OPTION_SWITCH,
     .default_text = "off",
     .help = "with it: activations between blocks in shards of tokens"}};

/* Heads stay together in groups: those that share a key and value head, and as many groups as a block of a quantised row needs. */
typedef struct heads {
    int64_t groups;  /* key/value heads */
    int64_t columns; /* of a query */
    int64_t kv_columns;
    int64_t together; /* groups of a unit */
    bool fused;       /* q, k and v come from one weight */
} heads;

static sn_status find_heads(const sn_job *job, heads *h) {
    *h = (heads){.together = 1};
    for (int k = 0; k < job->n_graphs; k++) {
        const sn_graph *g = job->graphs[k];
        for (size_t i = 0; i < g->n_order; i++) {
            const sn_node *n = &g->nodes[g->order[i]];
            if (n->op != SN_OP_attention) continue;
            int64_t columns = g->values[n->in[0].value].shape.d[1], kv_columns = g->values[n->in[1].value].shape.d[1];
            int64_t groups = kv_columns / n->attrs.i[SN_ATTENTION_HEAD_DIM];
            if (h->groups && (h->groups != groups || h->columns != columns))
                return sn_fail(SN_ERR_UNSUPPORTED, "%s: layers have different numbers of heads", n->name);
            h->groups = groups;
            h->columns = columns;
            h->kv_columns = kv_columns;
            sn_nid maker = g->values[n->in[0].value].producer;
            h->fused |= maker != SN_NONE && g->nodes[maker].op == SN_OP_split_cols;
        }
    }
    return h->groups ? SN_OK : sn_fail(SN_ERR_PLAN, "no attention whose heads could be spread");
}

static bool is_heads(uint8_t axis) { return axis == SN_AXIS_HEADS || axis == SN_AXIS_KV_HEADS; }
static bool is_spread(uint8_t axis) { return is_heads(axis) || axis == SN_AXIS_MLP || axis == SN_AXIS_VOCAB; }

/* The dimension of a value that is spread; -1: none. */
static int spread_dim(const sn_persistent *e) {
    for (int d = 0; d < e->shape.rank; d++)
        if (is_spread(e->axes[d])) return d;
    return -1;
}

/* Elements of a dimension that stay together: whole blocks of a row, if rows are cut, as it rests and as its file has it. */
static int64_t block_of(const sn_persistent *e, int dim) {
    int64_t rest = sn_dtypes[e->rest.form].block, file = e->source.file >= 0 ? sn_dtypes[e->source.form].block : 1;
    return dim == 0 || dim != e->shape.rank - 1 ? 1 : rest > file ? rest : file;
}

/* How a dimension is shared out: ceil(units / ranks) units a rank, and each has to get some. */
static sn_status check_share(const char *what, int64_t units, int64_t ranks) {
    if (units < ranks)
        return sn_fail(SN_ERR_PLAN, "tensor_parallel_size is %lld, but the model has only %lld %s: at most so many ranks can share them",
                       (long long)ranks, (long long)units, what);
    int64_t each = (units + ranks - 1) / ranks;
    if (each * (ranks - 1) >= units)
        return sn_fail(SN_ERR_PLAN, "tensor_parallel_size is %lld: %lld %s, %lld a rank, leave nothing for the last of them",
                       (long long)ranks, (long long)units, what, (long long)each);
    return SN_OK;
}

/* q, k and v in one weight, beside each other. */
static bool is_fused(const sn_persistent *e, int dim, const heads *h) {
    return h->fused && e->axes[dim] == SN_AXIS_HEADS && e->shape.d[dim] == 3 * h->columns;
}

static sn_status check_extent(const sn_persistent *e, int dim, const heads *h) {
    int64_t wanted = e->axes[dim] == SN_AXIS_HEADS ? h->columns : h->kv_columns;
    if (!is_heads(e->axes[dim]) || e->shape.d[dim] == wanted || is_fused(e, dim, h)) return SN_OK;
    return sn_fail(
        SN_ERR_UNSUPPORTED,
        "tensor_parallel_size: %s holds several matrices in one (%lld columns, heads have %lld), which cannot be spread over ranks",
        e->name, (long long)e->shape.d[dim], (long long)wanted);
}

static sn_status choose_units(const sn_job *job, int64_t ranks, heads *h, int64_t *mlp) {
    SN_TRY(find_heads(job, h));
    int64_t width = 0, vocabulary = 0;
    *mlp = 1;
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        int dim = spread_dim(e);
        if (dim < 0) continue;
        int64_t block = block_of(e, dim), extent = e->shape.d[dim];
        SN_TRY(check_extent(e, dim, h));
        if (e->axes[dim] == SN_AXIS_MLP && block > *mlp) *mlp = block; /* blocks are powers of two */
        if (e->axes[dim] == SN_AXIS_MLP) width = extent;
        if (e->axes[dim] == SN_AXIS_VOCAB) vocabulary = extent;
        while (is_heads(e->axes[dim]) && h->together < h->groups && extent / h->groups * h->together % block) h->together++;
    }
    SN_TRY(check_share(h->together > 1 ? "runs of key/value heads that end with a block of a quantised row" : "key/value heads",
                       (h->groups + h->together - 1) / h->together, ranks));
    SN_TRY(check_share(*mlp > 1 ? "blocks of a quantised row of the feed-forward" : "columns of the feed-forward",
                       width ? (width + *mlp - 1) / *mlp : ranks, ranks));
    return check_share("rows of the vocabulary", vocabulary ? vocabulary : ranks, ranks);
}

static sn_status spread_weights(sn_job *job, int64_t ranks) {
    heads h;
    int64_t mlp;
    SN_TRY(choose_units(job, ranks, &h, &mlp));
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        int dim = spread_dim(e);
        if (dim < 0) continue;
        bool fused = is_fused(e, dim, &h);
        int64_t extent = e->shape.d[dim] / (fused ? 3 : 1);
        int64_t unit = is_heads(e->axes[dim]) ? extent / h.groups * h.together : e->axes[dim] == SN_AXIS_MLP ? mlp : 1;
        sn_home rest = e->rest;
        rest.split.axis[SN_MESH_TP] =
            (sn_split_axis){.kind = SN_SHARD, .dim = (uint8_t)dim, .at = fused ? SN_DEAL_THIRDS : SN_DEAL_RUN, .unit = (int32_t)unit};
        sn_job_set_rest(job, (sn_pid)p, rest);
    }
    return SN_OK;
}

/* The loss over a head in shards: each rank's part of what it is made of, joined on all. */
static sn_status part_loss(sn_graph *g, sn_nid id, int64_t ranks) {
    sn_node n = g->nodes[id];
    sn_vid loss = n.out[0], out[SN_MAX_OUT];
    sn_attrs a = {0}, j = {0};
    a.i[SN_CROSS_ENTROPY_PART_PARTS] = ranks;
    a.i[SN_CROSS_ENTROPY_PART_CHUNK] = n.attrs.i[SN_LINEAR_CROSS_ENTROPY_CHUNK];
    a.i[SN_CROSS_ENTROPY_PART_VOCAB] = j.i[SN_CROSS_ENTROPY_JOIN_VOCAB] = g->values[n.in[1].value].shape.d[0];
    sn_insert_before(g, id, "tensor_parallel");
    sn_vid part = sn_append1(g, SN_OP_cross_entropy_part, &a, 3, (sn_vid[]){n.in[0].value, n.in[1].value, n.in[2].value},
                             sn_name(g, "%s.part", n.name));
    sn_append(g, SN_OP_cross_entropy_join, &j, 3, (sn_vid[]){part, n.in[2].value, n.in[3].value}, n.name, out);
    SN_TRY(g->status);
    if (g->values[loss].output) {
        g->values[loss].output = false;
        sn_mark_output(g, out[0], g->values[loss].name);
    }
    sn_replace_uses(g, loss, out[0], 0);
    sn_insert_at_end(g, "model");
    return sn_graph_drop_unused(g);
}

static sn_status part_losses(sn_graph *g, int64_t ranks) {
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        if (n->op != SN_OP_linear_cross_entropy || g->values[n->in[1].value].rest.split.axis[SN_MESH_TP].kind != SN_SHARD) continue;
        SN_TRY(part_loss(g, g->order[k], ranks));
    }
    return g->status;
}

/* What is a sum over ranks and not used as a summand is summed once, where it is made: whole, or in shards of tokens. */
static sn_status rest_activations(sn_graph *g, bool tokens) {
    SN_TRY(sn_graph_infer_splits(g));
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++) {
            if (n->in[i].value == SN_NONE) continue;
            sn_value *v = &g->values[n->in[i].value];
            if (v->persistent != SN_NONE || v->result.axis[SN_MESH_TP].kind != SN_PARTIAL) continue;
            if (!n->in[i].has_split || n->in[i].split.axis[SN_MESH_TP].kind == SN_PARTIAL) continue;
            v->rests_split |= 1u << SN_MESH_TP;
            v->rest.split.axis[SN_MESH_TP] =
                tokens ? (sn_split_axis){.kind = SN_SHARD, .dim = 0, .unit = 1} : (sn_split_axis){.kind = SN_WHOLE};
        }
    }
    return sn_graph_infer_splits(g);
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    int ranks = cluster->mesh.size[SN_MESH_TP];
    bool tokens = sn_options_bool(recipe, "sequence_parallel");
    if (ranks <= 1) {
        if (tokens) sn_warn("sequence_parallel changes nothing without tensor_parallel_size");
        return SN_OK;
    }
    SN_TRY(spread_weights(job, ranks));
    for (int k = 0; k < job->n_graphs; k++) {
        SN_TRY(part_losses(job->graphs[k], ranks));
        SN_TRY(rest_activations(job->graphs[k], tokens));
    }
    return SN_OK;
}

static bool is_spread_over_ranks(const sn_options *r) { return sn_options_int(r, "tensor_parallel_size") > 1; }
static bool with_whole_matrices(const sn_options *r) {
    const char *rule = sn_options_string(r, "optimizer");
    return is_spread_over_ranks(r) && (!strcmp(rule, "adafactor") || !strcmp(rule, "muon") || !strcmp(rule, "galore"));
}

static const sn_conflict conflicts[] = {
    {with_whole_matrices,
     "tensor_parallel_size: adafactor, muon and galore work on whole matrices, of which each rank has a part: take adamw, lion or sgd"}};

const sn_pass sn_pass_tensor_parallel = {
    .name = "tensor_parallel",
    .saves = "weights, gradients, states and activations of heads, feed-forward and vocabulary in parts; two sums a block and direction",
    .run = run,
    .options = SN_OPTION_GROUP("Tensor parallel", options),
    .mesh_key = "tensor_parallel_size",
    .mesh_axis = SN_MESH_TP,
    SN_PASS_CONFLICTS(conflicts)};
