#include "support/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "engine/sampler.h"

static sn_sampling setting_of(const json_t *j) {
    double v[5];
    for (size_t i = 0; i < 5; i++) v[i] = json_number_value(json_array_get(j, i));
    return (sn_sampling){
        .temperature = (float)v[0], .top_k = (int32_t)v[1], .top_p = (float)v[2], .min_p = (float)v[3], .repetition_penalty = (float)v[4]};
}

static void equals_transformers(void **state) {
    (void)state;
    json_t *root = json_load_file(SNUG_SOURCE_DIR "/tests/golden/sampler/cases.json", 0, NULL), *test;
    size_t i;
    uint64_t workspace[1000];
    assert_non_null(root);
    assert_int_equal(json_array_size(json_object_get(root, "cases")), 30);
    json_array_foreach(json_object_get(root, "cases"), i, test) {
        float logits[48], p[48] = {0};
        int32_t history[12];
        for (size_t k = 0; k < 48; k++) {
            json_t *x = json_array_get(json_object_get(test, "logits"), k);
            logits[k] = json_is_null(x) ? -INFINITY : (float)json_number_value(x);
        }
        for (size_t k = 0; k < 12; k++) history[k] = (int32_t)json_integer_value(json_array_get(json_object_get(test, "history"), k));
        sn_sampling s = setting_of(json_object_get(test, "setting"));
        const sn_candidate *c;
        assert_true(sn_sampler_workspace(48) <= sizeof workspace);
        int64_t n = sn_sampler_candidates(&s, logits, 48, history, 12, workspace, &c);
        for (int64_t k = 0; k < n; k++) {
            assert_true(k == 0 || c[k].id > c[k - 1].id);
            p[c[k].id] = c[k].p;
        }
        for (size_t k = 0; k < 48; k++) {
            double want = json_number_value(json_array_get(json_object_get(test, "p"), k));
            if (!(fabs(p[k] - want) <= 1e-6) || (p[k] == 0) != (want == 0))
                fail_msg("case %zu token %zu: %g, wanted %g", i, k, (double)p[k], want);
        }
    }
    json_decref(root);
}

static void equals_transformers_large(void **state) {
    (void)state;
    enum { V = 49152 };
    json_t *root = json_load_file(SNUG_SOURCE_DIR "/tests/golden/sampler/cases.json", 0, NULL), *test;
    size_t i;
    float *logits = sn_alloc(V * sizeof *logits);
    void *workspace = sn_alloc(sn_sampler_workspace(V));
    for (uint64_t k = 0; k < V; k++) logits[k] = (float)((k * UINT64_C(2654435761) & 0xffffffff) >> 8) * 0x1p-24f * 12;
    assert_int_equal(json_array_size(json_object_get(root, "large")), 5);
    json_array_foreach(json_object_get(root, "large"), i, test) {
        sn_sampling s = setting_of(json_object_get(test, "setting"));
        const sn_candidate *c;
        int32_t history[] = {0};
        int64_t n = sn_sampler_candidates(&s, logits, V, history, 1, workspace, &c), ids = 0;
        int64_t kept = json_integer_value(json_object_get(test, "kept"));
        float most = 0;
        for (int64_t k = 0; k < n; k++) {
            ids += c[k].id;
            if (c[k].p > most) most = c[k].p;
        }
        if (llabs(n - kept) > 1) fail_msg("case %zu: %lld kept, wanted %lld", i, (long long)n, (long long)kept);
        if (n == kept) assert_int_equal(ids, json_integer_value(json_object_get(test, "id_sum")));
        double want = json_number_value(json_object_get(test, "p_of_best"));
        assert_true(fabs(most - want) < 1e-3 * want);
    }
    sn_sampling all[] = {{1, 1, 0, 1, 0, 0}, {1, 0.95f, 0, 1, 0, 0}, {0.8f, 0.95f, 0.05f, 1.1f, 40, 0}};
    for (int k = 0; k < 3; k++) { /* timing, for the reader */
        struct timespec a, b;
        double best = 1;
        for (uint64_t round = 0; round < 10; round++) {
            int32_t history[] = {5};
            clock_gettime(CLOCK_MONOTONIC, &a);
            assert_true(sn_sampler_draw(&all[k], logits, V, history, 1, round, workspace) >= 0);
            clock_gettime(CLOCK_MONOTONIC, &b);
            double t = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
            if (t < best) best = t;
        }
        print_message("vocabulary 49152, setting %d: %.0f us\n", k, best * 1e6);
    }
    sn_free(logits);
    sn_free(workspace);
    json_decref(root);
}

