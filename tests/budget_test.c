/* The budget: what does not fit is refused before anything is allocated, with the bytes missing and a change that fits;
 * --fit takes the cheapest change; sizes beyond 2^31 and shapes of 405 billion parameters are planned as they are; memory
 * never grows with the number of steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "engine/budget.h"
#include "engine/fit.h"
#include "engine/train.h"
#include "support/tiny.h"

static sn_options *recipe_of(const char *text) {
    sn_options *o;
    char copy[512];
    assert_ok(sn_recipe_new(&o));
    snprintf(copy, sizeof copy, "%s", text);
    for (char *save = NULL, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        assert_non_null(equals);
        *equals = 0;
        assert_ok(sn_options_set(o, word, equals + 1, SN_FROM_COMMAND_LINE, "test"));
    }
    return o;
}

static uint64_t planned(const char *shape, const char *options) {
    sn_model m;
    sn_session s;
    sn_options *o = recipe_of(options);
    assert_ok(sn_model_open(shape, &m));
    assert_ok(sn_train_plan(&m, o, NULL, NULL, &s));
    uint64_t total = s.plan->bill.total;
    sn_session_close(&s);
    sn_model_close(&m);
    sn_options_close(o);
    return total;
}

static void refused_with_the_bytes_missing(void **state) {
    (void)state;
    sn_model m;
    sn_session s;
    sn_options *chosen, *o = recipe_of("memory=1GiB cutoff_len=256");
    uint64_t need = planned("smollm2-135m", "cutoff_len=256"), resident = sn_peak_rss_bytes();
    (void)resident;
    char missing[32];
    assert_ok(sn_model_open("smollm2-135m", &m));
    assert_int_equal(sn_fit_training(&m, o, NULL, &s, &chosen, NULL), SN_ERR_BUDGET);
    assert_null(chosen);
    snprintf(missing, sizeof missing, "%llu bytes", (unsigned long long)(need - (UINT64_C(1) << 30)));
    assert_non_null(strstr(sn_error_text(), missing));
    assert_non_null(strstr(sn_error_text(), "the cheapest change that fits is --lora --precision bf16 --recompute none"));
#ifndef __SANITIZE_ADDRESS__                                  /* which keeps freed memory */
    assert_true(sn_peak_rss_bytes() < resident + (64 << 20)); /* nothing large was touched */
#endif
    sn_options_close(o);
    sn_model_close(&m);
}

static void occupied_memory_is_not_free(void **state) { /* without --memory the budget is what is free, not what is there */
    (void)state;
    sn_options *o = recipe_of("cutoff_len=64");
    size_t taken = 1 << 30;
    bool seen = false;
    if (sn_budget_bytes(o, 1) < 3 * (uint64_t)taken) skip();
    for (int i = 0; i < 20 && !seen; i++) { /* others on the machine take and give memory, too */
        uint64_t before = sn_budget_bytes(o, 1);
        char *p = malloc(taken);
        for (size_t at = 0; at < taken; at += 4096) ((volatile char *)p)[at] = 1;
        seen = sn_budget_bytes(o, 1) + taken / 2 < before;
        free(p);
    }
    assert_true(seen);
    assert_true(sn_budget_bytes(o, 2) < sn_budget_bytes(o, 1));
    sn_options_close(o);
}

static void fit_takes_exact_changes_first(void **state) {
    (void)state;
    static const struct {
        const char *options, *key, *value;
    } cases[] = {
        {"memory=100GiB fit=on cutoff_len=256 per_device_train_batch_size=4", NULL, NULL},
        {"memory=2400MiB fit=on cutoff_len=256 per_device_train_batch_size=4", "gradient_accumulation_steps", "1"},
        {"memory=900MiB fit=any cutoff_len=256 per_device_train_batch_size=4", "lora", "true"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sn_model m;
        sn_session s;
        sn_options *o = recipe_of(cases[i].options), *chosen;
        assert_ok(sn_model_open("smollm2-135m", &m));
        assert_ok(sn_fit_training(&m, o, NULL, &s, &chosen, NULL));
        uint64_t total = s.plan->bill.total; /* of what was chosen */
        sn_session_close(&s);
        assert_true(total <= sn_budget_bytes(o, 1));
        assert_int_equal(chosen != NULL, cases[i].key != NULL);
        if (chosen) {
            assert_ok(sn_train_plan(&m, chosen, NULL, NULL, &s));
            assert_int_equal(s.plan->bill.total, total);
            sn_session_close(&s);
            if (!strcmp(cases[i].key, "lora")) assert_true(sn_options_bool(chosen, "lora") || sn_options_bool(chosen, "qlora"));
            else assert_int_equal(sn_options_int(chosen, cases[i].key), atoi(cases[i].value));
        }
        sn_options_close(chosen);
        sn_options_close(o);
        sn_model_close(&m);
    }
}

static void what_is_there_is_no_change(void **state) { /* nor is a choice that the recipe has made already */
    (void)state;
    static const char *const options[] = {"memory=100MiB cutoff_len=256 full=on recompute=all moment_dtype=bf16 precision=bf16",
                                          "memory=100MiB cutoff_len=256 qlora=on recompute=all"};
    for (size_t i = 0; i < 2; i++) {
        sn_model m;
        sn_session s;
        sn_options *o = recipe_of(options[i]), *chosen;
        assert_ok(sn_model_open("smollm2-135m", &m));
        assert_int_equal(sn_fit_training(&m, o, NULL, &s, &chosen, NULL), SN_ERR_BUDGET);
        assert_non_null(strstr(sn_error_text(), "no change that snug knows fits; the smallest is --"));
        assert_null(strstr(sn_error_text(), "--recompute all"));
        assert_null(strstr(sn_error_text(), "lora"));
        assert_null(s.plan);
        sn_options_close(o);
        sn_model_close(&m);
    }
}

static void large_shapes(void **state) {
    (void)state;
    uint64_t small = planned("llama-3.1-405b", "device=null cutoff_len=8 qlora=true"),
             full = planned("llama-3.1-405b", "device=null cutoff_len=8");
    assert_true(full > UINT64_C(405) * 1000000000 * 16); /* weights, gradients and two moments in f32 */
    assert_true(small < full / 20);
    /* logits of 2^31 and more elements are only ever planned in chunks: B * T * V = 16 * 8192 * 128256 */
    uint64_t wide = planned("llama-3.2-1b", "device=null recompute=all lora=true cutoff_len=8192 per_device_train_batch_size=16");
    assert_true(wide > UINT64_C(1) << 32 && wide < UINT64_C(1) << 38);
}

static void memory_never_grows(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    tiny t;
    tiny_open(&t, &config, "recompute=all", "cpu", true);
    for (int step = 0; step < 50; step++) tiny_step(&t, step, NULL);
    uint64_t before = sn_rss_bytes();
    for (int step = 50; step < 2050; step++) tiny_step(&t, step, NULL);
    assert_true(sn_rss_bytes() <= before + (256 << 10));
    tiny_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_with_the_bytes_missing),
        cmocka_unit_test(occupied_memory_is_not_free),
        cmocka_unit_test(fit_takes_exact_changes_first),
        cmocka_unit_test(what_is_there_is_no_change),
        cmocka_unit_test(large_shapes),
        cmocka_unit_test(memory_never_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
