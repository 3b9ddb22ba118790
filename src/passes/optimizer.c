/* The update: squared norm of each gradient, one clip factor, one update a parameter by the chosen rule (a file a rule). In the
 * program that makes the gradients, or in one of its own where they accumulate over several micro-batches.
 *
 * Source: clipping by the global norm, Pascanu et al. 2012. Weight decay applies to matrices, not to norms and biases. */
#include <string.h>

#include "ops/clip_factor/clip_factor.h"
#include "ops/sum_units/sum_units.h"
#include "passes/optimizer.h"

static const sn_option options[] = {
    {.key = "optimizer",
     .deepspeed = "optimizer.type:AdamW=adamw,optimizer.type:Adam=adamw,optimizer.type:Lion=lion,optimizer.type:SGD=sgd",
     .often = true,
     .aliases = "optim",
     .kind = SN_OPTION_CHOICE,
     .choices = "adamw,adamw_8bit,adafactor,lion,muon,galore,sgd",
     .also = "adamw_torch=adamw,adamw_torch_fused=adamw,adamw_bnb_8bit=adamw_8bit,lion_32bit=lion,galore_adamw=galore",
     .default_text = "adamw",
     .help = "update rule"},
    {.key = "adam_beta1",
     .deepspeed = "optimizer.params.betas.0",
     .kind = SN_OPTION_FLOAT,
     .default_text = "0.9",
     .help = "decay of the first moment (adamw, adamw_8bit, lion)"},
    {.key = "adam_beta2",
     .deepspeed = "optimizer.params.betas.1",
     .kind = SN_OPTION_FLOAT,
     .default_text = "0.999",
     .help = "decay of the second moment; of lion, of its moment"},
    {.key = "adam_epsilon",
     .deepspeed = "optimizer.params.eps",
     .kind = SN_OPTION_FLOAT,
     .default_text = "1e-8",
     .help = "added to the root of the second moment"},
    {.key = "weight_decay",
     .deepspeed = "optimizer.params.weight_decay",
     .often = true,
     .kind = SN_OPTION_FLOAT,
     .default_text = "0",
     .help = "decoupled weight decay of matrices"},
    {.key = "muon_momentum", .kind = SN_OPTION_FLOAT, .default_text = "0.95", .help = "of muon"},
    {.key = "muon_adjust_lr",
     .kind = SN_OPTION_CHOICE,
     .choices = "original,match_rms_adamw",
     .default_text = "original",
     .help = "learning rate of a matrix: times max(1, rows / columns)^0.5, or 0.2 max(rows, columns)^0.5, which fits a rate for adamw"},
    {.key = "galore_rank",
     .kind = SN_OPTION_INT,
     .default_text = "128",
     .metavar = "R",
     .has_least = true,
     .least = 1,
     .help = "directions of a matrix in which galore keeps moments"},
    {.key = "galore_update_gap",
     .aliases = "galore_update_interval",
     .kind = SN_OPTION_INT,
     .default_text = "200",
     .metavar = "T",
     .has_least = true,
     .least = 1,
     .help = "updates between two choices of directions"},
    {.key = "galore_scale", .kind = SN_OPTION_FLOAT, .default_text = "0.25", .help = "learning rate of those matrices: times this"},
    {.key = "momentum", .deepspeed = "optimizer.params.momentum", .kind = SN_OPTION_FLOAT, .default_text = "0", .help = "of sgd"},
    {.key = "max_grad_norm",
     .deepspeed = "gradient_clipping",
     .kind = SN_OPTION_FLOAT,
     .default_text = "1",
     .help = "clip the global gradient norm; 0: never"},
    {.key = "moment_dtype",
     .kind = SN_OPTION_CHOICE,
     .choices = "f32,bf16",
     .default_text = "f32",
     .help = "form of the moments; bf16 rounds stochastically"}};

static sn_pid add_state(const sn_update *u, const sn_updated *x, const char *suffix, sn_dtype form, sn_shape shape, int32_t run) {
    sn_job *job = u->g->job;
    const char *name = sn_pool_printf(&job->pool, "%s.%s", x->name, suffix);
    sn_pid p = name ? sn_job_add_persistent(job, name, SN_CLASS_OPTIMIZER, form, shape) : SN_NONE;
    if (p == SN_NONE) {
        sn_fail(SN_ERR_NO_MEMORY, "cannot add the state %s of %s", suffix, x->name);
        return p;
    }
    job->persistent[p].state_run = run;
    sn_job_derive(job, p, x->parameter);
    return p;
}

