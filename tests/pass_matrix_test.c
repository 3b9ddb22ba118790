/* Every legal pair and triple of techniques: it plans, its bytes add up, recomputing changes no bit, and the loss falls.
 * Illegal ones are refused with the reason. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "engine/export.h"
#include "support/tiny.h"

enum { MOST_VALUES = 8, STEPS = 20 };

typedef struct axis {
    const char *values[MOST_VALUES]; /* the first is the default */
} axis;

static const axis axes[] = {
    {{"full=on", "lora=on lora_rank=4", "lora=on lora_rank=4 lora_dropout=0.1", "lora=on use_rslora=on lora_target=q_proj,v_proj,c_attn"}},
    {{"precision=f32", "precision=bf16", "precision=fp16"}},
    {{"recompute=none", "recompute=light", "recompute=every:2", "recompute=all"}},
    {{"gradient_accumulation_steps=1", "gradient_accumulation_steps=3"}},
    {{"optimizer=adamw", "optimizer=sgd", "optimizer=sgd momentum=0.9", "optimizer=adamw_8bit", "optimizer=adafactor", "optimizer=lion",
      "optimizer=muon", "optimizer=galore galore_rank=8 galore_update_gap=3"}},
    {{"moment_dtype=f32", "moment_dtype=bf16"}},
    {{"gradient_dtype=auto", "gradient_dtype=f32", "gradient_dtype=bf16", "gradient_dtype=fp16"}},
};
enum { AXES = sizeof axes / sizeof axes[0] };

typedef void (*visit_fn)(const char *options, void *context);

static void visit(const int *choice, visit_fn fn, void *context) {
    char text[512] = "threads=1 ";
    for (int a = 0; a < AXES; a++) snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", axes[a].values[choice[a]]);
    bool own_forms = strstr(text, "optimizer=adamw_8bit") || strstr(text, "optimizer=adafactor");
    if (own_forms && strstr(text, "moment_dtype=bf16")) return; /* refused */
    fn(text, context);
}

/* All choices in which at most `most` axes differ from their defaults. */
static void visit_all(int *choice, int at, int most, visit_fn fn, void *context) {
    if (at == AXES) {
        visit(choice, fn, context);
        return;
    }
    for (int v = 0; v < MOST_VALUES && axes[at].values[v] && (!v || most); v++) {
        choice[at] = v;
        visit_all(choice, at + 1, most - (v > 0), fn, context);
    }
    choice[at] = 0;
}

/* Models without biases: nothing of size zero is kept, and no instruction has an argument without elements to work on. */
static void assert_nothing_empty(const sn_plan *plan, const char *options) {
    for (size_t p = 0; p < plan->n_persistent; p++) assert_true(plan->persistent[p].bytes > 0 || plan->persistent[p].within);
    for (int k = 0; k < plan->n_programs; k++) {
        const sn_program *program = &plan->programs[k].program;
        assert_true(program->count > 0);
        for (uint32_t i = 0; i < program->count; i++) {
            const sn_instr *in = &program->instrs[i];
            for (int a = 0; a < in->n_in + in->n_out; a++) {
                const sn_arg *arg = a < in->n_in ? &in->in[a] : &in->out[a - in->n_in];
                for (int d = 0; arg->arena != SN_NO_ARENA && d < arg->shape.rank; d++)
                    if (arg->shape.d[d] < 1) fail_msg("%s: %s of %s has an empty argument %d", options, in->op, in->name, a);
            }
        }
    }
}

static void check_plan(const char *options, void *context) {
    for (int family = 0; family < 2; family++) {
        sn_model_config config = family ? tiny_gpt2() : tiny_llama();
        tiny t;
        tiny_open(&t, &config, options, "null", true);
        const sn_bill *bill = &t.plan->bill;
        for (int tier = 0; tier < SN_TIER_DISK; tier++) {
            uint64_t sum = 0;
            for (int c = 0; c < SN_CLASS_COUNT; c++) sum += bill->by_class[tier][c];
            assert_int_equal(sum, bill->by_tier[tier]);
        }
        assert_int_equal(bill->by_tier[SN_TIER_DEVICE], t.plan->arena_bytes[SN_TIER_DEVICE]);
        assert_int_equal(bill->total, bill->by_tier[SN_TIER_DEVICE] + bill->by_tier[SN_TIER_HOST] + bill->reserved);
        assert_null(sn_run_arena(t.run, SN_TIER_DEVICE));
        assert_nothing_empty(t.plan, options);
        tiny_close(&t);
    }
    ++*(int *)context;
}

