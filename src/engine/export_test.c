#include "support/export_case.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "engine/evaluate.h"
#include "io/safetensors.h"

/* The tensor data of two GGUFs as they lie there: rows permuted as llama.cpp's converter does. */
static void assert_same_gguf(const char *a, const char *b) {
    sn_gguf x, y;
    assert_ok(sn_gguf_open(a, &x));
    assert_ok(sn_gguf_open(b, &y));
    for (size_t i = 0; i < x.tensor_count; i++) {
        const sn_gguf_tensor *t = &x.tensors[i], *u = sn_gguf_find_tensor(&y, t->name);
        if (!u) fail_msg("%s lacks %s", b, t->name);
        assert_true(t->dtype == u->dtype && t->bytes == u->bytes && sn_shape_equal(&t->shape, &u->shape));
        char *p = sn_alloc((size_t)t->bytes), *q = sn_alloc((size_t)t->bytes);
        assert_ok(sn_gguf_read(&x, t, 0, p, (size_t)t->bytes));
        assert_ok(sn_gguf_read(&y, u, 0, q, (size_t)t->bytes));
        if (memcmp(p, q, (size_t)t->bytes)) fail_msg("%s differs between %s and %s", t->name, a, b);
        sn_free(p);
        sn_free(q);
    }
    sn_gguf_close(&x);
    sn_gguf_close(&y);
}

/* Folders and GGUFs made by transformers and the gguf package; every way through snug gives their bytes. */
static void conversions_keep_bytes(void **state) {
    (void)state;
    static const char *const names[] = {"llama", "gpt2"};
    for (int i = 0; i < 2; i++) {
        char folder[300], gguf[300];
        snprintf(folder, sizeof folder, FILES "%s", names[i]);
        snprintf(gguf, sizeof gguf, FILES "%s.gguf", names[i]);
        convert(folder, in_root("hf"), false, SN_F32);
        assert_same_models(folder, in_root("hf"));
        convert(folder, in_root("a.gguf"), true, SN_F32);
        assert_same_gguf(in_root("a.gguf"), gguf);
        convert(in_root("a.gguf"), in_root("back"), false, SN_FORM_SOURCE);
        assert_same_models(folder, in_root("back"));
        convert(gguf, in_root("from"), false, SN_F32);
        assert_same_models(folder, in_root("from"));
        convert(gguf, in_root("b.gguf"), true, SN_FORM_SOURCE);
        assert_same_gguf(in_root("b.gguf"), gguf);
        convert(gguf, in_root("16"), false, SN_BF16);
        convert(in_root("16"), in_root("16.gguf"), true, SN_FORM_SOURCE);
        convert(in_root("16.gguf"), in_root("16back"), false, SN_BF16);
        assert_same_models(in_root("16"), in_root("16back"));
    }
}

/* GPT-2's matrices turn between folder and GGUF; quantised blocks lie along the other side then. */
static void quantised_matrices_turn(void **state) {
    (void)state;
    sn_gguf g;
    convert(FILES "gpt2", in_root("q.gguf"), true, SN_Q8_0);
    assert_ok(sn_gguf_open(in_root("q.gguf"), &g));
    assert_int_equal(sn_gguf_find_tensor(&g, "blk.0.ffn_down.weight")->dtype, SN_Q8_0);
    sn_gguf_close(&g);
    convert(in_root("q.gguf"), in_root("q"), false, SN_F32);
    convert(in_root("q"), in_root("q2.gguf"), true, SN_Q8_0); /* values on q8_0's grid come back to it */
    assert_same_gguf(in_root("q.gguf"), in_root("q2.gguf"));
}

static void assert_file_has(const char *dir, const char *name, const char *text) {
    char *path = sn_path_join(dir, name), *data;
    size_t size;
    assert_ok(sn_file_read_all(path, 1 << 20, &data, &size));
    if (!strstr(data, text)) fail_msg("%s has no %s", path, text);
    sn_free(path);
    sn_free(data);
}

static void folders_have_companions(void **state) {
    (void)state;
    convert(FILES "llama.gguf", in_root("companions"), false, SN_F16);
    assert_file_has(in_root("companions"), "config.json", "\"torch_dtype\": \"float16\"");
    assert_file_has(in_root("companions"), "generation_config.json", "\"eos_token_id\": 2");
    assert_file_has(in_root("companions"), "tokenizer.json", "\"t21\": 21");
    assert_file_has(in_root("companions"), "tokenizer_config.json", "\"eos_token\": \"t2\"");
    convert(FILES "llama", in_root("copied"), false, SN_F16);
    assert_file_has(in_root("copied"), "generation_config.json", "transformers_version");
}