sn_pid sn_update_state_of(const sn_update *u, const sn_updated *x, const char *suffix, sn_dtype form, sn_shape shape) {
    return add_state(u, x, suffix, form, shape, 0);
}

sn_pid sn_update_state_runs(const sn_update *u, const sn_updated *x, const char *suffix, sn_dtype form, int32_t run) {
    const sn_persistent *of = &u->g->job->persistent[x->parameter];
    return add_state(u, x, suffix, form, sn_shape_of_runs(&of->shape, &of->rest.split, run), run);
}

bool sn_update_has_runs(const sn_update *u, const sn_updated *x, int32_t run) {
    const sn_job *job = u->g->job;
    const sn_persistent *of = &job->persistent[x->parameter];
    sn_split_axis runs;
    for (int a = 0; a < SN_MESH_AXES; a++)
        if (!sn_split_of_runs(&of->shape, &of->rest.split.axis[a], job->mesh.size[a], run, &runs)) return false;
    return true;
}

sn_pid sn_update_state(const sn_update *u, const sn_updated *x, const char *suffix, sn_dtype form) {
    return sn_update_state_of(u, x, suffix, form, u->g->job->persistent[x->parameter].shape);
}

void sn_update_needs_whole(const sn_update *u, const sn_updated *x, int n_states, const sn_pid *states) {
    sn_persistent *persistent = u->g->job->persistent;
    persistent[x->parameter].rests_whole = true;
    if (x->master != SN_NONE) persistent[x->master].rests_whole = true;
    for (int i = 0; i < n_states; i++) persistent[states[i]].rests_whole = true;
}

sn_status sn_update_append(const sn_update *u, const sn_updated *x, sn_opcode op, const sn_attrs *a, int n, const sn_vid *in) {
    sn_vid all[SN_MAX_IN], out[SN_MAX_OUT];
    memcpy(all, in, (size_t)n * sizeof *in);
    all[n] = u->hyper;
    all[n + 1] = u->clip;
    all[n + 2] = x->w16;
    sn_append(u->g, op, a, x->w16 == SN_NONE ? n + 2 : n + 3, all, x->name, out);
    return u->g->status;
}

static const struct {
    const char *name;
    sn_update_rule update;
} rules[] = {{"adamw", sn_update_adamw},
             {"adamw_8bit", sn_update_adamw_8bit},
             {"adafactor", sn_update_adafactor},
             {"lion", sn_update_lion},
             {"muon", sn_update_muon},
             {"galore", sn_update_galore},
             {"sgd", sn_update_sgd}};

static sn_update_rule rule_of(const sn_options *recipe) {
    const char *name = sn_options_string(recipe, "optimizer");
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!strcmp(name, rules[i].name)) return rules[i].update;
    return NULL;
}

static sn_status update_parameter(const sn_update *u, sn_update_rule rule, sn_pid p, sn_pid gradient, int index) {
    sn_graph *g = u->g;
    sn_job *job = g->job;
    sn_pid master = sn_job_master(job, p);
    sn_updated x = {.parameter = p, .master = master, .index = index, .w16 = SN_NONE};
    x.w = sn_use_persistent(g, master == SN_NONE ? p : master);
    if (master != SN_NONE) x.w16 = sn_use_persistent(g, p);
    x.gradient = sn_use_persistent(g, gradient);
    x.decay = job->persistent[p].decays ? sn_options_float(u->recipe, "weight_decay") : 0;
    x.name = sn_name(g, "%s", job->persistent[p].name);
    SN_TRY(g->status);
    g->layer = job->persistent[p].layer;
    return rule(u, &x);
}

/* Of gradients that are spread over an axis of the mesh each rank there has summands; of others the first speaks for all. */
static void spread_norms(sn_job *job, sn_pid norms) {
    for (size_t i = 0; i < job->n_persistent; i++)
        for (int a = 0; job->persistent[i].class_of == SN_CLASS_GRADIENTS && a < SN_MESH_AXES; a++)
            if (a != SN_MESH_DP && job->persistent[i].rest.split.axis[a].kind == SN_SHARD)
                job->persistent[norms].rest.split.axis[a] = (sn_split_axis){.kind = SN_PARTIAL};
}

