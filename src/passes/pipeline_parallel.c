/* Pipeline parallelism: the blocks of the model are cut evenly over the stages, embedding on the first, head on the last; each stage holds
 * its blocks' weights, gradients and states, and passes activations on and their gradients back. The micro-batches of a step go through
 * in one program, ordered so that stage s of n keeps at most n - s of them alive. A table that both ends use rests on both, and each adds
 * up its own part of the gradient; before the update the parts are exchanged. The gradient norm is summed over all stages, such a table
 * counted once. Sums are in the order of micro-batches: the same bits as one rank, but for that table. Sources: in
 * pipeline_parallel_schedule.c. */
#include "passes/pipeline_parallel.h"

#include <string.h>

#include "base/log.h"
#include "graph/op.h"
#include "ops/send_recv/send_recv.h"

static const sn_option options[] = {{.key = "pipeline_parallel_size",
                                     .aliases = "pp,pipeline_parallel",
                                     .kind = SN_OPTION_INT,
                                     .default_text = "1",
                                     .metavar = "N",
                                     .help = "stages of blocks, each on a run of ranks: the outermost axis",
                                     .has_least = true,
                                     .least = 1},
                                    {.key = "virtual_pipeline_size",
                                     .kind = SN_OPTION_INT,
                                     .default_text = "1",
                                     .metavar = "N",
                                     .has_least = true,
                                     .least = 1,
                                     .help = "runs of blocks a stage, which interleave: shorter waits, more alive"},
                                    {.key = "pipeline_schedule",
                                     .kind = SN_OPTION_CHOICE,
                                     .choices = "1f1b,gpipe",
                                     .default_text = "1f1b",
                                     .help = "one forward, one backward in turn; or all forward first"}};

static int stage_of(const sn_pipeline *p, int32_t layer) { return sn_pipeline_chunk(p, layer) % p->stages; }

/* What stands before the first block and behind the last one, by persistent value. */
enum { BEFORE = 1, BEHIND = 2 };

static bool uses_weights(const sn_graph *g, const sn_node *n) {
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value != SN_NONE && g->values[n->in[i].value].persistent != SN_NONE) return true;
    return false;
}

/* Places the nodes of blocks, and the forward ones around them that use weights. The others are where their inputs are: what is made of
 * the inputs of the program alone is everywhere. */
static void place_nodes(sn_graph *g, const sn_pipeline *p, uint8_t *sides) {
    bool behind = false;
    for (size_t k = 0; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        if (n->phase == SN_PHASE_UPDATE) continue;
        behind |= n->layer >= 0;
        if (n->layer >= 0) n->where.axis[SN_MESH_PP] = sn_at(stage_of(p, n->layer));
        else if (n->phase == SN_PHASE_FORWARD && uses_weights(g, n)) n->where.axis[SN_MESH_PP] = sn_at(behind ? p->stages - 1 : 0);
        else continue;
        n->is_placed = true;
        for (int i = 0; n->layer < 0 && i < n->n_in; i++) {
            sn_pid w = n->in[i].value == SN_NONE ? SN_NONE : g->values[n->in[i].value].persistent;
            if (w != SN_NONE) sides[w] |= behind ? BEHIND : BEFORE;
        }
    }
}

static void place_values(sn_job *job, const sn_pipeline *p, const uint8_t *sides) {
    for (size_t i = 0; i < job->n_persistent; i++) {
        const sn_persistent *e = &job->persistent[i];
        sn_home rest = e->rest;
        sn_split_axis *x = &rest.split.axis[SN_MESH_PP];
        int last = p->stages - 1;
        if (e->parent != SN_NONE) *x = job->persistent[e->parent].rest.split.axis[SN_MESH_PP];
        else if (e->class_of == SN_CLASS_OPTIMIZER) *x = (sn_split_axis){.kind = SN_PARTIAL}; /* norms: each stage adds its own */
        else if (e->layer >= 0) *x = sn_at(stage_of(p, e->layer));
        else if (sides[i] == (BEFORE | BEHIND)) *x = (sn_split_axis){.kind = SN_AT, .at = 0, .also = last};
        else if (sides[i]) *x = sn_at(sides[i] == BEFORE ? 0 : last);
        sn_job_set_rest(job, (sn_pid)i, rest);
    }
}

