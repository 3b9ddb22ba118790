/* The library through snug.h: what the command line's test does not reach. Each allocation is made to fail in turn, and nothing
 * may leak, crash or succeed with half a result. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "snug.h"
#include "support/support.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/cli/"

static snug_status options_and_texts(void) {
    char *argv[] = {"MODEL", "-n", "3", "--top-k=4"}, *text = NULL;
    const char *positional[4];
    size_t n = 0;
    snug_options *o = NULL;
    snug_status s = snug_options_new("generate", &o);
    if (s == SNUG_OK) s = snug_options_parse(o, 4, argv, positional, &n);
    for (int all = 0; all < 2 && s == SNUG_OK; all++) {
        s = snug_options_help(o, all, &text);
        snug_free(s == SNUG_OK ? text : NULL);
    }
    if (s == SNUG_OK) s = snug_options_dump(o, &text);
    if (s == SNUG_OK) {
        assert_non_null(strstr(text, "max_tokens: 3  # command line"));
        assert_non_null(strstr(text, "activations: q8  # default"));
        snug_free(text);
    }
    snug_options_free(o);
    return s;
}

static snug_status plan_and_renderings(void) {
    snug_options *o = NULL;
    snug_model *m = NULL;
    snug_plan *p = NULL;
    char *text = NULL;
    snug_status s = snug_options_new("plan", &o);
    if (s == SNUG_OK) s = snug_options_set(o, "cutoff_len", "32");
    if (s == SNUG_OK) s = snug_model_open(GOLDEN "tiny.gguf", &m);
    if (s == SNUG_OK) s = snug_plan_make(m, o, &p);
    for (int form = SNUG_RENDER_TEXT; s == SNUG_OK && form <= SNUG_RENDER_HTML; form++) {
        s = snug_plan_render(p, (snug_render)form, &text);
        snug_free(s == SNUG_OK ? text : NULL);
    }
    if (s == SNUG_OK) s = snug_model_show(m, true, &text);
    snug_free(s == SNUG_OK ? text : NULL);
    snug_plan_free(p);
    snug_model_close(m);
    snug_options_free(o);
    return s;
}

static bool count_row(void *context, const int32_t *ids, size_t n) {
    size_t *sum = context;
    for (size_t i = 0; i < n; i++) *sum += (size_t)ids[i];
    return true;
}

static snug_status tokens(void) {
    snug_model *m = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0, size = 0, sum = 0;
    snug_status s = snug_model_open(GOLDEN "tiny", &m);
    if (s == SNUG_OK) s = snug_tokenize(m, "The plan is the run.", 20, 0, &ids, &n);
    if (s == SNUG_OK) s = snug_detokenize(m, ids, n, &text, &size);
    if (s == SNUG_OK) assert_string_equal(text, "The plan is the run.");
    if (s == SNUG_OK) s = snug_tokenize_file(m, GOLDEN "rows.jsonl", true, count_row, &sum);
    snug_free(ids);
    snug_free(text);
    snug_model_close(m);
    return s;
}

static snug_status conversation(void) {
    snug_options *o = NULL;
    snug_model *m = NULL;
    snug_session *session = NULL;
    snug_usage usage;
    snug_status s = snug_options_new("chat", &o);
    if (s == SNUG_OK) s = snug_options_set(o, "max_tokens", "3");
    if (s == SNUG_OK) s = snug_options_set(o, "ctx_size", "128");
    if (s == SNUG_OK) s = snug_options_set(o, "threads", "1");
    if (s == SNUG_OK) s = snug_model_open(GOLDEN "tiny.gguf", &m);
    if (s == SNUG_OK) s = snug_session_open(m, o, &session);
    if (s == SNUG_OK) s = snug_chat(session, "What is a plan?", 15, NULL, NULL, &usage);
    if (s == SNUG_OK) assert_true(usage.completion_tokens > 0 && usage.cached_tokens == 0);
    snug_session_close(session);
    snug_model_close(m);
    snug_options_free(o);
    return s;
}

/* Runs fn with the n-th allocation failing, for every n, in steps once there are many. */
static void fail_each(snug_status (*fn)(void)) {
    sn_alloc_fail_at(-1);
    assert_int_equal(fn(), SNUG_OK);
    long total = sn_alloc_fail_at(-1), step = total > 400 ? total / 200 : 1, failures = 0;
    for (long n = 0; n < total; n += n < 100 ? 1 : step) {
        sn_alloc_fail_at(n);
        snug_status s = fn();
        sn_alloc_fail_at(-1);
        /* SNUG_OK: what failed was not needed (a compiled pattern is interpreted instead); fn has checked its results */
        if (s != SNUG_ERR_NO_MEMORY && s != SNUG_OK) fail_msg("allocation %ld of %ld: %s: %s", n, total, snug_status_name(s), snug_error());
        if (s != SNUG_OK) failures++;
    }
    assert_true(failures > 10);
}

static void every_allocation_fails(void **state) {
    (void)state;
    fail_each(options_and_texts);
    fail_each(plan_and_renderings);
    fail_each(tokens);
    fail_each(conversation);
}

