#include "support/export_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "engine/evaluate.h"
#include "engine/generate.h"
#include "engine/train.h"
#include "io/safetensors.h"

/* Every merged weight is W + scale * B A in real numbers, but for the rounding of rank + 2 operations in f32. */
static void assert_merged_weights(const sn_model *m, const char *merged, const char *adapter, double scale) {
    sn_model_files x;
    sn_st st;
    char path[600];
    size_t checked = 0;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
    assert_ok(sn_st_open(path, &st));
    assert_ok(sn_model_files_open(merged, &x));
    for (size_t i = 0; i < st.tensor_count; i += 2) { /* lora_A, then lora_B of a module */
        const sn_st_tensor *ta = &st.tensors[i], *tb = &st.tensors[i + 1];
        const char *module = ta->name + strlen("base_model.model.");
        char name[200];
        snprintf(name, sizeof name, "%.*s.weight", (int)(strstr(module, ".lora_A") - module), module);
        assert_non_null(strstr(tb->name, ".lora_B"));
        int64_t rank = ta->shape.d[0], in = ta->shape.d[1], out = tb->shape.d[0];
        float *a = sn_alloc((size_t)ta->bytes), *b = sn_alloc((size_t)tb->bytes);
        assert_ok(sn_st_read(&st, ta, 0, a, (size_t)ta->bytes));
        assert_ok(sn_st_read(&st, tb, 0, b, (size_t)tb->bytes));
        float *w = (float *)(void *)read_whole(&m->files, sn_model_files_find(&m->files, name));
        float *y = (float *)(void *)read_whole(&x, sn_model_files_find(&x, name));
        bool conv1d = m->config->arch == SN_ARCH_GPT2;
        for (int64_t o = 0; o < out; o++)
            for (int64_t c = 0; c < in; c++) {
                int64_t at = conv1d ? c * out + o : o * in + c;
                double sum = w[at], size = fabs((double)w[at]);
                for (int64_t k = 0; k < rank; k++) {
                    double term = scale * b[o * rank + k] * a[k * in + c];
                    sum += term;
                    size += fabs(term);
                }
                if (!(fabs(y[at] - sum) <= (double)(rank + 2) * 0x1p-24 * 2 * size))
                    fail_msg("%s [%d,%d]: %.9g, wanted %.9g", name, (int)o, (int)c, (double)y[at], sum);
            }
        sn_free(a);
        sn_free(b);
        sn_free(w);
        sn_free(y);
        checked++;
    }
    assert_int_equal(checked, m->config->arch == SN_ARCH_GPT2 ? 4 : 14);
    sn_model_files_close(&x);
    sn_st_close(&st);
}

/* Merges into both formats. The logits equal those of base + adapter within `bound`. */
static void merge_both(const char *model, const char *options, double scale, double bound) {
    sn_model m;
    sn_export_report report;
    make_adapter(model, options, in_root("ad"));
    assert_true(logits_error(model, in_root("ad"), model, NULL) > 0.01);
    assert_ok(sn_model_open(model, &m));
    size_t adapted = m.config->arch == SN_ARCH_GPT2 ? 4 : 14;
    assert_ok(sn_merge_adapter(&m, in_root("ad"), in_root("merged"), false, SN_F32, 2, &report));
    assert_int_equal(report.adapted, adapted);
    assert_ok(sn_merge_adapter(&m, in_root("ad"), in_root("merged.gguf"), true, SN_F32, 1, &report));
    assert_int_equal(report.adapted, adapted);
    assert_merged_weights(&m, in_root("merged"), in_root("ad"), scale);
    assert_merged_weights(&m, in_root("merged.gguf"), in_root("ad"), scale);
    assert_same_models(in_root("merged"), in_root("of-run"));
    sn_model_close(&m);
    double folder = logits_error(in_root("merged"), NULL, model, in_root("ad"));
    double gguf = logits_error(in_root("merged.gguf"), NULL, model, in_root("ad"));
    if (!(folder <= bound && gguf <= bound)) fail_msg("%s: folder %g, GGUF %g", model, folder, gguf);
}

/* The golden models' weights have a variance of 1 and magnify f32's rounding: beside a double-precision forward pass, rounding
 * the merged weights once costs the logits up to 3e-5, as much as either way of computing them. Hence 1e-4 there, and 1e-5 on
 * a model whose weights are of a usual size. */
