/* Training with states in other tiers, from files to files: the same results, checkpoints that go from one home to another, a disk
 * without room found before the first step, a failing disk an error of the step. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/file.h"
#include "support/training.h"

static const char *const homes[] = {"", "offload_optimizer=disk", "device=cpu-split offload_optimizer=host",
                                    "device=cpu-split offload_optimizer=disk:0.5",
                                    "offload_optimizer=disk offload_gradients=disk offload_param=disk"};
enum { HOMES = sizeof homes / sizeof homes[0] };

static void ok(const trained *t) {
    if (t->status != SN_OK) fail_msg("training failed: %s", t->error);
}

static void run(const char *recipe, int home, const char *out, bool resume, const sn_train_hooks *hooks, trained *t) {
    char options[700];
    snprintf(options, sizeof options, "max_steps=6 %s %s%s%s%s", recipe, homes[home], strstr(homes[home], "disk") ? " offload_dir=" : "",
             strstr(homes[home], "disk") ? training_path("disk") : "", resume ? " resume=on" : "");
    training_run(TINY_LLAMA, options, training_path("rows.jsonl"), training_path("%s", out), hooks, t);
    ok(t);
}

static void assert_same(const char *a, const char *b) {
    static const char *const names[] = {"model.safetensors", "checkpoint-6/state.safetensors", "checkpoint-6/manifest.json"};
    for (int i = 0; i < 3; i++) {
        char x[65], y[65];
        training_digest(training_path("%s/%s", a, names[i]), x);
        training_digest(training_path("%s/%s", b, names[i]), y);
        if (strcmp(x, y)) fail_msg("%s of %s and %s differ", names[i], a, b);
    }
}

static void stop_at_3(void *context, const sn_step_report *report) {
    if (report->step >= 3) *(volatile sig_atomic_t *)context = 1;
}

/* Stopped in each home and resumed in each. */
static void resume_elsewhere(void **state) {
    (void)state;
    static const char *const recipes[] = {"weight_decay=0.1", "precision=bf16 moment_dtype=bf16 gradient_accumulation_steps=2",
                                          "optimizer=sgd momentum=0.9"};
    training_rows(training_path("rows.jsonl"), 7);
    for (int r = 0; r < 3; r++) {
        trained straight, t;
        run(recipes[r], 0, "straight", false, NULL, &straight);
        for (int from = 0; from < HOMES; from++)
            for (int to = 0; to < HOMES; to++) {
                volatile sig_atomic_t stop = 0;
                sn_train_hooks hooks = {.step = stop_at_3, .context = (void *)&stop, .stop = &stop};
                assert_ok(sn_remove_tree(training_path("moved")));
                run(recipes[r], from, "moved", false, &hooks, &t);
                assert_true(t.summary.interrupted);
                run(recipes[r], to, "moved", true, NULL, &t);
                assert_int_equal(t.steps, straight.steps);
                assert_memory_equal(t.loss, straight.loss, sizeof t.loss);
                assert_same("straight", "moved");
            }
    }
}

/* The limit that there was. */
static rlim_t limit(int resource, rlim_t most) {
    struct rlimit l;
    assert_int_equal(getrlimit(resource, &l), 0);
    const rlim_t before = l.rlim_cur;
    l.rlim_cur = most;
    assert_int_equal(setrlimit(resource, &l), 0);
    return before;
}

static void limit_files(rlim_t bytes) { limit(RLIMIT_FSIZE, bytes); }

/* Where next to no memory may be locked, the tiers work as elsewhere: nothing of theirs is pinned. */
static void little_memory_may_be_locked(void **state) {
    (void)state;
    trained plain, t;
    training_rows(training_path("rows.jsonl"), 7);
    run("weight_decay=0.1", 0, "plain", false, NULL, &plain);
    const rlim_t before = limit(RLIMIT_MEMLOCK, 64 << 10);
    for (int home = 1; home < HOMES; home++) {
        assert_ok(sn_remove_tree(training_path("locked")));
        run("weight_decay=0.1", home, "locked", false, NULL, &t);
        assert_memory_equal(t.loss, plain.loss, sizeof t.loss);
    }
    limit(RLIMIT_MEMLOCK, before);
}

#define ON_DISK "offload_optimizer=disk offload_dir=%s"

static void no_room(void **state) {
    (void)state;
    tiny t = {0};
    char options[512];
    sn_model_config config = tiny_llama();
    snprintf(options, sizeof options, ON_DISK, training_path("disk"));
    signal(SIGXFSZ, SIG_IGN);
    t.recipe = tiny_recipe(options);
    assert_ok(sn_device_find("cpu", 1, &t.device));
    t.cluster = (sn_cluster){.addresses = t.device.shape.addresses, .mesh = sn_mesh_alone()};
    sn_training_shape shape = {.tokens = 48};
    assert_ok(sn_job_for_training(&config, NULL, &shape, t.recipe, &t.cluster, NULL, &t.job));
    sn_plan_request request = {.device = t.device.shape, .reuse = true};
    assert_ok(sn_plan_make(t.job, &request, &t.plan));
    limit_files(8192);
    sn_status s = sn_run_open(t.plan, &t.device, NULL, &t.run);
    limit_files(RLIM_INFINITY);
    assert_int_equal(s, SN_ERR_FILE);
    assert_null(t.run);
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%llu bytes", (unsigned long long)t.plan->bill.by_tier[SN_TIER_DISK]);
    if (!strstr(sn_error_text(), bytes) || !strstr(sn_error_text(), training_path("disk")))
        fail_msg("'%s' does not say bytes and folder", sn_error_text());
    tiny_close(&t);
}

static void a_disk_that_fails(void **state) {
    (void)state;
    tiny t;
    char options[512];
    sn_model_config config = tiny_llama();
    snprintf(options, sizeof options, ON_DISK, training_path("disk"));
    tiny_open(&t, &config, options, "cpu", true);
    int program = sn_job_role_index(t.job, SN_ROLE_TRAIN);
    tiny_fill(&t, program, 0, 0);
    assert_ok(sn_run_program(t.run, program, 0));
    limit_files(8192);
    sn_status s = sn_run_program(t.run, program, 0);
    limit_files(RLIM_INFINITY);
    assert_int_equal(s, SN_ERR_FILE);
    if (!strstr(sn_error_text(), "program step") || !strstr(sn_error_text(), training_path("disk")))
        fail_msg("'%s' does not say where", sn_error_text());
    assert_ok(sn_run_program(t.run, program, 0)); /* and nothing hangs */
    tiny_close(&t);
}

static int start(void **state) {
    (void)state;
    training_open("offload");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(resume_elsewhere), cmocka_unit_test(little_memory_may_be_locked),
                                       cmocka_unit_test(no_room), cmocka_unit_test(a_disk_that_fails)};
    return cmocka_run_group_tests(tests, start, training_close);
}
