#include "support/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/schedule.h"

static sn_options *open_options(void) {
    static const sn_option_group *const groups[] = {&sn_schedule_options};
    sn_options *o;
    assert_ok(sn_options_open(groups, 1, &o));
    return o;
}

static void set(sn_options *o, const char *key, const char *text) { assert_ok(sn_options_set(o, key, text, SN_FROM_COMMAND_LINE, key)); }

static void set_number(sn_options *o, const char *key, double v) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    set(o, key, text);
}

static void equals_transformers(void **state) {
    (void)state;
    json_t *root = json_load_file(SNUG_SOURCE_DIR "/tests/golden/schedule/values.json", 0, NULL), *test;
    size_t i;
    assert_int_equal(json_array_size(root), 14);
    json_array_foreach(root, i, test) {
        sn_options *o = open_options();
        sn_schedule s;
        int64_t total = json_integer_value(json_object_get(test, "total"));
        set(o, "lr_scheduler_type", json_string_value(json_object_get(test, "name")));
        set(o, "decay_type", json_string_value(json_object_get(test, "decay_type")));
        set_number(o, "learning_rate", 3e-4);
        set_number(o, "warmup_steps", (double)json_integer_value(json_object_get(test, "warmup")));
        set_number(o, "decay_steps", (double)json_integer_value(json_object_get(test, "decay")));
        set_number(o, "min_lr_ratio", json_number_value(json_object_get(test, "min_ratio")));
        assert_ok(sn_schedule_from_options(o, total, &s));
        for (int64_t step = 0; step <= total; step++) {
            double want = json_number_value(json_array_get(json_object_get(test, "rates"), (size_t)step)), got = sn_learning_rate(&s, step);
            if (!(fabs(got - want) <= 1e-15)) fail_msg("case %zu step %lld: %.17g, wanted %.17g", i, (long long)step, got, want);
        }
        sn_options_close(o);
    }
    json_decref(root);
}

static void the_first_update(void **state) {
    (void)state;
    sn_schedule s = {.kind = SN_SCHEDULE_LINEAR, .learning_rate = 1, .total = 10};
    assert_true(sn_learning_rate(&s, 0) == 1 && sn_learning_rate(&s, 9) == 0.1 && sn_learning_rate(&s, 10) == 0);
    s.warmup = 2;
    assert_true(sn_learning_rate(&s, 0) == 0 && sn_learning_rate(&s, 1) == 0.5 && sn_learning_rate(&s, 2) == 1);
}

/* Lightning#4655: the log of k updates, and then of the other 20 - k after a resume, equals that of 20 in one go. What is
 * saved is the update step alone. */
static void resumed_equals_straight(void **state) {
    (void)state;
    for (int kind = SN_SCHEDULE_CONSTANT; kind <= SN_SCHEDULE_WSD; kind++) {
        sn_schedule s = {.kind = (sn_schedule_kind)kind, .learning_rate = 2e-5, .total = 20, .warmup = 3, .min_ratio = 0.1, .decay = 5};
        double straight[20], resumed[20];
        for (int64_t i = 0; i < 20; i++) straight[i] = sn_learning_rate(&s, i);
        for (int64_t k = 0; k <= 20; k++) {
            int64_t saved = 0;
            for (; saved < k; saved++) resumed[saved] = sn_learning_rate(&s, saved);
            sn_schedule again = s; /* a new process makes it from the same options and total */
            for (int64_t i = saved; i < 20; i++) resumed[i] = sn_learning_rate(&again, i);
            assert_memory_equal(straight, resumed, sizeof straight);
        }
        if (kind != SN_SCHEDULE_CONSTANT) assert_true(straight[19] < straight[10]);
    }
}

static void past_the_end(void **state) {
    (void)state;
    const double ends[] = {1, 0, 0.1, 0.1};
    for (int kind = SN_SCHEDULE_CONSTANT; kind <= SN_SCHEDULE_WSD; kind++) {
        sn_schedule s = {.kind = (sn_schedule_kind)kind, .learning_rate = 1, .total = 20, .warmup = 3, .min_ratio = 0.1, .decay = 5};
        for (int64_t step = 20; step < 100; step += 13) assert_true(fabs(sn_learning_rate(&s, step) - ends[kind]) < 1e-15);
        s.total = s.warmup = s.decay = 0; /* a job without steps divides by nothing */
        assert_true(isfinite(sn_learning_rate(&s, 0)));
    }
}

static void options_are_checked(void **state) {
    (void)state;
    sn_schedule s;
    sn_options *o = open_options();
    assert_int_equal(sn_warmup_steps(101, 0, 0.1), 11);
    assert_int_equal(sn_warmup_steps(101, 7, 0.1), 7);
    assert_int_equal(sn_warmup_steps(101, 0, 0), 0);
    set(o, "warmup_ratio", "0.3");
    assert_ok(sn_schedule_from_options(o, 10, &s));
    assert_int_equal(s.warmup, 3);
    set(o, "lr_scheduler_type", "warmup_stable_decay");
    set(o, "decay_ratio", "0.8");
    assert_int_equal(sn_schedule_from_options(o, 10, &s), SN_ERR_USAGE);
    assert_non_null(strstr(sn_error_text(), "warmup_steps 3 and decay_steps 8 do not fit in 10 updates"));
    set(o, "lr_scheduler_type", "cosine"); /* the decay phase is the other schedule's */
    assert_ok(sn_schedule_from_options(o, 10, &s));
    set(o, "warmup_steps", "11");
    assert_int_equal(sn_schedule_from_options(o, 10, &s), SN_ERR_USAGE);
    sn_options_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_transformers), cmocka_unit_test(the_first_update),    cmocka_unit_test(resumed_equals_straight),
        cmocka_unit_test(past_the_end),        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