static void merged_equals_base_and_adapter(void **state) {
    (void)state;
    static const char *const models[] = {FILES "llama", FILES "llama.gguf", FILES "gpt2", FILES "gpt2.gguf"};
    for (int i = 0; i < 4; i++) {
        bool rs = i % 2;
        merge_both(models[i], rs ? "lora=on lora_rank=3 use_rslora=on" : "lora=on lora_rank=3 lora_alpha=5", rs ? 16 / sqrt(3) : 5.0 / 3,
                   1e-4);
    }
    export_shape(SHAPE_32_4, in_root("usual"));
    convert(in_root("usual"), in_root("usual.gguf"), true, SN_F32);
    merge_both(in_root("usual"), "lora=on lora_rank=3", 16.0 / 3, 1e-5);
    merge_both(in_root("usual.gguf"), "lora=on lora_rank=3 use_rslora=on", 16 / sqrt(3), 1e-5);
}

#define LM_HEAD "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 2, \"target_modules\": [\"lm_head\"], \"bias\": \"none\"}"

/* peft#2777: an adapter on lm_head of a tied model: the merged model is untied, says so, and its embeddings stay. */
static void adapted_head_is_untied(void **state) {
    (void)state;
    float a[16], b[24];
    sn_model m;
    sn_model_files x;
    test_fill(a, 16, 1, 1);
    test_fill(b, 24, 2, 1);
    write_adapter(in_root("head"), LM_HEAD, "lm_head", 16, 24, 1, a, b);
    assert_ok(sn_model_open(FILES "llama", &m));
    assert_true(m.config->tie_word_embeddings);
    for (int gguf = 0; gguf < 2; gguf++) {
        char out[512];
        snprintf(out, sizeof out, "%s", in_root(gguf ? "head.gguf" : "head-hf"));
        assert_ok(sn_merge_adapter(&m, in_root("head"), out, gguf, SN_F32, 1, NULL));
        assert_ok(sn_model_files_open(out, &x));
        assert_false(x.config.tie_word_embeddings);
        float *embedding = (float *)(void *)read_whole(&m.files, &m.files.tensors[0]);
        float *kept = (float *)(void *)read_whole(&x, &x.tensors[0]),
              *head = (float *)(void *)read_whole(&x, sn_model_files_find(&x, "lm_head.weight"));
        assert_memory_equal(embedding, kept, 24 * 16 * sizeof(float));
        for (int r = 0; r < 24; r++)
            for (int c = 0; c < 16; c++) assert_true(fabsf(head[r * 16 + c] - (embedding[r * 16 + c] + 2 * b[r] * a[c])) < 1e-6f);
        sn_free(embedding);
        sn_free(kept);
        sn_free(head);
        sn_model_files_close(&x);
    }
    sn_model_close(&m);
}