/* Chi-square of n draws against exact probabilities. The draws are fixed by the seed, so this passes always or never. */
static double chi_square(const sn_sampling *s, const float *logits, const double *p, int vocab, int n) {
    uint64_t workspace[100];
    int counts[16] = {0};
    double x = 0;
    for (int i = 0; i < n; i++) counts[sn_sampler_draw(s, logits, vocab, NULL, 0, (uint64_t)i, workspace)]++;
    for (int k = 0; k < vocab; k++) {
        if (p[k] == 0) assert_int_equal(counts[k], 0);
        else x += (counts[k] - n * p[k]) * (counts[k] - n * p[k]) / (n * p[k]);
    }
    return x;
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    const double p[8] = {0.4, 0.2, 0.15, 0.1, 0.08, 0.05, 0.015, 0.005};
    float logits[8];
    for (int k = 0; k < 8; k++) logits[k] = (float)log(p[k]) + 3;
    sn_sampling s = SN_SAMPLING_PLAIN;
    for (s.seed = 1; s.seed < 6; s.seed++) assert_true(chi_square(&s, logits, p, 8, 100000) < 24.3); /* 7 degrees, 0.1% */
    const double p4[8] = {0.4 / 0.85, 0.2 / 0.85, 0.15 / 0.85, 0.1 / 0.85};
    s.top_k = 4;
    assert_true(chi_square(&s, logits, p4, 8, 100000) < 16.3); /* 3 degrees */
    const double p3[8] = {0.4 / 0.75, 0.2 / 0.75, 0.15 / 0.75};
    s.top_k = 0;
    s.top_p = 0.7f;
    assert_true(chi_square(&s, logits, p3, 8, 100000) < 13.9); /* 2 degrees */
    double hot[8], sum = 0;
    for (int k = 0; k < 8; k++) sum += hot[k] = sqrt(p[k]);
    for (int k = 0; k < 8; k++) hot[k] /= sum;
    s.top_p = 1;
    s.temperature = 2;
    assert_true(chi_square(&s, logits, hot, 8, 100000) < 24.3);
    s.temperature = 1;
    assert_true(chi_square(&s, logits, hot, 8, 100000) > 1000); /* and another distribution is told apart */
}

static void seed_and_position_decide(void **state) {
    (void)state;
    float logits[16] = {0};
    uint64_t workspace[100];
    sn_sampling a = SN_SAMPLING_PLAIN, b = a;
    b.seed = UINT64_C(1) << 40;
    int same_seed = 0, same_position = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        int32_t x = sn_sampler_draw(&a, logits, 16, NULL, 0, i, workspace);
        assert_int_equal(x, sn_sampler_draw(&a, logits, 16, NULL, 0, i, workspace));
        same_seed += x == sn_sampler_draw(&a, logits, 16, NULL, 0, i + (UINT64_C(1) << 33), workspace);
        same_position += x == sn_sampler_draw(&b, logits, 16, NULL, 0, i, workspace);
        double u = sn_sampler_uniform(3, i);
        assert_true(u >= 0 && u < 1);
    }
    assert_true(same_seed > 20 && same_seed < 120 && same_position > 20 && same_position < 120); /* about 1 in 16 */
}

static void greedy_and_edges(void **state) {
    (void)state;
    uint64_t workspace[100];
    const sn_candidate *c;
    sn_sampling s = SN_SAMPLING_PLAIN;
    float ties[6] = {1, 3, 3, -2, 3, NAN}, none[3] = {-INFINITY, NAN, -INFINITY}, inf[3] = {0, INFINITY, 5};
    s.temperature = 0;
    assert_int_equal(sn_sampler_draw(&s, ties, 6, NULL, 0, 0, workspace), 1);
    s.repetition_penalty = 2;
    int32_t history[] = {1, 1, 99, -5}; /* counted once; strange ids passed over */
    assert_int_equal(sn_sampler_draw(&s, ties, 6, history, 4, 0, workspace), 2);
    assert_int_equal(sn_sampler_draw(&s, none, 3, NULL, 0, 0, workspace), -1);
    s.temperature = 1;
    assert_int_equal(sn_sampler_draw(&s, none, 3, NULL, 0, 0, workspace), -1);
    assert_int_equal(sn_sampler_draw(&s, inf, 3, NULL, 0, 0, workspace), 1);
    assert_int_equal(sn_sampler_candidates(&s, ties, 6, NULL, 0, workspace, &c), 5);
    s.top_p = 0; /* one token; of equals the first */
    assert_int_equal(sn_sampler_candidates(&s, ties, 6, NULL, 0, workspace, &c), 1);
    assert_true(c[0].id == 1 && c[0].p == 1);
    s.top_p = 1;
    s.top_k = 2; /* equals of the last stay */
    assert_int_equal(sn_sampler_candidates(&s, ties, 6, NULL, 0, workspace, &c), 3);
    s.temperature = 1e-30f;
    s.top_k = 0;
    assert_int_equal(sn_sampler_pick((sn_candidate[]){{7, 0.5f}, {9, 0.5f}, {11, 0}}, 3, 0x1.fffffffffffffp-1), 9);
    assert_int_equal(sn_sampler_draw(&s, ties, 6, history, 4, 0, workspace) % 2, 0);
}