/* llama.cpp#3364: 32 heads, 4 KV heads; here with biases, which are permuted too. */
static void grouped_heads_survive(void **state) {
    (void)state;
    export_shape(SHAPE_32_4, in_root("gqa"));
    convert(in_root("gqa"), in_root("gqa.gguf"), true, SN_F32);
    convert(in_root("gqa.gguf"), in_root("gqa-back"), false, SN_F32);
    assert_same_models(in_root("gqa"), in_root("gqa-back"));
    assert_true(logits_error(in_root("gqa"), NULL, in_root("gqa.gguf"), NULL) == 0);
}

/* llama.cpp#2708: down_proj has 172 columns, which no block of 32 divides. */
static void rows_that_fit_no_block(void **state) {
    (void)state;
    static const struct {
        sn_dtype form;
        double least, most; /* bits per weight */
    } cases[] = {{SN_Q8_0, 8.5, 12}, {SN_Q4_0, 5, 10}, {SN_Q4_1, 5.5, 10}, {SN_BF16, 16, 16.5}};
    sn_model m;
    export_shape(SHAPE_32_4, in_root("odd"));
    assert_ok(sn_model_open(in_root("odd"), &m));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_export_report report;
        sn_gguf g;
        assert_ok(sn_merge_adapter(&m, NULL, in_root("odd.gguf"), true, (int)cases[i].form, 1, &report));
        assert_int_equal(report.fallbacks, cases[i].form == SN_BF16 ? 0 : 2);
        double bits = 8.0 * (double)report.bytes / (double)report.elements;
        if (bits < cases[i].least || bits > cases[i].most) fail_msg("%s: %g bits per weight", sn_dtype_name(cases[i].form), bits);
        assert_ok(sn_gguf_open(in_root("odd.gguf"), &g));
        assert_int_equal(sn_gguf_find_tensor(&g, "blk.1.ffn_up.weight")->dtype, cases[i].form);
        assert_int_equal(sn_gguf_find_tensor(&g, "blk.1.ffn_down.weight")->dtype, cases[i].form == SN_BF16 ? SN_BF16 : SN_F16);
        assert_int_equal(sn_gguf_find_tensor(&g, "output.weight")->dtype, cases[i].form == SN_BF16 ? SN_BF16 : SN_Q8_0);
        assert_int_equal(sn_gguf_find_tensor(&g, "blk.1.attn_norm.weight")->dtype, SN_F32);
        uint64_t bytes = 0;
        for (size_t t = 0; t < g.tensor_count; t++) bytes += g.tensors[t].bytes;
        assert_int_equal(bytes, report.bytes);
        sn_gguf_close(&g);
    }
    sn_model_close(&m);
    assert_true(logits_error(in_root("odd.gguf"), NULL, in_root("odd"), NULL) < 0.1); /* the bf16 one */
}

/* Exports the factors of a run and loads them into another. */
static void round_trip_adapter(const char *model_path, const char *options, bool train, const char *targets) {
    sn_model m;
    sn_session s, t;
    sn_options *recipe = recipe_of(options);
    sn_st st;
    assert_ok(sn_model_open(model_path, &m));
    open_session(&s, &m, recipe, train);
    fill_factors(&s);
    assert_ok(sn_export_adapter(&s, recipe, "org/base", in_root("adapter")));
    assert_file_has(in_root("adapter"), "adapter_config.json", targets);
    assert_file_has(in_root("adapter"), "adapter_config.json", "\"base_model_name_or_path\": \"org/base\"");
    assert_ok(sn_st_open(in_root("adapter/adapter_model.safetensors"), &st));
    size_t compared = 0;
    for (size_t p = 0; p < s.job->n_persistent; p++) {
        const sn_persistent *e = &s.job->persistent[p];
        char name[400];
        if (!is_factor(e)) continue;
        snprintf(name, sizeof name, "%s.master", e->name);
        sn_pid from = e->rest.form == SN_F32 ? (sn_pid)p : sn_job_find(s.job, name);
        assert_true(from != SN_NONE);
        const sn_st_tensor *tensor = sn_st_find(&st, e->name);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, SN_F32);
        char *data = sn_alloc((size_t)tensor->bytes);
        assert_ok(sn_st_read(&st, tensor, 0, data, (size_t)tensor->bytes));
        assert_memory_equal(data, sn_run_persistent(s.run, from), (size_t)tensor->bytes);
        sn_free(data);
        compared++;
    }
    assert_true(compared > 0 && compared == st.tensor_count);
    sn_st_close(&st);
    assert_ok(sn_evaluator_open(&m, recipe, in_root("adapter"), 8, false, &t)); /* its recipe comes from adapter_config.json */
    for (size_t p = 0; p < t.job->n_persistent; p++) {
        if (!is_factor(&t.job->persistent[p]) || t.job->persistent[p].rest.form != SN_F32) continue;
        sn_pid q = sn_job_find(s.job, t.job->persistent[p].name);
        assert_memory_equal(sn_run_persistent(t.run, (sn_pid)p), sn_run_persistent(s.run, q), (size_t)t.plan->persistent[p].bytes);
    }
    sn_session_close(&t);
    sn_session_close(&s);
    sn_model_close(&m);
    sn_options_close(recipe);
}