static sn_status build_update(sn_graph *g, const sn_options *recipe) {
    sn_job *job = g->job;
    size_t n = job->n_persistent;
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += job->persistent[i].class_of == SN_CLASS_GRADIENTS;
    if (!count) return sn_fail(SN_ERR_PLAN, "nothing to update: no parameter has a gradient");
    sn_pid norms = sn_job_add_persistent(job, "gradient_norms", SN_CLASS_OPTIMIZER, SN_F64, sn_shape_of(count));
    if (norms == SN_NONE) return SN_ERR_NO_MEMORY;
    spread_norms(job, norms);
    sn_insert_at_end(g, "optimizer");
    g->phase = SN_PHASE_UPDATE;
    sn_vid sums = sn_use_persistent(g, norms);
    sn_update u = {.g = g, .hyper = sn_input(g, "hyper", SN_F32, sn_shape_of(8)), .recipe = recipe};
    sn_update_rule rule = rule_of(recipe);
    if (!rule) return sn_fail(SN_ERR_INTERNAL, "no rule for optimizer %s", sn_options_string(recipe, "optimizer"));
    u.moments = !strcmp(sn_options_string(recipe, "moment_dtype"), "bf16") ? SN_BF16 : SN_F32;
    sn_vid out[SN_MAX_OUT];
    int64_t slot = 0;
    for (size_t i = 0; i < n; i++) {
        if (job->persistent[i].class_of != SN_CLASS_GRADIENTS) continue;
        sn_attrs a = {0};
        a.i[SN_SUM_UNITS_SLOT] = slot++;
        sn_vid gradient = sn_use_persistent(g, (sn_pid)i),
               units = sn_append1(g, SN_OP_sum_squares, NULL, 1, &gradient, job->persistent[i].name);
        sn_append(g, SN_OP_sum_units, &a, 2, (sn_vid[]){units, sums}, job->persistent[i].name, out);
    }
    sn_attrs a = {.f[SN_CLIP_FACTOR_MAX_NORM] = sn_options_float(recipe, "max_grad_norm")};
    u.clip = sn_append1(g, SN_OP_clip_factor, &a, 2, (sn_vid[]){sums, u.hyper}, "clip");
    sn_mark_output(g, u.clip, "clip");
    SN_TRY(g->status);
    int index = 0;
    for (size_t i = 0; i < n; i++)
        if (job->persistent[i].class_of == SN_CLASS_GRADIENTS)
            SN_TRY(update_parameter(&u, rule, job->persistent[i].parent, (sn_pid)i, index++));
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

static bool is_optimizer(const sn_options *recipe, const char *name) { return !strcmp(sn_options_string(recipe, "optimizer"), name); }

static bool other_moments(const sn_options *recipe) {
    return !strcmp(sn_options_string(recipe, "moment_dtype"), "bf16") &&
           (is_optimizer(recipe, "adamw_8bit") || is_optimizer(recipe, "adafactor"));
}
static const sn_conflict conflicts[] = {
    {other_moments, "moment_dtype bf16: the states of adamw_8bit and adafactor have forms of their own"}};

/* The search changes the form of moments that there are, and no other rule than the default. */
static bool offers(const sn_options *recipe, const sn_cluster *cluster, const sn_choice *choice) {
    (void)cluster;
    if (!strcmp(choice->key, "optimizer"))
        return is_optimizer(recipe, "adamw") && !strcmp(sn_options_string(recipe, "moment_dtype"), "f32");
    if (is_optimizer(recipe, "sgd")) return sn_options_float(recipe, "momentum") > 0;
    return !is_optimizer(recipe, "adamw_8bit") && !is_optimizer(recipe, "adafactor");
}

/* DeepSpeed's Adam decays as AdamW unless it is told otherwise. */
static const char hints[] = "optimizer.params.adam_w_mode:true,optimizer.params.torch_adam,optimizer.params.bias_correction:true,"
                            "optimizer.params.amsgrad:false,optimizer.params.nesterov:false,optimizer.params.dampening:0";

static const sn_choice choices[] = {{"moment_dtype", "bf16", SN_CHOICE_LOSSY, {0}}, {"optimizer", "adamw_8bit", SN_CHOICE_LOSSY, {0}}};

const sn_pass sn_pass_optimizer = {.name = "optimizer",
                                   .saves = "gradient norm, clipping, the update; rules with smaller states",
                                   .run = run,
                                   .options = SN_OPTION_GROUP("Optimizer", options),
                                   .deepspeed_hints = hints,
                                   SN_PASS_CHOICES(choices),
                                   .touches = SN_TOUCHES_RESTS,
                                   .offers = offers,
                                   SN_PASS_CONFLICTS(conflicts)};
