#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/evaluate.h"
#include "engine/export.h"
#include "io/hf_config.h"
#include "io/safetensors.h"
#include "tensor/convert.h"

#define FILES SNUG_SOURCE_DIR "/tests/golden/model_files/"

static char root[400];

static const char *in_root(const char *name) {
    static char paths[8][512];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "%s", test_dir("export"));
    return 0;
}

static int remove_root(void **state) {
    (void)state;
    return sn_remove_tree(root) == SN_OK ? 0 : -1;
}

static sn_options *recipe_of(const char *text) {
    sn_options *recipe;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    assert_ok(sn_recipe_new(&recipe));
    assert_ok(sn_options_set(recipe, "threads", "2", SN_FROM_COMMAND_LINE, "test"));
    for (char *save = NULL, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = 0;
        assert_ok(sn_options_set(recipe, word, value, SN_FROM_COMMAND_LINE, "test"));
    }
    return recipe;
}

/* A run of a model, for training or evaluation. */
static void open_session(sn_session *s, sn_model *model, const sn_options *recipe, bool train) {
    sn_parameters parameters = sn_model_parameters(model);
    const sn_parameters *source = parameters.find ? &parameters : NULL;
    sn_training_shape shape = {.tokens = 8, .accumulation = 1};
    *s = (sn_session){.model = model};
    assert_ok(sn_session_machine(s, recipe));
    if (train) assert_ok(sn_job_for_training(model->config, source, &shape, recipe, &s->cluster, NULL, &s->job));
    else assert_ok(sn_job_for_evaluation(model->config, source, 8, false, recipe, &s->cluster, &s->job));
    assert_ok(sn_session_plan(s, recipe));
    assert_ok(sn_session_open(s, recipe, NULL, NULL));
}

static bool is_factor(const sn_persistent *e) { return e->class_of == SN_CLASS_WEIGHTS && strstr(e->name, ".lora_"); }

/* Numbers in every factor (B is zero at first), and in its master. */
static void fill_factors(const sn_session *s) {
    for (size_t p = 0; p < s->job->n_persistent; p++) {
        const sn_persistent *e = &s->job->persistent[p];
        float *x = sn_run_persistent(s->run, (sn_pid)p);
        bool master = strstr(e->name, ".lora_") && strstr(e->name, ".master");
        if (!master && !(is_factor(e) && e->rest.form == SN_F32)) continue;
        test_fill(x, (size_t)(e->shape.d[0] * e->shape.d[1]), (uint32_t)p + 1, 0.3f);
    }
}

static void convert(const char *from, const char *to, bool gguf, int form) {
    sn_model m;
    assert_ok(sn_model_open(from, &m));
    assert_ok(sn_merge_adapter(&m, NULL, to, gguf, form, 2, NULL));
    sn_model_close(&m);
}

/* A tensor whole, in Hugging Face's order, as the file has it. */
static char *read_whole(const sn_model_files *m, const sn_model_tensor *t) {
    char *data = sn_alloc((size_t)t->bytes);
    assert_non_null(data);
    assert_ok(sn_model_files_read(m, t, 0, t->shape.d[0], data, (size_t)t->bytes));
    return data;
}

static void assert_same_models(const char *a, const char *b) {
    sn_model_files x, y;
    assert_ok(sn_model_files_open(a, &x));
    assert_ok(sn_model_files_open(b, &y));
    assert_int_equal(x.config.tie_word_embeddings, y.config.tie_word_embeddings);
    assert_int_equal(x.config.num_kv_heads, y.config.num_kv_heads);
    assert_int_equal(x.config.head_dim, y.config.head_dim);
    assert_int_equal(x.config.eos_ids[0], y.config.eos_ids[0]);
    assert_true(x.config.norm_eps == y.config.norm_eps && x.config.rope.theta == y.config.rope.theta);
    size_t compared = 0;
    for (size_t i = 0; i < x.tensor_count; i++) {
        const sn_model_tensor *t = &x.tensors[i], *u = sn_model_files_find(&y, t->name);
        if (!u && x.config.tie_word_embeddings && !strcmp(t->name, "lm_head.weight")) continue; /* the tied head's second copy */
        if (!u) fail_msg("%s lacks %s", b, t->name);
        assert_int_equal(t->dtype, u->dtype);
        assert_true(sn_shape_equal(&t->shape, &u->shape));
        char *p = read_whole(&x, t), *q = read_whole(&y, u);
        if (memcmp(p, q, (size_t)t->bytes)) fail_msg("%s differs between %s and %s", t->name, a, b);
        sn_free(p);
        sn_free(q);
        compared++;
    }
    assert_true(compared > 10);
    sn_model_files_close(&x);
    sn_model_files_close(&y);
}

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

static float *logits_of(const char *model_path, const char *adapter, size_t *n) {
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
    sn_model m;
    sn_st st;
    sn_options *recipe = recipe_of("");
    assert_ok(sn_model_open(model_path, &m));
    assert_ok(sn_evaluate_dump_logits(&m, recipe, adapter, ids, 8, in_root("logits.st")));
    assert_ok(sn_st_open(in_root("logits.st"), &st));
    float *logits = sn_alloc((size_t)st.tensors[0].bytes);
    *n = (size_t)st.tensors[0].bytes / sizeof(float);
    assert_ok(sn_st_read(&st, &st.tensors[0], 0, logits, (size_t)st.tensors[0].bytes));
    sn_st_close(&st);
    sn_model_close(&m);
    sn_options_close(recipe);
    return logits;
}

static double logits_error(const char *model_a, const char *adapter_a, const char *model_b, const char *adapter_b) {
    size_t n, m;
    float *a = logits_of(model_a, adapter_a, &n), *b = logits_of(model_b, adapter_b, &m);
    assert_int_equal(n, m);
    double error = test_error(a, b, n);
    sn_free(a);
    sn_free(b);
    return error;
}

