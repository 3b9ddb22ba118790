/* Offload of activations: what forward writes and backward reads rests in the host tier, or on disk, between the two. Forward itself goes
 * on with what it has at hand; backward, which recomputation has already fed with what a segment keeps, reads the value at rest. What has
 * to be moved follows (move). Bits do not change. Source: ZeRO-Offload's activation checkpoints (Rajbhandari et al. 2021,
 * arXiv 2104.07857, section 5.1.2). */
#include "ops/copy/copy.h"
#include "passes/offload.h"

static const sn_option options[] = {{.key = "offload_activations",
                                     .kind = SN_OPTION_STRING,
                                     .default_text = "none",
                                     .metavar = "none|host|disk[:F]",
                                     .deepspeed = "activation_checkpointing.cpu_checkpointing=host",
                                     .help = "where activations rest between forward and backward; F: the share of them, 0 to 1"}};

static uint64_t bytes_of(const sn_value *v) {
    size_t bytes;
    return sn_shape_bytes(&v->shape, v->dtype, &bytes) ? bytes : 0;
}

/* How a value is spread where it is kept: as it is made, or as a pass says. */
static sn_split resting(const sn_value *v) {
    sn_split s = v->result;
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (v->rests_split >> a & 1) s.axis[a] = v->rest.split.axis[a];
    return s;
}

/* Written in forward, and read in backward. A summand is used when it is summed, and stays. */
static bool crosses(const sn_graph *g, const bool *read_back, sn_vid v) {
    const sn_value *x = &g->values[v];
    const sn_split rest = resting(x);
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (g->job->mesh.size[a] > 1 && rest.axis[a].kind == SN_PARTIAL) return false;
    return read_back[v] && x->persistent == SN_NONE && !x->input && !x->output && x->producer != SN_NONE &&
           g->nodes[x->producer].phase == SN_PHASE_FORWARD;
}

/* Whether a node of backward reads input i where it was made. What it was sent in forward, it has. */
static bool reads_back(const sn_graph *g, const sn_node *n, int i) {
    if (n->phase != SN_PHASE_BACKWARD || n->in[i].value == SN_NONE) return false;
    for (int a = 0; a < SN_MESH_AXES; a++) {
        const sn_split_axis *made = &g->values[n->in[i].value].result.axis[a];
        if (made->kind == SN_AT && !(n->where.axis[a].kind == SN_AT && sn_axis_within(&n->where.axis[a], made))) return false;
    }
    return true;
}

static void find_readers(const sn_graph *g, bool *read_back) {
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (reads_back(g, n, i)) read_back[n->in[i].value] = true;
    }
}

/* Programs of a step have the same activations, by name and number, in the same place. */
static sn_pid home_of(sn_graph *g, const sn_value *v, size_t number, sn_tier tier) {
    const char *name = sn_name(g, "activation.%zu.%s", number, v->name ? v->name : "value");
    sn_pid p = name ? sn_job_find(g->job, name) : SN_NONE;
    if (name && p == SN_NONE) p = sn_job_add_persistent(g->job, name, SN_CLASS_ACTIVATIONS, v->dtype, v->shape);
    if (p == SN_NONE) return p;
    sn_home rest = g->job->persistent[p].rest;
    rest.tier = tier;
    rest.split = resting(v);
    sn_job_set_rest(g->job, p, rest);
    return p;
}

/* Behind its producer a value is copied to where it rests; what backward reads is that. */
static sn_status send_home(sn_graph *g, sn_vid v, sn_pid home, sn_tier tier) {
    sn_attrs a = {0};
    sn_vid out[SN_MAX_OUT], at = sn_use_persistent(g, home);
    SN_TRY(g->status);
    a.i[SN_COPY_TIER] = tier;
    sn_insert_after(g, g->values[v].producer, "offload_activations");
    sn_nid copy = sn_append(g, SN_OP_copy, &a, 2, (sn_vid[]){v, at}, g->values[v].name, out);
    SN_TRY(g->status);
    g->nodes[copy].phase = SN_PHASE_FORWARD;
    for (size_t k = 0; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value == v && reads_back(g, n, i)) n->in[i].value = at;
    }
    return SN_OK;
}

static sn_status place_activations(sn_graph *g, const sn_offload_place *to) {
    uint64_t all = 0, placed = 0;
    size_t n = g->n_values, number = 0;
    bool *read_back = sn_alloc_zero(n, sizeof *read_back);
    sn_status s = read_back ? sn_graph_infer_splits(g) : sn_fail(SN_ERR_NO_MEMORY, "cannot look for activations of %s", g->name);
    if (s == SN_OK) find_readers(g, read_back);
    for (size_t v = 0; s == SN_OK && v < n; v++)
        if (crosses(g, read_back, (sn_vid)v)) all += bytes_of(&g->values[v]);
    for (size_t v = 0; s == SN_OK && v < n && (double)placed < to->share * (double)all; v++) { /* the first rest longest */
        if (!crosses(g, read_back, (sn_vid)v)) continue;
        placed += bytes_of(&g->values[v]);
        sn_pid home = home_of(g, &g->values[v], number++, to->tier);
        s = home == SN_NONE ? sn_fail(SN_ERR_NO_MEMORY, "cannot add a home for activations") : send_home(g, (sn_vid)v, home, to->tier);
    }
    sn_free(read_back);
    return s;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    sn_offload_place to;
    SN_TRY(sn_offload_read(job, recipe, cluster, "offload_activations", &to));
    if (to.tier == SN_TIER_DEVICE) return SN_OK;
    for (int k = 0; k < job->n_graphs; k++)
        if (sn_role_trains(job->graphs[k]->role)) SN_TRY(place_activations(job->graphs[k], &to));
    return SN_OK;
}

const sn_pass sn_pass_offload_activations = {.name = "offload_activations",
                                             .saves = "activations rest in host memory or on disk between forward and backward",
                                             .run = run,
                                             .options = SN_OPTION_GROUP("Offload of activations", options)};