static void ranges(void **state) {
    (void)state;
    sn_sampling s = SN_SAMPLING_PLAIN;
    assert_ok(sn_sampling_check(&s));
    const struct {
        sn_sampling s;
        const char *name;
    } bad[] = {{{-1, 1, 0, 1, 0, 0}, "temperature"}, {{NAN, 1, 0, 1, 0, 0}, "temperature"}, {{1, 1.1f, 0, 1, 0, 0}, "top_p"},
               {{1, NAN, 0, 1, 0, 0}, "top_p"},      {{1, 1, -0.1f, 1, 0, 0}, "min_p"},     {{1, 1, 0, 0, 0, 0}, "repetition_penalty"},
               {{1, 1, 0, 1, -1, 0}, "top_k"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(sn_sampling_check(&bad[i].s), SN_ERR_USAGE);
        assert_non_null(strstr(sn_error_text(), bad[i].name));
    }
}

static void log_probabilities_are_of_raw_logits(void **state) {
    (void)state;
    float logits[5] = {1000, 1001, -INFINITY, 1001, 999};
    int32_t tokens[7];
    double values[7], sum = log(exp(-1) + 2 + exp(-2));
    assert_true(fabs(sn_log_probability(logits, 5, 1) + sum) < 1e-12);
    assert_true(sn_log_probability(logits, 5, 2) == -INFINITY && sn_log_probability(logits, 5, 5) == -INFINITY);
    sn_top_log_probabilities(logits, 5, 3, tokens, values);
    assert_true(tokens[0] == 1 && tokens[1] == 3 && tokens[2] == 0);
    assert_true(fabs(values[2] - (-1 - sum)) < 1e-12);
    sn_top_log_probabilities(logits, 5, 7, tokens, values);
    assert_true(tokens[3] == 4 && tokens[4] == 2 && tokens[5] == -1 && values[4] == -INFINITY);
    float with_nan[3] = {NAN, 1, 2};
    sn_top_log_probabilities(with_nan, 3, 2, tokens, values);
    assert_true(tokens[0] == 2 && tokens[1] == 1);
}

/* Selection against plain sorting, over sizes, ties and thresholds. */
static void selection_equals_sorting(void **state) {
    (void)state;
    enum { MOST = 300 };
    float logits[MOST];
    static uint64_t workspace[MOST * 3];
    for (uint32_t round = 0; round < 2000; round++) {
        int n = 1 + (int)(round * 7 % MOST);
        test_fill(logits, (size_t)n, round, 5);
        if (round % 3 == 0)
            for (int i = 0; i < n; i++) logits[i] = roundf(logits[i]);
        if (round % 5 == 0)
            for (int i = 0; i < n; i++) logits[i] = (float)i * (round % 2 ? 0.1f : -0.1f); /* sorted rows */
        sn_sampling s = SN_SAMPLING_PLAIN;
        const sn_candidate *c;
        if (round % 2) s.top_k = 1 + (int32_t)(round % 50);
        else s.top_p = (float)(round % 100) / 100;
        int64_t kept = sn_sampler_candidates(&s, logits, n, NULL, 0, workspace, &c);
        double total = 0, most = -1e9;
        for (int i = 0; i < n; i++) most = logits[i] > most ? (double)logits[i] : most;
        for (int i = 0; i < n; i++) total += (double)expf(logits[i] - (float)most);
        for (int i = 0, k = 0; i < n; i++) {
            int before = 0;
            double mass = 0; /* of those that come before token i in the order: larger, or equal with a lower id */
            for (int j = 0; j < n; j++) {
                bool larger = logits[j] > logits[i];
                before += larger;
                if (larger || (logits[j] == logits[i] && j < i)) mass += (double)expf(logits[j] - (float)most);
            }
            double edge = mass - (double)s.top_p * total;
            bool want = s.top_k ? before < s.top_k : mass == 0 || edge < 0, got = k < kept && c[k].id == i;
            if (want != got && !(s.top_k == 0 && fabs(edge) < 1e-9 * total)) fail_msg("round %u, token %d", round, i);
            k += got;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_transformers),
        cmocka_unit_test(equals_transformers_large),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(seed_and_position_decide),
        cmocka_unit_test(greedy_and_edges),
        cmocka_unit_test(ranges),
        cmocka_unit_test(log_probabilities_are_of_raw_logits),
        cmocka_unit_test(selection_equals_sorting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
