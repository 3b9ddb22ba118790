/* LoRA: y = x W^T + (alpha / r) dropout(x) A^T B^T, with A [r, in] and B [out, r] trained and W frozen.
 * Sources: Hu et al. 2021 (arXiv 2106.09685); rank-stabilised scale alpha / sqrt(r): Kalajdzievski 2023 (arXiv
 * 2312.03732). Names, initialisation (A uniform in +-1/sqrt(in), B zero) and defaults are PEFT's. */
#include <math.h>
#include <string.h>

#include "ops/add/add.h"
#include "ops/dropout/dropout.h"
#include "ops/matmul/matmul.h"
#include "passes/pass.h"

static const sn_option options[] = {
    {.key = "lora", .often = true, .kind = SN_OPTION_FLAG, .help = "train low-rank adapters, the base frozen"},
    {.key = "qlora", .often = true, .kind = SN_OPTION_FLAG, .help = "LoRA on the base in its quantised form"},
    {.key = "lora_rank",
     .often = true,
     .aliases = "lora_r",
     .kind = SN_OPTION_INT,
     .default_text = "8",
     .metavar = "R",
     .help = "rank of the adapters"},
    {.key = "lora_alpha", .often = true, .kind = SN_OPTION_FLOAT, .default_text = "16", .metavar = "A", .help = "scale alpha / rank"},
    {.key = "lora_dropout", .kind = SN_OPTION_FLOAT, .default_text = "0", .metavar = "P", .help = "dropout on the adapters' input"},
    {.key = "lora_target",
     .aliases = "target_modules",
     .kind = SN_OPTION_STRING,
     .default_text = "all-linear",
     .metavar = "NAMES",
     .help = "module names, comma-separated, or all-linear"},
    {.key = "use_rslora", .aliases = "rslora", .kind = SN_OPTION_FLAG, .help = "scale alpha / sqrt(rank)"}};

typedef struct lora {
    int64_t rank;
    double scale, dropout;
    const char *targets;
    int matched;
} lora;