static void triples_plan(void **state) {
    (void)state;
    int choice[AXES] = {0}, count = 0;
    visit_all(choice, 0, 3, check_plan, &count);
    assert_int_equal(count, 812);
}

static void check_learning(const char *options, void *context) {
    for (int family = 0; family < 2; family++) {
        sn_model_config config = family ? tiny_gpt2() : tiny_llama();
        tiny t;
        float norm;
        double first = 0, loss = 0;
        tiny_open(&t, &config, options, "cpu", true);
        t.one_batch = true;
        for (int i = 0; i < STEPS; i++) {
            loss = tiny_step(&t, i, &norm);
            if (!i) first = loss;
            if (!isfinite(loss) || !isfinite(norm) || norm <= 0) fail_msg("%s: step %d: loss %g, norm %g", options, i, loss, (double)norm);
        }
        if (!(loss < first)) fail_msg("%s: loss %g after %d steps, %g before", options, loss, STEPS, first);
        tiny_close(&t);
    }
    ++*(int *)context;
}

static void pairs_learn(void **state) {
    (void)state;
    int choice[AXES] = {0}, count = 0;
    visit_all(choice, 0, 2, check_learning, &count);
    assert_int_equal(count, 178);
}

static void run_two_steps(tiny *t, double *out, char digest[65]) {
    float norm;
    for (int i = 0; i < 2; i++) {
        out[2 * i] = tiny_step(t, i, &norm);
        out[2 * i + 1] = norm;
    }
    tiny_digest(t, digest);
}

/* Recomputing changes neither losses nor norms nor a byte of weights, gradients and states. */
static void recompute_is_exact(void **state) {
    (void)state;
    for (int family = 0; family < 2; family++)
        for (int tune = 0; tune < 3; tune++)
            for (int precision = 0; precision < 3; precision++)
                for (int accumulation = 0; accumulation < 2; accumulation++) {
                    double first[4] = {0}, other[4];
                    char first_digest[65] = "", digest[65];
                    for (int k = 0; k < 4; k++) {
                        char options[256];
                        sn_model_config config = family ? tiny_gpt2() : tiny_llama();
                        tiny t;
                        snprintf(options, sizeof options, "threads=1 %s %s %s %s", axes[0].values[tune], axes[1].values[precision],
                                 axes[3].values[accumulation], axes[2].values[k]);
                        tiny_open(&t, &config, options, "cpu", true);
                        run_two_steps(&t, k ? other : first, k ? digest : first_digest);
                        tiny_close(&t);
                        if (k && (memcmp(first, other, sizeof first) || strcmp(digest, first_digest)))
                            fail_msg("%s: other bits than without", options);
                    }
                }
}

static void count_forms(const tiny *t, sn_dtype form, int *kept, int *f32) {
    *kept = *f32 = 0;
    for (size_t p = 0; p < t->job->n_persistent; p++) {
        const sn_persistent *e = &t->job->persistent[p];
        if (e->class_of != SN_CLASS_WEIGHTS || e->layer < 0 || e->shape.rank != 2 || strstr(e->name, ".lora_")) continue;
        *kept += e->rest.form == form;
        *f32 += e->rest.form == SN_F32;
    }
}

