/* The update: squared norm of each gradient, one clip factor, one update a parameter. In the program that makes the gradients,
 * or in one of its own where they accumulate over several micro-batches.
 *
 * Sources: AdamW, Loshchilov and Hutter 2017 (arXiv 1711.05101), in torch.optim.AdamW's arithmetic; clipping by the
 * global norm, Pascanu et al. 2012. Weight decay applies to matrices, not to norms and biases. */
#include <string.h>

#include "ops/adamw/adamw.h"
#include "ops/clip_factor/clip_factor.h"
#include "ops/sgd/sgd.h"
#include "ops/sum_units/sum_units.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "optimizer", .deepspeed = "optimizer.type:AdamW=adamw,optimizer.type:Adam=adamw,optimizer.type:SGD=sgd", .often = true, .aliases = "optim", .kind = SN_OPTION_CHOICE, .choices = "adamw,sgd", .default_text = "adamw", .help = "update rule"},
    {.key = "adam_beta1", .deepspeed = "optimizer.params.betas.0", .kind = SN_OPTION_FLOAT, .default_text = "0.9", .help = "decay of the first moment"},
    {.key = "adam_beta2", .deepspeed = "optimizer.params.betas.1", .kind = SN_OPTION_FLOAT, .default_text = "0.999", .help = "decay of the second moment"},
    {.key = "adam_epsilon", .deepspeed = "optimizer.params.eps", .kind = SN_OPTION_FLOAT, .default_text = "1e-8", .help = "added to the root of the second moment"},
    {.key = "weight_decay", .deepspeed = "optimizer.params.weight_decay", .often = true, .kind = SN_OPTION_FLOAT, .default_text = "0", .help = "decoupled weight decay of matrices"},
    {.key = "momentum", .deepspeed = "optimizer.params.momentum", .kind = SN_OPTION_FLOAT, .default_text = "0", .help = "of sgd"},
    {.key = "max_grad_norm", .deepspeed = "gradient_clipping", .kind = SN_OPTION_FLOAT, .default_text = "1", .help = "clip the global gradient norm; 0: never"},
    {.key = "moment_dtype", .kind = SN_OPTION_CHOICE, .choices = "f32,bf16", .default_text = "f32", .help = "form of the moments; bf16 rounds stochastically"}};

static sn_pid child(sn_job *job, sn_pid parent, const char *suffix, sn_dtype form) {
    const char *name = sn_pool_printf(&job->pool, "%s.%s", job->persistent[parent].name, suffix);
    sn_pid p = name ? sn_job_add_persistent(job, name, SN_CLASS_OPTIMIZER, form, job->persistent[parent].shape) : SN_NONE;
    if (p == SN_NONE) return p;
    job->persistent[p].parent = parent;
    job->persistent[p].layer = job->persistent[parent].layer;
    memcpy(job->persistent[p].axes, job->persistent[parent].axes, sizeof job->persistent[p].axes);
    return p;
}

typedef struct update {
    sn_graph *g;
    sn_vid norms, hyper, clip;
    const sn_options *recipe;
    bool sgd;
    sn_dtype moments;
} update;

static sn_status update_parameter(update *u, sn_pid p, sn_pid gradient, int index) {
    sn_graph *g = u->g;
    sn_job *job = g->job;
    const sn_options *r = u->recipe;
    double decay = job->persistent[p].decays ? sn_options_float(r, "weight_decay") : 0;
    sn_pid master = sn_job_master(job, p);
    sn_vid w = sn_use_persistent(g, master == SN_NONE ? p : master), w16 = master == SN_NONE ? SN_NONE : sn_use_persistent(g, p);
    sn_vid grad = sn_use_persistent(g, gradient), out[SN_MAX_OUT];
    const char *name = sn_name(g, "%s", job->persistent[p].name);
    sn_attrs a = {0};
    g->layer = job->persistent[p].layer;
    if (u->sgd) {
        double momentum = sn_options_float(r, "momentum");
        sn_pid m = momentum > 0 ? child(job, p, "momentum", u->moments) : SN_NONE;
        if (momentum > 0 && m == SN_NONE) return sn_fail(SN_ERR_NO_MEMORY, "cannot add the momentum of %s", name);
        a.i[SN_SGD_PARAMETER] = index;
        a.f[SN_SGD_MOMENTUM] = momentum;
        a.f[SN_SGD_WEIGHT_DECAY] = decay;
        sn_vid in[] = {w, grad, m == SN_NONE ? SN_NONE : sn_use_persistent(g, m), u->hyper, u->clip, w16};
        sn_append(g, SN_OP_sgd, &a, w16 == SN_NONE ? 5 : 6, in, name, out);
        return g->status;
    }
    sn_pid m = child(job, p, "exp_avg", u->moments), v = child(job, p, "exp_avg_sq", u->moments);
    if (m == SN_NONE || v == SN_NONE) return sn_fail(SN_ERR_NO_MEMORY, "cannot add the moments of %s", name);
    a.i[SN_ADAMW_PARAMETER] = index;
    a.f[SN_ADAMW_BETA1] = sn_options_float(r, "adam_beta1");
    a.f[SN_ADAMW_BETA2] = sn_options_float(r, "adam_beta2");
    a.f[SN_ADAMW_EPS] = sn_options_float(r, "adam_epsilon");
    a.f[SN_ADAMW_WEIGHT_DECAY] = decay;
    sn_vid in[] = {w, grad, sn_use_persistent(g, m), sn_use_persistent(g, v), u->hyper, u->clip, w16};
    sn_append(g, SN_OP_adamw, &a, w16 == SN_NONE ? 6 : 7, in, name, out);
    return g->status;
}

