#include "support/support.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/metrics.h"

static char *path;
static int warnings;

static void count_warnings(void *context, sn_log_level level, const char *text) {
    (void)context, (void)text;
    warnings += level == SN_LOG_WARN;
}

static int fresh(void **state) {
    (void)state;
    path = sn_path_join(test_dir("metrics"), "metrics.jsonl");
    warnings = 0;
    sn_log_to(count_warnings, NULL);
    return 0;
}
static int clean(void **state) {
    (void)state;
    sn_free(path);
    return 0;
}

static double loss_of(int64_t step) { return 1.0 / (double)(step + 2); }

static void write_steps(int64_t last, int64_t to) {
    sn_metrics *m;
    assert_ok(sn_metrics_open(path, last, &m));
    for (int64_t step = last + 1; step <= to; step++) {
        sn_metric row[] = {sn_metric_number("loss", loss_of(step)), sn_metric_integer("tokens", step * 1000)},
                  eval[] = {sn_metric_number("eval_loss", 1)};
        assert_ok(sn_metrics_write(m, step, row, 2));
        if (step % 4 == 0) assert_ok(sn_metrics_write(m, step, eval, 1));
    }
    sn_metrics_close(m);
}

static char *text_of(const char *file) {
    char *text;
    size_t n;
    assert_ok(sn_file_read_all(file, 1 << 20, &text, &n));
    return text;
}

static void lines_read_back(void **state) {
    (void)state;
    sn_metrics *m;
    const double odd[] = {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, (double)0.1f, -0.0, 1e21, 123456789};
    assert_ok(sn_metrics_open(path, 0, &m));
    for (int i = 0; i < 8; i++) assert_ok(sn_metrics_write(m, i, &(sn_metric){"loss", SN_METRIC_NUMBER, odd[i], 0, NULL}, 1));
    sn_metric row[] = {sn_metric_number("loss", NAN), sn_metric_number("grad_norm", INFINITY), sn_metric_integer("tokens", INT64_MIN),
                       sn_metric_text("note", "a \"b\"\n")};
    assert_ok(sn_metrics_write(m, 9, row, 4));
    assert_ok(sn_metrics_write(m, 9, row, 0));
    assert_int_equal(sn_metrics_write(m, 8, row, 1), SN_ERR_INTERNAL);
    char *text = text_of(path), *line = text; /* before it is closed: a line is out at once */
    for (int i = 0; i < 8; i++, line = strchr(line, '\n') + 1) {
        json_t *j = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        assert_int_equal(json_integer_value(json_object_get(j, "step")), i);
        double v = json_number_value(json_object_get(j, "loss"));
        assert_true(v == odd[i]);
        json_decref(j);
    }
    assert_string_equal(
        line, "{\"step\": 9, \"loss\": null, \"grad_norm\": null, \"tokens\": -9223372036854775808, \"note\": \"a \\\"b\\\"\\n\"}\n"
              "{\"step\": 9}\n");
    sn_free(text);
    sn_metrics_close(m);
}

static void resumed_equals_straight(void **state) {
    (void)state;
    write_steps(0, 20);
    char *straight = text_of(path);
    for (int64_t stop = 0; stop <= 20; stop++) {
        write_steps(0, stop + 3 < 20 ? stop + 3 : 20); /* steps after the checkpoint were logged, then lost */
        write_steps(stop, 20);
        char *text = text_of(path);
        assert_string_equal(text, straight);
        sn_free(text);
    }
    assert_int_equal(warnings, 0);
    sn_free(straight);
}

static void torn_line_is_cut(void **state) {
    (void)state;
    const char *tails[] = {"{\"step\": 3, \"lo", "{\"step\": 3}", "\n", "garbage\n{\"step\": 1}\n", "{\"step\": 3x}\n", "{\"stop\": 3}\n"};
    for (int i = 0; i < 6; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"step\": 1}\n{\"step\": 2, \"loss\": 1}\n%s", tails[i]);
        assert_ok(sn_file_replace(path, text, strlen(text)));
        sn_metrics *m;
        assert_ok(sn_metrics_open(path, 100, &m));
        sn_metrics_close(m);
        char *got = text_of(path);
        assert_string_equal(got, "{\"step\": 1}\n{\"step\": 2, \"loss\": 1}\n");
        assert_int_equal(warnings, i + 1);
        sn_free(got);
    }
}

static void a_summary(void **state) {
    (void)state;
    sn_metric items[] = {sn_metric_text("model", "x"), sn_metric_integer("steps", 10), sn_metric_number("train_loss", 0.5)};
    assert_ok(sn_summary_write(path, items, 3));
    char *text = text_of(path);
    assert_string_equal(text, "{\n  \"model\": \"x\",\n  \"steps\": 10,\n  \"train_loss\": 0.5\n}\n");
    sn_free(text);
    assert_ok(sn_summary_write(path, items, 0));
    assert_int_equal(sn_summary_write("/no-such-folder/x", items, 1), SN_ERR_FILE);
    sn_metrics *m;
    assert_int_equal(sn_metrics_open("/no-such-folder/x", 0, &m), SN_ERR_FILE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_read_back, fresh, clean),
        cmocka_unit_test_setup_teardown(resumed_equals_straight, fresh, clean),
        cmocka_unit_test_setup_teardown(torn_line_is_cut, fresh, clean),
        cmocka_unit_test_setup_teardown(a_summary, fresh, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