static void refusals(void **state) {
    (void)state;
    sn_model m;
    sn_session s;
    sn_options *recipe = recipe_of("");
    int form;
    float numbers[64] = {1};
    assert_ok(sn_model_open(FILES "llama", &m));
    assert_int_equal(sn_merge_adapter(&m, NULL, FILES "llama", false, SN_F32, 1, NULL), SN_ERR_USAGE);
    assert_int_equal(sn_merge_adapter(&m, NULL, in_root("x"), false, SN_Q8_0, 1, NULL), SN_ERR_USAGE);
    assert_non_null(strstr(sn_error_text(), "q8_0"));
    open_session(&s, &m, recipe, false);
    assert_int_equal(sn_export_adapter(&s, recipe, "b", in_root("none")), SN_ERR_USAGE);
    assert_false(sn_path_exists(in_root("none/adapter_config.json")));
    sn_session_close(&s);
    /* An adapter of another model, of another shape, with a module that is not there. */
    write_adapter(in_root("bad"), "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 2, \"target_modules\": [\"q_proj\"]}",
                  "model.layers.0.self_attn.q_proj", 15, 32, 1, numbers, numbers);
    assert_int_equal(sn_merge_adapter(&m, in_root("bad"), in_root("x"), false, SN_F32, 1, NULL), SN_ERR_SHAPE);
    write_adapter(in_root("bad"), "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 2, \"target_modules\": [\"q_proj\"]}",
                  "model.layers.9.self_attn.q_proj", 16, 32, 1, numbers, numbers);
    assert_int_equal(sn_merge_adapter(&m, in_root("bad"), in_root("x"), false, SN_F32, 1, NULL), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "model.layers.9.self_attn.q_proj.lora_A.weight matches no module"));
    write_adapter(in_root("bad"),
                  "{\"peft_type\": \"LORA\", \"use_dora\": true, \"r\": 1, \"lora_alpha\": 2, \"target_modules\": [\"q_proj\"]}",
                  "model.layers.0.self_attn.q_proj", 16, 32, 1, numbers, numbers);
    assert_int_equal(sn_merge_adapter(&m, in_root("bad"), in_root("x"), false, SN_F32, 1, NULL), SN_ERR_UNSUPPORTED);
    /* A value that f16 cannot hold. */
    numbers[0] = 1e4f;
    write_adapter(in_root("large"), "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 100, \"target_modules\": [\"q_proj\"]}",
                  "model.layers.0.self_attn.q_proj", 16, 32, 1, numbers, numbers);
    assert_int_equal(sn_merge_adapter(&m, in_root("large"), in_root("large.gguf"), true, SN_F16, 1, NULL), SN_ERR_NUMERIC);
    assert_non_null(strstr(sn_error_text(), "q_proj"));
    assert_false(sn_path_exists(in_root("large.gguf")));
    assert_false(sn_path_exists(in_root("large.gguf.tmp")));
    assert_ok(sn_merge_adapter(&m, in_root("large"), in_root("large.gguf"), true, SN_BF16, 1, NULL));
    sn_model_close(&m);
    assert_ok(sn_model_open(in_root("large.gguf"), &m));
    assert_int_equal(sn_merge_adapter(&m, NULL, in_root("large.gguf"), true, SN_F32, 1, NULL), SN_ERR_USAGE);
    sn_model_close(&m);
    sn_options_close(recipe);
    assert_ok(sn_export_form("q4_1", &form));
    assert_int_equal(form, SN_Q4_1);
    assert_ok(sn_export_form("source", &form));
    assert_int_equal(form, SN_FORM_SOURCE);
    assert_int_equal(sn_export_form("q6_k", &form), SN_ERR_USAGE);
    assert_int_equal(sn_export_form("int8", &form), SN_ERR_USAGE);
}

/* An adapter of which nothing, or not everything, finds a module of the base is no reason to serve the base: every way in
 * refuses it and names the tensor or the module. */
static void adapters_that_do_not_match(void **state) {
    (void)state;
#define TARGETS(list) "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 2, \"target_modules\": [" list "]}"
    static const struct {
        const char *config, *module, *named;
    } cases[] = {
        {TARGETS("\"q_proj\""), "model.layers.9.self_attn.q_proj", "model.layers.9.self_attn.q_proj.lora_"},
        {TARGETS("\"q_proj\""), "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.k_proj.lora_"},
        {TARGETS("\"q_proj\""), "base_model.model.model.layers.0.self_attn.q_proj",
         "base_model.model.model.layers.0.self_attn.q_proj.lora_"},
        {TARGETS("\"query_key_value\""), "model.layers.0.self_attn.query_key_value", "query_key_value"},
        {TARGETS("\"q_proj\""), "model.layers.0.self_attn.q_proj", "stray holds 2 tensors, this recipe's adapters have 4"},
    };
    float numbers[64] = {1};
    sn_options *recipe = recipe_of("ctx_size=16"), *train = recipe_of("cutoff_len=16");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool k = strstr(cases[i].module, "k_proj");
        write_adapter(in_root("stray"), cases[i].config, cases[i].module, 16, k ? 16 : 32, 1, numbers, numbers);
        for (int way = 0; way < 4; way++) {
            static const char *const ways[] = {"evaluation", "generation", "merging", "training"};
            sn_model m;
            sn_session s;
            sn_generator g;
            sn_status status;
            if (way == 2 && (i == 1 || i == 4)) continue; /* merging goes by the tensors alone, and these have their modules */
            assert_ok(sn_model_open(FILES "llama", &m));
            if (way == 0) status = sn_evaluator_open(&m, recipe, in_root("stray"), 8, true, &s);
            else if (way == 1) status = sn_generator_open(&m, recipe, in_root("stray"), &g);
            else if (way == 2) status = sn_merge_adapter(&m, in_root("stray"), in_root("stray-out"), false, SN_F32, 1, NULL);
            else {
                sn_train_summary summary;
                assert_ok(sn_options_set(train, "adapter", in_root("stray"), SN_FROM_COMMAND_LINE, "test"));
                assert_ok(sn_file_replace(in_root("stray.jsonl"), "{\"input_ids\": [3, 4, 5]}\n", 25));
                status = sn_train(&m, train, in_root("stray.jsonl"), in_root("stray-out"), NULL, &summary);
            }
            if (status == SN_OK) fail_msg("%s takes an adapter of %s", ways[way], cases[i].module);
            if (!strstr(sn_error_text(), cases[i].named)) fail_msg("%s: '%s' does not name %s", ways[way], sn_error_text(), cases[i].named);
            assert_false(sn_path_exists(in_root("stray-out/model.safetensors")));
            sn_model_close(&m);
        }
    }
    sn_options_close(recipe);
    sn_options_close(train);
}

