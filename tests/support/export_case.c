#include "support/export_case.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "engine/evaluate.h"
#include "io/safetensors.h"

static char root[400];

const char *in_root(const char *name) {
    static char paths[64][512];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (int i = 0; i < 64; i++) {
        if (!paths[i][0]) snprintf(paths[i], sizeof paths[i], "%s", path);
        if (!strcmp(paths[i], path)) return paths[i];
    }
    fail_msg("more than 64 names");
    return NULL;
}

int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "%s", test_dir("export"));
    return 0;
}

int remove_root(void **state) {
    (void)state;
    return sn_remove_tree(root) == SN_OK ? 0 : -1;
}

sn_options *recipe_of(const char *text) {
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

void open_session(sn_session *s, sn_model *model, const sn_options *recipe, bool train) {
    sn_parameters parameters = sn_model_parameters(model);
    const sn_parameters *source = parameters.find ? &parameters : NULL;
    sn_training_shape shape = {.tokens = 8};
    *s = (sn_session){.model = model, .exports = true};
    assert_ok(sn_session_machine(s, recipe));
    if (train) assert_ok(sn_job_for_training(model->config, source, &shape, recipe, &s->cluster, NULL, &s->job));
    else assert_ok(sn_job_for_evaluation(model->config, source, 8, false, recipe, &s->cluster, &s->job));
    assert_ok(sn_session_plan(s));
    assert_ok(sn_session_open(s, recipe, NULL, NULL));
}

bool is_factor(const sn_persistent *e) { return e->class_of == SN_CLASS_WEIGHTS && strstr(e->name, ".lora_"); }

/* Numbers in every factor (B is zero at first), and in its master. */
void fill_factors(const sn_session *s) {
    for (size_t p = 0; p < s->job->n_persistent; p++) {
        const sn_persistent *e = &s->job->persistent[p];
        float *x = sn_run_persistent(s->run, (sn_pid)p);
        bool master = strstr(e->name, ".lora_") && strstr(e->name, ".master");
        if (!master && !(is_factor(e) && e->rest.form == SN_F32)) continue;
        test_fill(x, (size_t)(e->shape.d[0] * e->shape.d[1]), (uint32_t)p + 1, 0.3f);
    }
}

void convert(const char *from, const char *to, bool gguf, int form) {
    sn_model m;
    assert_ok(sn_model_open(from, &m));
    assert_ok(sn_merge_adapter(&m, NULL, to, gguf, form, 2, NULL));
    sn_model_close(&m);
}

/* A tensor whole, in Hugging Face's order, as the file has it. */
char *read_whole(const sn_model_files *m, const sn_model_tensor *t) {
    char *data = sn_alloc((size_t)t->bytes);
    assert_non_null(data);
    assert_ok(sn_model_files_read(m, t, 0, t->shape.d[0], data, (size_t)t->bytes));
    return data;
}

void assert_same_models(const char *a, const char *b) {
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

double logits_error(const char *model_a, const char *adapter_a, const char *model_b, const char *adapter_b) {
    size_t n, m;
    float *a = logits_of(model_a, adapter_a, &n), *b = logits_of(model_b, adapter_b, &m);
    assert_int_equal(n, m);
    double error = test_error(a, b, n);
    sn_free(a);
    sn_free(b);
    return error;
}

/* A model from its shape alone, with every value random, exported from its run. */
void export_shape(const char *config, const char *dir) {
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
    assert_ok(sn_export_hf(&s, dir, SN_F32, NULL));
    sn_session_close(&s);
    sn_model_close(&m);
    sn_options_close(recipe);
}

void make_adapter(const char *model_path, const char *options, const char *dir) {
    sn_model m;
    sn_session s;
    sn_options *recipe = recipe_of(options);
    assert_ok(sn_model_open(model_path, &m));
    open_session(&s, &m, recipe, false);
    fill_factors(&s);
    assert_ok(sn_export_adapter(&s, recipe, model_path, dir));
    assert_ok(sn_export_hf(&s, in_root("of-run"), SN_F32, NULL));
    sn_session_close(&s);
    sn_model_close(&m);
    sn_options_close(recipe);
}

void write_adapter(const char *dir, const char *config, const char *module, int64_t in, int64_t out, int64_t rank, const float *a,
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