static void adapters_round_trip(void **state) {
    (void)state;
    round_trip_adapter(FILES "llama", "lora=on lora_rank=3 lora_alpha=7.5", true,
                       "\"target_modules\": [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"gate_proj\", \"up_proj\", \"down_proj\"]");
    round_trip_adapter(FILES "llama", "lora=on lora_rank=3 lora_alpha=7.5 lora_dropout=0.05", true,
                       "\"lora_alpha\": 7.5,\n  \"lora_dropout\": 0.05,");
    round_trip_adapter(FILES "llama", "lora=on lora_rank=2 lora_target=q_proj,up_proj use_rslora=on", false, "\"use_rslora\": true");
    round_trip_adapter(FILES "llama", "lora=on lora_rank=2 lora_target=model.layers.1.self_attn.q_proj,k_proj", false,
                       "\"target_modules\": [\"k_proj\", \"model.layers.1.self_attn.q_proj\"]");
    round_trip_adapter(FILES "gpt2", "lora=on lora_rank=2", true, "\"fan_in_fan_out\": true");
    round_trip_adapter(FILES "gpt2", "lora=on lora_rank=2 lora_target=transformer.h.0.mlp.c_proj", true,
                       "[\"transformer.h.0.mlp.c_proj\"]");
    round_trip_adapter(FILES "llama", "lora=on lora_rank=2 precision=bf16", true, "\"r\": 2"); /* masters leave */
}

/* The f32 values of a full run leave, of a 16-bit run its masters; in both orders of rows. */
static void trained_values_leave(void **state) {
    (void)state;
    static const char *const models[] = {FILES "llama", FILES "gpt2.gguf"}, *const options[] = {"full=on", "full=on precision=bf16"};
    for (int i = 0; i < 4; i++) {
        sn_model m;
        sn_session s;
        sn_model_files hf, gguf;
        sn_options *recipe = recipe_of(options[i % 2]);
        assert_ok(sn_model_open(models[i / 2], &m));
        open_session(&s, &m, recipe, true);
        for (size_t p = 0; p < s.job->n_persistent; p++) {
            const sn_persistent *e = &s.job->persistent[p];
            bool values = i % 2 ? strstr(e->name, ".master") != NULL : e->class_of == SN_CLASS_WEIGHTS;
            if (values) test_fill(sn_run_persistent(s.run, (sn_pid)p), (size_t)s.plan->persistent[p].bytes / sizeof(float), (uint32_t)p, 1);
        }
        assert_ok(sn_export_hf(&s, in_root("full"), SN_F32, NULL));
        assert_ok(sn_export_gguf(&s, in_root("full.gguf"), SN_F32, NULL));
        assert_ok(sn_model_files_open(in_root("full"), &hf));
        assert_ok(sn_model_files_open(in_root("full.gguf"), &gguf));
        for (size_t t = 0; t < hf.tensor_count; t++) {
            char name[200];
            snprintf(name, sizeof name, "%s%s", hf.tensors[t].name, i % 2 ? ".master" : "");
            const void *trained = sn_run_persistent(s.run, sn_job_find(s.job, name));
            char *x = read_whole(&hf, &hf.tensors[t]), *y = read_whole(&gguf, sn_model_files_find(&gguf, hf.tensors[t].name));
            assert_memory_equal(x, trained, (size_t)hf.tensors[t].bytes);
            assert_memory_equal(y, trained, (size_t)hf.tensors[t].bytes);
            sn_free(x);
            sn_free(y);
        }
        sn_model_files_close(&hf);
        sn_model_files_close(&gguf);
        sn_session_close(&s);
        sn_model_close(&m);
        sn_options_close(recipe);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversions_keep_bytes),  cmocka_unit_test(folders_have_companions), cmocka_unit_test(grouped_heads_survive),
        cmocka_unit_test(rows_that_fit_no_block),  cmocka_unit_test(adapters_round_trip),     cmocka_unit_test(trained_values_leave),
        cmocka_unit_test(quantised_matrices_turn),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