/* The first contribution to a gradient is written, on each of the two stages. */
static void write_first(sn_graph *g, sn_vid gradient) {
    const sn_split_axis *homes = &g->values[gradient].rest.split.axis[SN_MESH_PP];
    bool written[2] = {false, false};
    for (size_t k = 0; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        bool writes = n->op == SN_OP_copy && n->out[0] == gradient, adds = n->op == SN_OP_accumulate && n->in[0].value == gradient;
        if (!writes && !adds) continue;
        int second = n->where.axis[SN_MESH_PP].at != homes->at;
        if (!written[second]) {
            sn_use contribution = n->in[adds];
            n->op = SN_OP_copy;
            n->n_in = 2;
            n->n_out = 1;
            n->in[0] = contribution;
            n->in[1] = sn_use_of(gradient);
            n->out[0] = SN_NONE;
            n->made_by = "pipeline_parallel";
        }
        written[second] = true;
    }
    g->values[gradient].producer = SN_NONE;
}

static sn_vid part_of_other(sn_graph *g, sn_vid gradient, int from, int to) {
    sn_attrs a = {0};
    sn_vid out[SN_MAX_OUT];
    a.i[SN_SEND_RECV_AXIS] = SN_MESH_PP;
    a.i[SN_SEND_RECV_FROM] = from;
    a.i[SN_SEND_RECV_TO] = to;
    g->where.axis[SN_MESH_PP] = (sn_split_axis){.kind = SN_AT, .at = (uint16_t)from, .also = to};
    sn_nid n = sn_append(g, SN_OP_send_recv, &a, 1, &gradient, g->values[gradient].name, out);
    if (n == SN_NONE) return SN_NONE;
    g->nodes[n].is_placed = true;
    g->values[out[0]].class_of = SN_CLASS_COMMUNICATION;
    g->values[out[0]].result.axis[SN_MESH_PP] = sn_at(to);
    return out[0];
}

/* Each of two stages adds the other's part: both have the sum, in the same bits. */
static sn_status add_parts(sn_graph *g, sn_vid gradient) {
    const sn_split_axis homes = g->values[gradient].rest.split.axis[SN_MESH_PP];
    int stages[2] = {homes.at, homes.also};
    sn_vid parts[2], out[SN_MAX_OUT];
    for (int i = 0; i < 2; i++) parts[i] = part_of_other(g, gradient, stages[!i], stages[i]);
    for (int i = 0; i < 2 && g->status == SN_OK; i++) {
        g->where.axis[SN_MESH_PP] = sn_at(stages[i]);
        sn_nid n = sn_append(g, SN_OP_accumulate, NULL, 2, (sn_vid[]){gradient, parts[i]}, g->values[gradient].name, out);
        if (n != SN_NONE) g->nodes[n].is_placed = true;
    }
    return g->status;
}

static sn_status share_gradients(sn_graph *g) {
    const sn_job *job = g->job;
    sn_status s = sn_graph_infer_splits(g);
    for (size_t i = 0; s == SN_OK && i < job->n_persistent; i++) {
        const sn_split_axis *homes = &job->persistent[i].rest.split.axis[SN_MESH_PP];
        if (job->persistent[i].class_of != SN_CLASS_GRADIENTS || homes->kind != SN_AT || homes->at == homes->also) continue;
        sn_vid gradient = sn_use_persistent(g, (sn_pid)i);
        write_first(g, gradient);
        sn_insert_at_end(g, "pipeline_parallel");
        g->phase = SN_PHASE_UPDATE;
        for (g->insert_at = 0; g->insert_at < g->n_order && g->nodes[g->order[g->insert_at]].phase != SN_PHASE_UPDATE;) g->insert_at++;
        s = add_parts(g, gradient);
    }
    g->phase = SN_PHASE_FORWARD;
    sn_insert_at_end(g, "model");
    return s;
}