static bool is_target(const char *targets, const char *module) {
    if (!strcmp(targets, "all-linear")) return true;
    const char *leaf = strrchr(module, '.') ? strrchr(module, '.') + 1 : module;
    for (const char *at = targets; *at;) {
        size_t n = strcspn(at, ",");
        if ((strlen(leaf) == n && !strncmp(at, leaf, n)) || (strlen(module) == n && !strncmp(at, module, n))) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static sn_vid factor(sn_graph *g, sn_pid base, const char *module, sn_adapter_part part, sn_shape shape, const lora *l, int axis) {
    bool down = part == SN_ADAPTER_DOWN;
    const char *name = sn_name(g, "base_model.model.%s.lora_%s.weight", module, down ? "A" : "B");
    if (!name) return SN_NONE;
    uint8_t outer = g->job->persistent[base].axes[axis];
    int32_t layer = g->job->persistent[base].layer;
    sn_pid p = sn_job_find(g->job, name);
    if (p == SN_NONE) {
        p = sn_job_add_persistent(g->job, name, SN_CLASS_WEIGHTS, SN_F32, shape);
        if (p == SN_NONE) return sn_use_persistent(g, p); /* the graph keeps the error */
        sn_persistent *e = &g->job->persistent[p];
        e->trainable = e->decays = true;
        e->layer = layer;
        e->axes[down] = outer;
        e->axes[!down] = SN_AXIS_RANK;
        e->source = (sn_source){
            .file = -1, .init = down ? SN_INIT_UNIFORM : SN_INIT_ZERO, .scale = down ? (float)(1 / sqrt((double)shape.d[1])) : 0};
        e->adapter_of = base;
        e->adapter_part = part;
        e->adapter_scale = (float)l->scale;
    }
    return sn_use_persistent(g, p);
}

static sn_status adapt(sn_graph *g, sn_nid id, lora *l) {
    sn_node n = g->nodes[id];
    sn_pid p = g->values[n.in[1].value].persistent;
    bool transposed = n.attrs.i[SN_MATMUL_TRANS_B] == 0; /* Conv1D: W is [in, out] */
    sn_persistent base = g->job->persistent[p];
    int64_t in = base.shape.d[!transposed], out = base.shape.d[transposed];
    char module[256];
    size_t length = strlen(base.name) - strlen(".weight");
    if (length >= sizeof module) return sn_fail(SN_ERR_INTERNAL, "module name %s is too long", base.name);
    memcpy(module, base.name, length);
    module[length] = 0;
    l->matched++;
    sn_insert_after(g, id, "lora");
    sn_vid a = factor(g, p, module, SN_ADAPTER_DOWN, sn_shape_of(l->rank, in), l, !transposed);
    sn_vid b = factor(g, p, module, SN_ADAPTER_UP, sn_shape_of(out, l->rank), l, transposed);
    sn_vid x = n.in[0].value;
    if (l->dropout > 0 && sn_role_trains(g->role)) {
        sn_attrs drop = {.f[SN_DROPOUT_P] = l->dropout};
        drop.i[SN_DROPOUT_SITE] = n.site;
        sn_vid key = sn_input(g, "key", SN_U32, sn_shape_of(4));
        x = sn_append1(g, SN_OP_dropout, &drop, 2, (sn_vid[]){x, key}, sn_name(g, "%s.lora_dropout", module));
    }
    sn_attrs mm = {0};
    mm.i[SN_MATMUL_TRANS_B] = 1;
    sn_vid h = sn_append1(g, SN_OP_matmul, &mm, 2, (sn_vid[]){x, a}, sn_name(g, "%s.lora_A", module));
    h = sn_append1(g, SN_OP_matmul, &mm, 2, (sn_vid[]){h, b}, sn_name(g, "%s.lora_B", module));
    sn_attrs add = {.f[SN_ADD_ALPHA] = l->scale};
    size_t before_add = g->insert_at;
    sn_vid y = sn_append1(g, SN_OP_add, &add, 2, (sn_vid[]){n.out[0], h}, sn_name(g, "%s.lora", module));
    sn_replace_uses(g, n.out[0], y, before_add + 1);
    return g->status;
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    if (!sn_options_bool(recipe, "lora") && !sn_options_bool(recipe, "qlora")) return SN_OK;
    lora l = {.rank = sn_options_int(recipe, "lora_rank"),
              .dropout = sn_options_float(recipe, "lora_dropout"),
              .targets = sn_options_string(recipe, "lora_target")};
    if (l.rank < 1) return sn_fail(SN_ERR_USAGE, "lora_rank is %lld, at least 1 is wanted", (long long)l.rank);
    if (!(l.dropout >= 0 && l.dropout < 1)) return sn_fail(SN_ERR_USAGE, "lora_dropout is %g, wanted 0 <= p < 1", l.dropout);
    double alpha = sn_options_float(recipe, "lora_alpha");
    l.scale = sn_options_bool(recipe, "use_rslora") ? alpha / sqrt((double)l.rank) : alpha / (double)l.rank;
    for (size_t i = 0; i < job->n_persistent; i++) job->persistent[i].trainable = false;
    for (int k = 0; k < job->n_graphs; k++) {
        sn_graph *g = job->graphs[k];
        for (size_t i = 0; i < g->n_order; i++) {
            sn_nid id = g->order[i];
            const sn_node *n = &g->nodes[id];
            if (n->op != SN_OP_matmul || strcmp(n->made_by, "model") || n->layer < 0) continue;
            sn_pid p = g->values[n->in[1].value].persistent;
            if (p == SN_NONE) continue;
            if (is_target(l.targets, n->name)) SN_TRY(adapt(g, id, &l));
        }
        sn_insert_at_end(g, "model");
        SN_TRY(g->status);
    }
    return l.matched ? SN_OK : sn_fail(SN_ERR_USAGE, "lora_target '%s' matches no module of this model", l.targets);
}

static bool decided(const sn_options *r) { return sn_options_bool(r, "lora") || sn_options_bool(r, "qlora") || sn_options_bool(r, "full"); }
static bool with_full(const sn_options *r) {
    return sn_options_bool(r, "full") && (sn_options_bool(r, "lora") || sn_options_bool(r, "qlora"));
}

static const sn_choice choices[] = {{"lora", "true", SN_CHOICE_LOSSY, {0}}, {"qlora", "true", SN_CHOICE_LOSSY, {0}}};
static const sn_conflict conflicts[] = {{with_full, "--full trains every weight, --lora and --qlora freeze them: give one of the three"}};

const sn_pass sn_pass_lora = {.name = "lora",
                              .saves = "gradients and states of small factors only; the base stays frozen",
                              .run = run,
                              .options = SN_OPTION_GROUP("LoRA", options),
                              SN_PASS_CHOICES(choices),
                              .decided = decided,
                              SN_PASS_CONFLICTS(conflicts)};
