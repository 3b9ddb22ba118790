#include "support/export_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
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
    assert_int_equal(sn_merge_adapter(&m, in_root("bad"), in_root("x"), false, SN_F32, 1, NULL), SN_ERR_UNSUPPORTED);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(merged_equals_base_and_adapter), cmocka_unit_test(adapted_head_is_untied),
                                       cmocka_unit_test(refusals), cmocka_unit_test(allocations_fail)};
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