static sn_status read_options(const sn_job *job, const sn_options *recipe, sn_pipeline *p) {
    p->turns = (int)sn_options_int(recipe, "virtual_pipeline_size");
    p->gpipe = !strcmp(sn_options_string(recipe, "pipeline_schedule"), "gpipe");
    int later = sn_job_role_index(job, SN_ROLE_TRAIN_NEXT);
    p->micro_batches = later < 0 ? 1 : 1 + job->graphs[later]->times;
    for (size_t i = 0; i < job->n_persistent; i++)
        if (job->persistent[i].layer >= p->layers) p->layers = job->persistent[i].layer + 1;
    if (p->turns > p->layers || sn_pipeline_chunks(p) > p->layers)
        return sn_fail(SN_ERR_PLAN,
                       "pipeline_parallel_size %d, virtual_pipeline_size %d: the model's %lld blocks are too few for %lld runs of blocks",
                       p->stages, p->turns, (long long)p->layers, (long long)p->stages * p->turns);
    if (p->turns > 1 && p->micro_batches % p->stages)
        return sn_fail(SN_ERR_PLAN, "virtual_pipeline_size %d takes micro-batches in groups of %d, but gradient_accumulation_steps is %lld",
                       p->turns, p->stages, (long long)p->micro_batches);
    if (p->micro_batches > INT16_MAX)
        return sn_fail(SN_ERR_PLAN, "%lld micro-batches are too many for one program", (long long)p->micro_batches);
    return SN_OK;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    sn_pipeline p = {.stages = cluster->mesh.size[SN_MESH_PP]};
    int train = sn_job_role_index(job, SN_ROLE_TRAIN);
    if (p.stages <= 1) return SN_OK;
    if (job->turns.count > 1)
        return sn_fail(SN_ERR_PLAN, "pipeline_parallel_size %d: blocks that take turns have no use for stages", p.stages);
    SN_TRY(read_options(job, recipe, &p));
    if (train >= 0 && p.micro_batches < p.stages)
        sn_warn("%lld micro-batches a step (gradient_accumulation_steps) leave %d pipeline stages idle for most of it",
                (long long)p.micro_batches, p.stages);
    uint8_t *sides = sn_alloc_zero(job->n_persistent + 1, 1);
    if (!sides) return sn_fail(SN_ERR_NO_MEMORY, "cannot place the weights of a pipeline");
    for (int k = 0; k < job->n_graphs; k++) place_nodes(job->graphs[k], &p, sides);
    place_values(job, &p, sides);
    sn_free(sides);
    SN_TRY(sn_pipeline_join(job, &p));
    return train < 0 ? SN_OK : share_gradients(job->graphs[sn_job_role_index(job, SN_ROLE_TRAIN)]);
}

static bool turns_alone(const sn_options *r) {
    return sn_options_int(r, "virtual_pipeline_size") > 1 && sn_options_int(r, "pipeline_parallel_size") == 1;
}
static const sn_conflict conflicts[] = {
    {turns_alone, "virtual_pipeline_size divides the stages of a pipeline: it needs pipeline_parallel_size"}};

const sn_pass sn_pass_pipeline_parallel = {
    .name = "pipeline_parallel",
    .saves = "blocks, their gradients and states spread over stages, activations of at most as many micro-batches as stages",
    .run = run,
    .options = SN_OPTION_GROUP("Pipeline", options),
    .mesh_key = "pipeline_parallel_size",
    .mesh_axis = SN_MESH_PP,
    SN_PASS_CONFLICTS(conflicts)};