static sn_status build_update(sn_graph *g, const sn_options *recipe) {
    sn_job *job = g->job;
    size_t n = job->n_persistent;
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += job->persistent[i].class_of == SN_CLASS_GRADIENTS;
    if (!count) return sn_fail(SN_ERR_PLAN, "nothing to update: no parameter has a gradient");
    sn_pid norms = sn_job_add_persistent(job, "gradient_norms", SN_CLASS_OPTIMIZER, SN_F64, sn_shape_of(count));
    if (norms == SN_NONE) return SN_ERR_NO_MEMORY;
    sn_insert_at_end(g, "optimizer");
    g->phase = SN_PHASE_UPDATE;
    update u = {.g = g, .norms = sn_use_persistent(g, norms), .hyper = sn_input(g, "hyper", SN_F32, sn_shape_of(8)), .recipe = recipe};
    u.sgd = !strcmp(sn_options_string(recipe, "optimizer"), "sgd");
    u.moments = !strcmp(sn_options_string(recipe, "moment_dtype"), "bf16") ? SN_BF16 : SN_F32;
    sn_vid out[SN_MAX_OUT];
    int64_t slot = 0;
    for (size_t i = 0; i < n; i++) {
        if (job->persistent[i].class_of != SN_CLASS_GRADIENTS) continue;
        sn_attrs a = {0};
        a.i[SN_SUM_UNITS_SLOT] = slot++;
        sn_vid gradient = sn_use_persistent(g, (sn_pid)i), units = sn_append1(g, SN_OP_sum_squares, NULL, 1, &gradient, job->persistent[i].name);
        sn_append(g, SN_OP_sum_units, &a, 2, (sn_vid[]){u.norms, units}, job->persistent[i].name, out);
    }
    sn_attrs a = {.f[SN_CLIP_FACTOR_MAX_NORM] = sn_options_float(recipe, "max_grad_norm")};
    u.clip = sn_append1(g, SN_OP_clip_factor, &a, 2, (sn_vid[]){u.norms, u.hyper}, "clip");
    sn_mark_output(g, u.clip, "clip");
    SN_TRY(g->status);
    int index = 0;
    for (size_t i = 0; i < n; i++)
        if (job->persistent[i].class_of == SN_CLASS_GRADIENTS) SN_TRY(update_parameter(&u, job->persistent[i].parent, (sn_pid)i, index++));
    g->phase = SN_PHASE_FORWARD;
    sn_insert_at_end(g, "model");
    return g->status;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    int k = sn_job_role_index(job, SN_ROLE_UPDATE);
    if (k < 0) k = sn_job_role_index(job, SN_ROLE_TRAIN);
    return k < 0 ? SN_OK : build_update(job->graphs[k], recipe);
}

/* DeepSpeed's Adam decays as AdamW unless it is told otherwise. */
static const char hints[] = "optimizer.params.adam_w_mode:true,optimizer.params.torch_adam,optimizer.params.bias_correction:true,"
                            "optimizer.params.amsgrad:false,optimizer.params.nesterov:false,optimizer.params.dampening:0";

static const sn_choice choices[] = {{"moment_dtype", "bf16", SN_CHOICE_LOSSY}};

const sn_pass sn_pass_optimizer = {.name = "optimizer",
                                   .saves = "gradient norm, clipping, AdamW or SGD",
                                   .run = run,
                                   .options = SN_OPTION_GROUP("Optimizer", options),
                                   .deepspeed_hints = hints,
                                   SN_PASS_CHOICES(choices)};
