/* Mixed precision: activations, weights and gradients in bf16 or f16, with an f32 master of each trained weight from
 * which the update writes the 16-bit weight. fp16 needs loss scaling, which the engine feeds through `scale`.
 * Source: Micikevicius et al. 2017 (arXiv 1710.03740). */
#include <string.h>

#include "ops/embedding/embedding.h"
#include "ops/linear_cross_entropy/linear_cross_entropy.h"
#include "ops/matmul/matmul.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "precision",
     .deepspeed = "bf16.enabled=bf16,fp16.enabled=fp16",
     .often = true,
     .aliases = "bf16=bf16,fp16=fp16",
     .kind = SN_OPTION_CHOICE,
     .choices = "f32,bf16,fp16",
     .default_text = "f32",
     .help = "form of weights and activations"},
    {.key = "gradient_dtype",
     .deepspeed = "data_types.grad_accum_dtype:fp32=f32,data_types.grad_accum_dtype:bf16=bf16,data_types.grad_accum_dtype:fp16=fp16",
     .kind = SN_OPTION_CHOICE,
     .choices = "auto,f32,bf16,fp16",
     .default_text = "auto",
     .help = "form of gradients at rest"}};

static sn_dtype named(const char *text) { return !strcmp(text, "bf16") ? SN_BF16 : !strcmp(text, "fp16") ? SN_F16 : SN_F32; }

static sn_status add_master(sn_job *job, sn_pid p) {
    sn_persistent weight = job->persistent[p];
    char *name = sn_pool_printf(&job->pool, "%s.master", weight.name);
    sn_pid m = name ? sn_job_add_persistent(job, name, SN_CLASS_OPTIMIZER, SN_F32, weight.shape) : SN_NONE;
    if (m == SN_NONE) return sn_fail(SN_ERR_NO_MEMORY, "cannot add the master of %s", weight.name);
    sn_persistent *e = &job->persistent[m];
    e->source = weight.source;
    sn_job_derive(job, m, p);
    return SN_OK;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    sn_dtype form = named(sn_options_string(recipe, "precision"));
    if (form == SN_F32) return SN_OK;
    size_t n = job->n_persistent;
    for (size_t p = 0; p < n; p++) {
        sn_persistent *e = &job->persistent[p];
        if (e->class_of != SN_CLASS_WEIGHTS || sn_dtype_is_quantised(e->rest.form)) continue;
        e->rest.form = form;
        if (e->trainable) SN_TRY(add_master(job, (sn_pid)p));
    }
    for (int k = 0; k < job->n_graphs; k++) {
        sn_graph *g = job->graphs[k];
        for (size_t i = 0; i < g->n_values; i++) {
            sn_value *v = &g->values[i];
            if (v->persistent != SN_NONE) v->dtype = v->rest.form = job->persistent[v->persistent].rest.form;
        }
        for (size_t i = 0; i < g->n_order; i++) {
            sn_node *node = &g->nodes[g->order[i]];
            if (node->op == SN_OP_embedding) node->attrs.i[SN_EMBEDDING_DTYPE] = form;
            if (node->op == SN_OP_matmul && !(node->out[0] != SN_NONE && g->values[node->out[0]].output))
                node->attrs.i[SN_MATMUL_DTYPE] = form;
        }
        SN_TRY(sn_graph_infer(g));
    }
    return SN_OK;
}

/* The loss scale is dynamic. */
static const char hints[] =
    "fp16.auto_cast:false,fp16.loss_scale:0,fp16.initial_scale_power,fp16.loss_scale_window,fp16.hysteresis,fp16.min_loss_scale";

static const sn_choice choices[] = {{"precision", "bf16", SN_CHOICE_LOSSY, {0}}};
static const sn_inference_option inference[] = {{"precision", NULL, NULL}};

const sn_pass sn_pass_precision = {.name = "precision",
                                   .saves = "16-bit activations, weights and gradients, f32 masters",
                                   .run = run,
                                   .options = SN_OPTION_GROUP("Precision", options),
                                   .deepspeed_hints = hints,
                                   SN_PASS_INFERENCE(inference),
                                   SN_PASS_CHOICES(choices)};