static char said[1024];
static void keep_message(void *context, sn_log_level level, const char *text) {
    (void)context, (void)level;
    if (strstr(text, "merging")) snprintf(said, sizeof said, "%s", text);
}

/* A base of blocks: the adapter is merged into its dequantised values, which the log says. In f32 that is base + adapter;
 * rounding the sum to blocks again costs up to half a step of the form. */
static void merging_into_blocks(void **state) {
    (void)state;
    static const struct {
        sn_dtype base, out;
        double bound;
    } cases[] = {
        {SN_Q8_0, SN_F32, 1e-5}, {SN_Q4_0, SN_F32, 1e-5}, {SN_Q4_0, SN_BF16, 0.05}, {SN_Q8_0, SN_Q8_0, 0.05}, {SN_Q4_0, SN_Q8_0, 0.05}};
    export_shape(
        "{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"tie_word_embeddings\": true}",
        in_root("even"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sn_model m;
        sn_export_report report;
        char wanted[80];
        convert(in_root("even"), in_root("blocks.gguf"), true, (int)cases[i].base);
        make_adapter(in_root("blocks.gguf"), "lora=on lora_rank=3", in_root("ad"));
        assert_ok(sn_model_open(in_root("blocks.gguf"), &m));
        sn_log_to(keep_message, NULL);
        assert_ok(sn_merge_adapter(&m, in_root("ad"), in_root("whole.gguf"), true, (int)cases[i].out, 1, &report));
        sn_log_to(NULL, NULL);
        snprintf(wanted, sizeof wanted, "14 tensors dequantised from %s", sn_dtype_name(cases[i].base));
        if (!strstr(said, wanted)) fail_msg("'%s' does not say '%s'", said, wanted);
        sn_model_close(&m);
        double moved = logits_error(in_root("blocks.gguf"), in_root("ad"), in_root("blocks.gguf"), NULL);
        double error = logits_error(in_root("whole.gguf"), NULL, in_root("blocks.gguf"), in_root("ad"));
        print_message("%s merged as %s: logits off by %.2e, the adapter moves them by %.2e\n", sn_dtype_name(cases[i].base),
                      sn_dtype_name(cases[i].out), error, moved);
        assert_true(moved > 0.01);
        if (!(error <= cases[i].bound)) fail_msg("%g is above %g", error, cases[i].bound);
    }
}

/* Every allocation fails in turn: an error each time, and no file under the final name. */
static void allocations_fail(void **state) {
    (void)state;
    sn_model m;
    make_adapter(FILES "gpt2.gguf", "lora=on lora_rank=2", in_root("ad"));
    assert_ok(sn_model_open(FILES "gpt2.gguf", &m));
    for (int gguf = 0; gguf < 2; gguf++) {
        char out[512];
        snprintf(out, sizeof out, "%s", in_root(gguf ? "mem.gguf" : "mem"));
        sn_status s = SN_ERR_NO_MEMORY;
        long n = 0;
        for (; s != SN_OK && n < 20000; n++) {
            sn_remove_tree(out);
            sn_alloc_fail_at(n);
            s = sn_merge_adapter(&m, in_root("ad"), out, gguf, SN_F32, 1, NULL);
            sn_alloc_fail_at(-1);
            if (s != SN_OK && gguf && sn_path_exists(out)) fail_msg("allocation %ld failed, but %s is there", n, out);
            if (s != SN_OK && !gguf && sn_path_exists(in_root("mem/config.json")))
                fail_msg("allocation %ld failed, but the folder is whole", n);
        }
        if (s != SN_OK) fail_msg("still failing after %ld allocations: %s", n, sn_error_text());
        assert_true(n > 20);
    }
    sn_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_equals_base_and_adapter), cmocka_unit_test(adapted_head_is_untied), cmocka_unit_test(refusals),
        cmocka_unit_test(adapters_that_do_not_match),     cmocka_unit_test(merging_into_blocks),    cmocka_unit_test(allocations_fail)};
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