/* ---- Sessions ---- */

typedef struct gathered {
    char text[512];
    size_t n;
    int pieces, stop_after;
} gathered;

static bool gather(void *context, const char *text, size_t n) {
    gathered *g = context;
    if (!n) return true;
    assert_true(g->n + n < sizeof g->text);
    memcpy(g->text + g->n, text, n);
    g->text[g->n += n] = 0;
    return ++g->pieces != g->stop_after;
}

static snug_session *open_session(const char *verb, const char *ctx_size, snug_model **m) {
    snug_options *o;
    snug_session *s;
    assert_int_equal(snug_options_new(verb, &o), SNUG_OK);
    assert_int_equal(snug_options_set(o, "max_tokens", "20"), SNUG_OK);
    assert_int_equal(snug_options_set(o, "ctx_size", ctx_size), SNUG_OK);
    assert_int_equal(snug_options_set(o, "activations", "f32"), SNUG_OK);
    assert_int_equal(snug_model_open(GOLDEN "tiny", m), SNUG_OK);
    assert_int_equal(snug_session_open(*m, o, &s), SNUG_OK);
    snug_options_free(o); /* a session keeps what it needs */
    return s;
}

/* What the cache keeps from another prompt changes nothing. */
static void prefix_reuse(void **state) {
    static const char a[] = "A plan says how much memory a job needs", b[] = "A plan says how much memory";
    snug_model *m;
    snug_session *s = open_session("generate", "256", &m);
    gathered fresh = {0}, again = {0};
    snug_usage usage;
    (void)state;
    assert_int_equal(snug_generate(s, b, strlen(b), gather, &fresh, &usage), SNUG_OK);
    assert_int_equal(usage.cached_tokens, 0);
    assert_int_equal(snug_generate(s, a, strlen(a), NULL, NULL, &usage), SNUG_OK);
    assert_true(usage.cached_tokens > 5);
    assert_int_equal(snug_generate(s, b, strlen(b), gather, &again, &usage), SNUG_OK);
    assert_int_equal(usage.cached_tokens, usage.prompt_tokens - 1); /* the last one is computed for its logits */
    assert_string_equal(fresh.text, again.text);
    snug_session_close(s);
    snug_model_close(m);
}

static void a_callback_ends_the_answer(void **state) {
    snug_model *m;
    snug_session *s = open_session("generate", "256", &m);
    gathered g = {.stop_after = 2};
    snug_usage usage;
    (void)state;
    assert_int_equal(snug_generate(s, "nothing else", 12, gather, &g, &usage), SNUG_OK);
    assert_int_equal(usage.finish, SNUG_FINISH_CALLER);
    assert_int_equal(g.pieces, 2);
    snug_session_close(s);
    snug_model_close(m);
}

/* A conversation that does not fit is an error, and leaves the history as it was. */
static void history_after_an_error(void **state) {
    char text[600];
    snug_model *m;
    snug_session *s = open_session("chat", "96", &m);
    gathered first = {0}, second = {0};
    (void)state;
    memset(text, 'x', sizeof text);
    assert_int_equal(snug_chat(s, text, sizeof text, gather, &first, NULL), SNUG_ERR_USAGE);
    assert_non_null(strstr(snug_error(), "ctx_size"));
    assert_int_equal(first.n, 0);
    assert_int_equal(snug_chat(s, "What is a plan?", 15, gather, &first, NULL), SNUG_OK);
    assert_string_equal(first.text, "What a job needs.");
    snug_chat_reset(s);
    assert_int_equal(snug_chat(s, "What is a plan?", 15, gather, &second, NULL), SNUG_OK);
    assert_string_equal(first.text, second.text);
    snug_session_close(s);
    snug_model_close(m);
}

static void wrong_calls(void **state) {
    snug_options *o = NULL;
    snug_model *m;
    (void)state;
    assert_int_equal(snug_options_new("serf", &o), SNUG_ERR_USAGE);
    assert_null(o);
    assert_int_equal(snug_options_new("generate", &o), SNUG_OK);
    assert_int_equal(snug_options_set(o, "max_tokens", "soon"), SNUG_ERR_USAGE);
    assert_non_null(strstr(snug_error(), "max_tokens"));
    assert_int_equal(snug_options_set(o, "no_such_key", "1"), SNUG_ERR_USAGE);
    assert_false(snug_options_flag(o, "no_such_key"));
    assert_int_equal(snug_options_integer(o, "activations"), 0); /* of another kind */
    assert_null(snug_options_text(o, "max_tokens"));
    assert_int_equal(snug_model_open("no/such/model", &m), SNUG_ERR_USAGE);
    snug_options_free(o);
    snug_options_free(NULL);
    snug_model_close(NULL);
    snug_session_close(NULL);
    snug_plan_free(NULL);
    snug_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails), cmocka_unit_test(prefix_reuse), cmocka_unit_test(a_callback_ends_the_answer),
        cmocka_unit_test(history_after_an_error), cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