/* QLoRA on real block forms: weights stay as they lie in the file, and it equals LoRA on the same values dequantised. */
/* On its file's blocks as against dequantised. With f32 activations: the same bits, and blocks are the default. */
static void qlora(void **state) {
    (void)state;
    static const sn_dtype forms[] = {SN_Q8_0, SN_Q4_0};
    static const char *const with[] = {"lora_rank=4", "precision=bf16", "precision=fp16 lora_dropout=0.1",
                                       "recompute=all gradient_accumulation_steps=3",
                                       "use_rslora=on optimizer=sgd momentum=0.9 recompute=attention"};
    char folder[600], gguf[600];
    const char *root = test_dir("qlora");
    sn_model_config config = tiny_llama();
    config.intermediate_size = 64;
    snprintf(folder, sizeof folder, "%s/hf", root);
    snprintf(gguf, sizeof gguf, "%s/tiny.gguf", root);
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        sn_model model;
        tiny_write(&config, folder, gguf, forms[f]);
        assert_ok(sn_model_open(gguf, &model));
        for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
            char options[256];
            double loss[2][STEPS];
            uint64_t weights[2];
            int kept, f32;
            for (int plain = 0; plain < 2; plain++) {
                tiny t;
                float norm;
                snprintf(options, sizeof options, "threads=1 %s=on %s",
                         plain                                   ? "keep_quantised=off lora"
                         : i % 2 || strstr(with[i], "precision") ? "qlora"
                                                                 : "lora",
                         with[i]);
                tiny_open_model(&t, &model, options, "cpu");
                t.one_batch = true;
                count_forms(&t, forms[f], &kept, &f32);
                if (!plain) assert_true(kept == 14 && f32 == 0);
                else assert_int_equal(kept, 0);
                weights[plain] = t.plan->bill.by_class[SN_TIER_DEVICE][SN_CLASS_WEIGHTS];
                for (int s = 0; s < STEPS; s++) {
                    loss[plain][s] = tiny_step(&t, s, &norm);
                    assert_true(isfinite(loss[plain][s]) && norm > 0);
                }
                if (!(loss[plain][STEPS - 1] < loss[plain][0])) fail_msg("%s: the loss does not fall", options);
                tiny_close(&t);
            }
            assert_true(weights[0] < weights[1]);
            double tolerance = strstr(with[i], "precision") ? 2e-2 : 0;
            for (int s = 0; s < STEPS; s++)
                if (!(fabs(loss[0][s] - loss[1][s]) <= tolerance))
                    fail_msg("%s: step %d: %g on blocks, %g dequantised", options, s, loss[0][s], loss[1][s]);
        }
        sn_model_close(&model);
    }
    assert_ok(sn_remove_tree(root));
}

static void illegal_pairs_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *options, *reason;
    } cases[] = {
        {"full=on lora=on", "give one of the three"},
        {"full=on qlora=on", "give one of the three"},
        {"full=on keep_quantised=on", "cannot be updated"},
        {"lora=on lora_rank=0", "lora_rank is 0"},
        {"lora=on lora_rank=-3", "lora_rank is -3"},
        {"lora=on lora_dropout=1", "lora_dropout is 1"},
        {"lora=on lora_dropout=-0.5", "lora_dropout is -0.5"},
        {"lora=on lora_target=no_such_proj", "matches no module"},
        {"recompute=some", "wanted none, light"},
        {"recompute=every:0", "wanted none, light"},
        {"optimizer=adamw_8bit moment_dtype=bf16", "forms of their own"},
        {"optimizer=adafactor moment_dtype=bf16", "forms of their own"},
        {"layerwise=on lora=on", "give one of them"},
        {"layerwise=on qlora=on", "give one of them"},
        {"gradient_release=on", "--max-grad-norm 0"},
        {"gradient_release=on max_grad_norm=0 precision=fp16", "whole step"},
        {"gradient_release=on max_grad_norm=0 gradient_accumulation_steps=2", "must be 1"},
        {"recompute=every:2x", "wanted none, light"},
        {"max_grad_norm=-1", "max_norm"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sn_model_config config = tiny_llama();
        sn_options *recipe = tiny_recipe(cases[i].options);
        sn_cluster cluster = {.addresses = sn_device_null.shape.addresses};
        sn_job *job = NULL;
        cluster.mesh = sn_mesh_alone();
        sn_training_shape shape = {.tokens = 8};
        sn_status s = sn_job_for_training(&config, NULL, &shape, recipe, &cluster, NULL, &job);
        if (s == SN_OK) fail_msg("'%s' was accepted", cases[i].options);
        if (!strstr(sn_error_text(), cases[i].reason))
            fail_msg("'%s': '%s' does not say '%s'", cases[i].options, sn_error_text(), cases[i].reason);
        assert_null(job);
        sn_options_close(recipe);
    }
}

