/* A sliding window of W tokens: the token at position p sees keys p - W + 1 .. p on every way through a model, training,
 * evaluation, a whole prompt, a prompt in parts and token by token. One layer, so that nothing is seen at second hand. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "engine/evaluate.h"
#include "engine/export.h"
#include "engine/generate.h"
#include "support/tiny.h"

enum { WINDOW = 4, AT = 10, LENGTH = AT + 1, CHANGES = 3 };

/* Of these positions only the last two are seen from AT. */
static const int changed[CHANGES] = {AT - WINDOW, AT - WINDOW + 1, AT};

static char folder[600], gguf[600];

static sn_model_config one_layer(void) {
    sn_model_config c = tiny_llama();
    c.num_layers = 1;
    c.sliding_window = WINDOW;
    return c;
}

static int write_model(void **state) {
    (void)state;
    sn_model_config config = one_layer();
    const char *root = test_dir("window");
    snprintf(folder, sizeof folder, "%s/hf", root);
    snprintf(gguf, sizeof gguf, "%s/tiny.gguf", root);
    tiny_write(&config, folder, gguf, SN_F32);
    return 0;
}

static int remove_model(void **state) {
    (void)state;
    *strrchr(folder, '/') = 0;
    return sn_remove_tree(folder) == SN_OK ? 0 : -1;
}

static void fill_ids(int32_t *ids, int change) { /* change < 0: none */
    for (int i = 0; i < LENGTH; i++) ids[i] = (7 * i + 3) % TINY_VOCAB;
    if (change >= 0) ids[change] = (ids[change] + 40) % TINY_VOCAB;
}

typedef void (*logits_fn)(void *context, const int32_t *ids, float *last);

/* Only changes inside the window may change a bit of the last token's logits; those of the unchanged text go to `plain`. */
static void check(const char *what, logits_fn fn, void *context, float *plain) {
    float other[TINY_VOCAB];
    int32_t ids[LENGTH];
    fill_ids(ids, -1);
    fn(context, ids, plain);
    for (int i = 0; i < CHANGES; i++) {
        fill_ids(ids, changed[i]);
        fn(context, ids, other);
        bool same = !memcmp(plain, other, sizeof other);
        if (same != (i == 0)) fail_msg("%s: position %d %s position %d", what, AT, same ? "does not see" : "sees", changed[i]);
    }
}

static void evaluate(void *context, const int32_t *ids, float *last) {
    const sn_session *s = context;
    sn_fill_sequence(s->run, 0, 0, ids, LENGTH, LENGTH);
    assert_ok(sn_run_program(s->run, 0, 0));
    memcpy(last, (const float *)sn_run_io(s->run, 0, "logits", 0, NULL) + (size_t)AT * TINY_VOCAB, TINY_VOCAB * sizeof *last);
}

typedef struct parts {
    sn_generator g;
    int first, rest; /* tokens of the first part, and of each later one */
} parts;

static void generate(void *context, const int32_t *ids, float *last) {
    parts *p = context;
    float *logits = NULL;
    sn_generator_rewind(&p->g, 0);
    for (int at = 0, n = p->first; at < LENGTH; at += n, n = p->rest) {
        if (n > LENGTH - at) n = LENGTH - at;
        assert_ok(sn_generator_feed(&p->g, ids + at, n, &logits));
    }
    memcpy(last, logits, TINY_VOCAB * sizeof *last);
}

static void every_way_sees_the_same_keys(void **state) {
    (void)state;
    const char *const paths[] = {folder, gguf};
    static const int splits[][2] = {{LENGTH, 1}, {5, 6}, {6, 5}, {7, 4}, {8, 1}, {1, 1}, {1, 3}};
    float plain[TINY_VOCAB], other[TINY_VOCAB];
    for (int file = 0; file < 2; file++) {
        sn_model m;
        sn_session s;
        parts p;
        sn_options *recipe = tiny_recipe("threads=1 kv_cache_dtype=f32 ctx_size=64");
        assert_ok(sn_model_open(paths[file], &m));
        assert_int_equal(m.config->sliding_window, WINDOW);
        assert_ok(sn_evaluator_open(&m, recipe, NULL, LENGTH, true, &s));
        check("evaluation", evaluate, &s, plain);
        sn_session_close(&s);
        assert_ok(sn_generator_open(&m, recipe, NULL, &p.g));
        for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
            p.first = splits[i][0];
            p.rest = splits[i][1];
            check("generation", generate, &p, other);
            assert_true(test_error(other, plain, TINY_VOCAB) < 1e-5);
        }
        sn_generator_close(&p.g);
        sn_model_close(&m);
        sn_options_close(recipe);
    }
}

typedef struct training {
    tiny t;
    int program;
} training;

/* The loss of position AT for every label: what a training step's attention lets through. */
static void train_losses(void *context, const int32_t *ids, float *last) {
    training *w = context;
    int32_t *in = sn_run_io(w->t.run, w->program, "ids", 0, NULL), *labels = sn_run_io(w->t.run, w->program, "labels", 0, NULL);
    for (int v = 0; v < TINY_VOCAB; v++) {
        double *sum = sn_run_persistent(w->t.run, sn_job_find(w->t.job, "loss"));
        sn_fill_sequence(w->t.run, w->program, 0, ids, LENGTH, w->t.tokens);
        for (int i = 0; i < w->t.tokens; i++) labels[i] = i == AT ? v : -100;
        assert_memory_equal(in, ids, LENGTH * sizeof *in);
        *(float *)sn_run_io(w->t.run, w->program, "scale", 0, NULL) = 1;
        memset(sum, 0, 2 * sizeof *sum);
        assert_ok(sn_run_program(w->t.run, w->program, 0));
        last[v] = (float)sum[0];
    }
}

static void training_sees_them_too(void **state) {
    (void)state;
    static const char *const recipes[] = {"threads=1", "threads=1 recompute=all", "threads=1 precision=bf16", "threads=1 lora=on"};
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        sn_model_config config = one_layer();
        training w;
        float losses[TINY_VOCAB];
        char options[128];
        snprintf(options, sizeof options, "gradient_accumulation_steps=2 %s", recipes[i]); /* without the update */
        tiny_open(&w.t, &config, options, "cpu", true);
        w.program = sn_job_role_index(w.t.job, SN_ROLE_TRAIN);
        check(recipes[i], train_losses, &w, losses);
        tiny_close(&w.t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_way_sees_the_same_keys), cmocka_unit_test(training_sees_them_too)};
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
