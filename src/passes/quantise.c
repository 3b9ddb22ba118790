/* Quantised weights used as they are: a frozen weight rests in the form of its file, and ops that take that form read
 * it directly. Against f32 activations this gives the bits of the weight widened to f32, so beside adapters a quantised
 * file's weights stay as they are unless `keep_quantised` says otherwise; in 16 bits it has to be asked for. With LoRA
 * this is QLoRA (Dettmers et al. 2023, arXiv 2305.14314), here with GGUF's block formats.
 * For generation, activations may be quantised too (activations = q8): the use of a matmul's input gets an 8-bit form,
 * and integer products do the work; llama.cpp computes this way. */
#include <string.h>

#include "graph/op.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "keep_quantised", .kind = SN_OPTION_FLAG, .help = "frozen weights stay in the form of their file"},
    {.key = "activations",
     .kind = SN_OPTION_CHOICE,
     .choices = "f32,q8",
     .default_text = "f32",
     .help = "form of a quantised matmul's input"}};

static sn_dtype activation_form(sn_dtype weight) { return sn_dtypes[weight].block == 256 ? SN_Q8_K : SN_Q8_1; }

/* Whether every op that reads persistent p, in every program, takes `form` as it is. */
static bool all_uses_accept(const sn_job *job, sn_pid p, sn_dtype form) {
    for (int k = 0; k < job->n_graphs; k++) {
        const sn_graph *g = job->graphs[k];
        for (size_t i = 0; i < g->n_order; i++) {
            const sn_node *n = &g->nodes[g->order[i]];
            for (int j = 0; j < n->n_in; j++) {
                if (n->in[j].value == SN_NONE || g->values[n->in[j].value].persistent != p) continue;
                sn_call call;
                sn_node_call(g, n, &call);
                if (!sn_ops[n->op]->accepts || !sn_ops[n->op]->accepts(&call, j, form)) return false;
            }
        }
    }
    return true;
}

/* A model without files is planned as its usual 4-bit GGUF: q4_0 matrices, q8_0 embedding. */
static sn_dtype form_of_shape(const sn_persistent *e) {
    if (e->shape.rank != 2 || e->shape.d[1] % 32 || e->axes[1] == SN_AXIS_RANK || e->axes[0] == SN_AXIS_RANK) return SN_F32;
    return e->axes[0] == SN_AXIS_VOCAB ? SN_Q8_0 : SN_Q4_0;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    bool asked = sn_options_bool(recipe, "qlora") || sn_options_bool(recipe, "keep_quantised");
    bool exact = sn_job_trains_adapters(job) && !sn_options_given(recipe, "keep_quantised");
    if (!asked && !exact) return SN_OK;
    for (size_t p = 0; p < job->n_persistent; p++) {
        sn_persistent *e = &job->persistent[p];
        if (e->trainable || e->class_of != SN_CLASS_WEIGHTS || (!asked && e->rest.form != SN_F32)) continue;
        if (e->source.file < 0 && asked) e->source.form = form_of_shape(e);
        if (!sn_dtype_is_quantised(e->source.form)) continue;
        if (!all_uses_accept(job, (sn_pid)p, e->source.form)) continue;
        sn_home rest = e->rest;
        rest.form = e->source.form;
        sn_job_set_rest(job, (sn_pid)p, rest);
    }
    bool q8 = !strcmp(sn_options_string(recipe, "activations"), "q8");
    for (int k = 0; k < job->n_graphs; k++) {
        sn_graph *g = job->graphs[k];
        SN_TRY(sn_graph_infer(g));
        for (size_t i = 0; q8 && i < g->n_order; i++) {
            sn_node *n = &g->nodes[g->order[i]];
            if (n->op != SN_OP_matmul || n->phase != SN_PHASE_FORWARD) continue;
            sn_dtype weight = g->values[n->in[1].value].dtype;
            int64_t columns = g->values[n->in[0].value].shape.d[1];
            if (sn_dtype_is_quantised(weight) && columns % sn_dtypes[activation_form(weight)].block == 0)
                n->in[0].form = (uint8_t)activation_form(weight);
        }
    }
    return SN_OK;
}

static bool with_full(const sn_options *r) { return sn_options_bool(r, "full") && sn_options_bool(r, "keep_quantised"); }

static const sn_conflict conflicts[] = {
    {with_full, "--full trains every weight, so none can stay quantised (quantised forms cannot be updated)"}};
static const sn_inference_option inference[] = {{"keep_quantised", "true", "true"}, {"activations", NULL, "q8"}};

const sn_pass sn_pass_quantise = {.name = "quantise",
                                  .saves = "frozen weights stay in the form of their file",
                                  .run = run,
                                  .options = SN_OPTION_GROUP("Quantised weights", options),
                                  SN_PASS_INFERENCE(inference),
                                  SN_PASS_CONFLICTS(conflicts)};