static const sn_option *own_option(const sn_pass *p, const char *key) {
    for (size_t i = 0; i < p->options.count; i++)
        if (!strcmp(p->options.options[i].key, key)) return &p->options.options[i];
    fail_msg("pass %s has no option %s of its own", p->name, key);
    return NULL;
}

/* What other parts of snug do with a technique follows from its entry: it must hold together by itself. */
static void entries_hold_together(void **state) {
    (void)state;
    for (size_t i = 0; i < sn_n_passes; i++) {
        const sn_pass *p = sn_passes[i];
        sn_options *recipe = tiny_recipe("");
        assert_non_null(p->run);
        assert_true(p->saves && *p->saves);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(p->name, sn_passes[k]->name);
        if (p->decided) assert_false(p->decided(recipe)); /* nothing is said */
        for (size_t k = 0; k < p->n_choices; k++) {
            sn_options *alone = tiny_recipe("");
            const char *key, *value;
            const sn_cluster cluster = {.addresses = 1, .mesh = sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = 2}})};
            bool offered = sn_choice_applies(p, alone, &cluster, &p->choices[k]);
            for (size_t j = 0; sn_choice_setting(&p->choices[k], j, &key, &value); j++) {
                own_option(p, key);
                assert_ok(sn_options_set(alone, key, value, SN_FROM_COMMAND_LINE, "test"));
            }
            assert_true(sn_choice_made(&p->choices[k], alone));
            if (offered) assert_ok(sn_passes_check(alone)); /* a choice alone breaks nothing */
            sn_options_close(alone);
        }
        for (size_t k = 0; k < p->n_inference; k++) {
            const sn_inference_option *o = &p->inference[k];
            own_option(p, o->key);
            const char *texts[] = {o->evaluating, o->generating};
            for (int j = 0; j < 2; j++)
                if (texts[j]) assert_ok(sn_options_set(recipe, o->key, texts[j], SN_FROM_COMMAND_LINE, "test"));
        }
        for (size_t k = 0; k < p->n_conflicts; k++) {
            assert_non_null(p->conflicts[k].holds);
            assert_true(p->conflicts[k].reason && *p->conflicts[k].reason);
        }
        sn_options_close(recipe);
    }
}

/* The table, not the recipe, says what is trained and what an adapter's values belong to. */
static void adapters_are_marked(void **state) {
    (void)state;
    static const struct {
        const char *options;
        bool adapters;
    } cases[] = {{"", false},
                 {"full=on", false},
                 {"lora=on lora_rank=2 lora_alpha=6", true},
                 {"qlora=on lora_rank=2 lora_alpha=6 precision=bf16", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sn_model_config config = tiny_llama();
        tiny t;
        size_t parts[2] = {0};
        tiny_open(&t, &config, cases[i].options, "cpu", false);
        assert_int_equal(sn_job_trains_adapters(t.job), cases[i].adapters);
        for (size_t p = 0; p < t.job->n_persistent; p++) {
            const sn_persistent *e = &t.job->persistent[p];
            if (e->adapter_of == SN_NONE) continue;
            bool down = e->adapter_part == SN_ADAPTER_DOWN;
            const sn_persistent *weight = &t.job->persistent[e->adapter_of];
            parts[e->adapter_part]++;
            assert_int_equal(weight->adapter_of, SN_NONE);
            assert_int_equal(sn_job_adapter(t.job, e->adapter_of, e->adapter_part), p);
            assert_int_equal(e->shape.d[!down], 2);
            assert_int_equal(e->shape.d[down], weight->shape.d[down]);
            assert_true(e->adapter_scale == 3);
        }
        assert_int_equal(parts[0] > 0, cases[i].adapters);
        assert_int_equal(parts[0], parts[1]);
        assert_int_equal(sn_job_adapter(t.job, SN_NONE, SN_ADAPTER_DOWN), SN_NONE);
        tiny_close(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_hold_together),
        cmocka_unit_test(adapters_are_marked),
        cmocka_unit_test(triples_plan),
        cmocka_unit_test(pairs_learn),
        cmocka_unit_test(recompute_is_exact),
        cmocka_unit_test(qlora),
        cmocka_unit_test(illegal_pairs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