/* A model from its shape alone, with every value random, exported from its run. */
static void export_shape(const char *config, const char *dir) {
    sn_model m;
    sn_session s;
    sn_options *recipe = recipe_of("");
    assert_ok(sn_file_replace(in_root("shape.json"), config, strlen(config)));
    assert_ok(sn_model_open(in_root("shape.json"), &m));
    open_session(&s, &m, recipe, false);
    for (size_t p = 0; p < s.job->n_persistent; p++) {
        const sn_persistent *e = &s.job->persistent[p];
        int64_t elements;
        assert_true(sn_shape_elements(&e->shape, &elements));
        if (e->class_of == SN_CLASS_WEIGHTS) test_fill(sn_run_persistent(s.run, (sn_pid)p), (size_t)elements, (uint32_t)p + 1, 0.3f);
    }
    assert_ok(sn_export_hf(&s, recipe, dir, SN_F32, NULL));
    sn_session_close(&s);
    sn_model_close(&m);
    sn_options_close(recipe);
}

#define SHAPE_32_4                                                                                                                        \
    "{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 64, \"intermediate_size\": 172, \"num_hidden_layers\": 2, "         \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 4, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, " \
    "\"tie_word_embeddings\": false, \"attention_bias\": true}"

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

static void make_adapter(const char *model_path, const char *options, const char *dir) {
    sn_model m;
    sn_session s;
    sn_options *recipe = recipe_of(options);
    assert_ok(sn_model_open(model_path, &m));
    open_session(&s, &m, recipe, false);
    fill_factors(&s);
    assert_ok(sn_export_adapter(&s, recipe, model_path, dir));
    assert_ok(sn_export_hf(&s, recipe, in_root("of-run"), SN_F32, NULL));
    sn_session_close(&s);
    sn_model_close(&m);
    sn_options_close(recipe);
}

/* Merged logits equal base + adapter: peft's order of sums differs, hence the bound. */
static void merged_equals_base_and_adapter(void **state) {
    (void)state;
    static const char *const models[] = {FILES "llama", FILES "llama.gguf", FILES "gpt2", FILES "gpt2.gguf"};
    for (int i = 0; i < 4; i++) {
        sn_model m;
        sn_export_report report;
        make_adapter(models[i], i % 2 ? "lora=on lora_rank=3 use_rslora=on" : "lora=on lora_rank=3 lora_alpha=5", in_root("ad"));
        assert_true(logits_error(models[i], in_root("ad"), models[i], NULL) > 0.01);
        assert_ok(sn_model_open(models[i], &m));
        assert_ok(sn_merge_adapter(&m, in_root("ad"), in_root("merged"), false, SN_F32, 2, &report));
        assert_int_equal(report.adapted, i < 2 ? 14 : 4);
        assert_ok(sn_merge_adapter(&m, in_root("ad"), in_root("merged.gguf"), true, SN_F32, 1, &report));
        assert_int_equal(report.adapted, i < 2 ? 14 : 4);
        sn_model_close(&m);
        double folder = logits_error(in_root("merged"), NULL, models[i], in_root("ad")),
               gguf = logits_error(in_root("merged.gguf"), NULL, models[i], in_root("ad"));
        if (!(folder <= 1e-5 && gguf <= 1e-5)) fail_msg("%s: folder %g, GGUF %g", models[i], folder, gguf);
        assert_same_models(in_root("merged"), in_root("of-run"));
    }
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
        assert_ok(sn_export_hf(&s, recipe, in_root("full"), SN_F32, NULL));
        assert_ok(sn_export_gguf(&s, recipe, in_root("full.gguf"), SN_F32, NULL));
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

static void write_adapter(const char *dir, const char *config, const char *module, int64_t in, int64_t out, int64_t rank, const float *a,
                          const float *b) {
    sn_st_writer w;
    char name[2][200], path[2][600];
    sn_shape shapes[2] = {sn_shape_of(rank, in), sn_shape_of(out, rank)};
    assert_ok(sn_make_dirs(dir));
    snprintf(path[0], sizeof path[0], "%s/adapter_config.json", dir);
    snprintf(path[1], sizeof path[1], "%s/adapter_model.safetensors", dir);
    assert_ok(sn_file_replace(path[0], config, strlen(config)));
    assert_ok(sn_st_write_open(path[1], &w));
    for (int i = 0; i < 2; i++) {
        snprintf(name[i], sizeof name[i], "base_model.model.%s.lora_%c.weight", module, "AB"[i]);
        assert_ok(sn_st_add_tensor(&w, name[i], SN_F32, &shapes[i]));
    }
    assert_ok(sn_st_write_begin(&w));
    assert_ok(sn_st_write(&w, 0, 0, a, (size_t)(rank * in) * sizeof *a));
    assert_ok(sn_st_write(&w, 1, 0, b, (size_t)(rank * out) * sizeof *b));
    assert_ok(sn_st_write_finish(&w));
    sn_st_write_close(&w);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(conversions_keep_bytes),  cmocka_unit_test(folders_have_companions),
                                       cmocka_unit_test(grouped_heads_survive),   cmocka_unit_test(rows_that_fit_no_block),
                                       cmocka_unit_test(adapters_round_trip),     cmocka_unit_test(merged_equals_base_and_adapter),
                                       cmocka_unit_test(adapted_head_is_untied),  cmocka_unit_test(trained_values_leave),
                                       cmocka_unit_test(quantised_matrices_turn), cmocka_unit_test(refusals),
                                       cmocka_unit_test(allocations_fail)};
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
