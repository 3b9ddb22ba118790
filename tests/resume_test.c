/* A run that was stopped, killed or torn goes on as if nothing had been: losses, rates, weights and states are those of a
 * straight run to the bit. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "base/system.h"
#include "support/training.h"

enum { STEPS = 12 };

static void ok(const trained *t) {
    if (t->status != SN_OK) fail_msg("training failed: %s", t->error);
}

typedef struct stopper {
    int64_t at;
    volatile sig_atomic_t stop;
} stopper;

static void stop_at(void *context, const sn_step_report *report) {
    stopper *s = context;
    if (report->step >= s->at) s->stop = 1;
}

static void assert_same_run(const trained *a, const trained *b, const char *what) {
    if (a->steps != b->steps) fail_msg("%s: %d and %d steps in metrics.jsonl", what, a->steps, b->steps);
    for (int i = 0; i < a->steps; i++)
        if (a->step[i] != b->step[i] || memcmp(&a->loss[i], &b->loss[i], 8) || memcmp(&a->norm[i], &b->norm[i], 8) ||
            a->rate[i] != b->rate[i])
            fail_msg("%s: step %d: loss %.17g and %.17g, norm %.17g and %.17g, rate %g and %g", what, (int)a->step[i], a->loss[i],
                     b->loss[i], a->norm[i], b->norm[i], a->rate[i], b->rate[i]);
}

/* Weights and states of the last checkpoint, and what was exported. */
static void assert_same_files(const char *a, const char *b, bool lora) {
    static const char *const names[] = {"checkpoint-12/state.safetensors", "checkpoint-12/manifest.json", NULL};
    for (int i = 0; i < 3; i++) {
        const char *name = names[i] ? names[i] : lora ? "adapter_model.safetensors" : "model.safetensors";
        char x[65], y[65];
        training_digest(training_path("%s/%s", a, name), x);
        training_digest(training_path("%s/%s", b, name), y);
        if (strcmp(x, y)) fail_msg("%s of %s and %s differ", name, a, b);
    }
}

static const struct {
    const char *options;
    const char *model;
} recipes[] = {
    {"lr_scheduler_type=cosine warmup_steps=3 weight_decay=0.1", TINY_LLAMA},
    {"packing=on per_device_train_batch_size=1 optimizer=sgd momentum=0.9", TINY_LLAMA},
    {"lora=on lora_dropout=0.2 precision=bf16 moment_dtype=bf16 gradient_accumulation_steps=2 recompute=all", TINY_LLAMA},
    {"precision=fp16 lr_scheduler_type=linear thread_ranks=2", TINY_GPT2},
    {"optimizer=adamw_8bit precision=bf16 thread_ranks=2 zero_stage=2", TINY_LLAMA},
    {"optimizer=adafactor weight_decay=0.1 lr_scheduler_type=linear", TINY_LLAMA},
    {"optimizer=lion moment_dtype=bf16 gradient_accumulation_steps=2", TINY_LLAMA},
    {"optimizer=muon weight_decay=0.1", TINY_GPT2},
    {"optimizer=galore galore_rank=2 galore_update_gap=5 moment_dtype=bf16", TINY_LLAMA},
    {"layerwise=on layerwise_steps=3 weight_decay=0.1", TINY_LLAMA},
    {"layerwise=on layerwise_steps=4 layerwise_order=descending precision=bf16 gradient_accumulation_steps=2 optimizer=lion", TINY_GPT2},
    {"layerwise=on layerwise_steps=5 layerwise_order=ascending precision=fp16 thread_ranks=2 zero_stage=3", TINY_LLAMA},
};

/* 7 rows, 2 a step: an epoch of 4 steps, so that 4 and 8 are its edges. */
static void stop_and_resume(void **state) {
    (void)state;
    static const int stops[] = {1, 3, 4, 8, 11};
    training_rows(training_path("stop.jsonl"), 7);
    for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++) {
        char options[300];
        trained straight, part;
        snprintf(options, sizeof options, "max_steps=12 %s%s",
                 strstr(recipes[r].options, "batch_size") ? "" : "per_device_train_batch_size=2 ", recipes[r].options);
        training_run(recipes[r].model, options, training_path("stop.jsonl"), training_path("straight%zu", r), NULL, &straight);
        ok(&straight);
        assert_int_equal(straight.steps, STEPS);
        for (size_t k = 0; k < sizeof stops / sizeof stops[0]; k++) {
            char resumed[320], name[32], first[32];
            stopper s = {.at = stops[k]};
            sn_train_hooks hooks = {.step = stop_at, .context = &s, .stop = &s.stop};
            snprintf(name, sizeof name, "stop%zu-%zu", r, k);
            snprintf(first, sizeof first, "straight%zu", r);
            training_run(recipes[r].model, options, training_path("stop.jsonl"), training_path("%s", name), &hooks, &part);
            ok(&part);
            assert_true(part.summary.interrupted);
            assert_int_equal(part.steps, stops[k]);
            snprintf(resumed, sizeof resumed, "%s resume=on", options);
            training_run(recipes[r].model, resumed, training_path("stop.jsonl"), training_path("%s", name), NULL, &part);
            ok(&part);
            assert_same_run(&straight, &part, options);
            assert_true(part.summary.first_loss == straight.summary.first_loss && part.summary.tokens == straight.summary.tokens);
            assert_same_files(first, name, strstr(options, "lora"));
        }
    }
}

/* The learning rate of k steps and then 20 - k is that of 20 straight. */
static void schedule_goes_on(void **state) {
    (void)state;
    static const char *const kinds[] = {"lr_scheduler_type=cosine warmup_steps=5", "lr_scheduler_type=wsd decay_steps=6 warmup_steps=2",
                                        "lr_scheduler_type=linear", "lr_scheduler_type=cosine warmup_ratio=0.2 num_train_epochs=2"};
    training_rows(training_path("lr.jsonl"), 10);
    for (int i = 0; i < 4; i++) {
        char options[200], resumed[220];
        trained straight, part;
        snprintf(options, sizeof options, "%s%s", i < 3 ? "max_steps=20 " : "", kinds[i]); /* the last counts 2 epochs of 10 rows */
        snprintf(resumed, sizeof resumed, "%s resume=on", options);
        training_run(TINY_LLAMA, options, training_path("lr.jsonl"), training_path("lr%d", i), NULL, &straight);
        ok(&straight);
        assert_true(straight.rate[19] != straight.rate[10]);
        for (int k = 1; k < 20; k++) {
            stopper s = {.at = k};
            sn_train_hooks hooks = {.step = stop_at, .context = &s, .stop = &s.stop};
            training_run(TINY_LLAMA, options, training_path("lr.jsonl"), training_path("lr%d-%d", i, k), &hooks, &part);
            ok(&part);
            training_run(TINY_LLAMA, resumed, training_path("lr.jsonl"), training_path("lr%d-%d", i, k), NULL, &part);
            ok(&part);
            assert_same_run(&straight, &part, options);
        }
    }
}

static void damage(const char *path, int how) {
    char *data;
    size_t size;
    if (how == 0) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    assert_ok(sn_file_read_all(path, 1 << 24, &data, &size));
    if (how == 1) size /= 2;
    else data[size - 5] ^= 0x10;
    assert_ok(sn_file_replace(path, data, size));
    sn_free(data);
}

/* A torn newest checkpoint: the older one is taken, with a warning; with none left training starts anew. */
static void torn_checkpoints(void **state) {
    (void)state;
    static const char *const options = "max_steps=12 save_steps=4 save_total_limit=%d%s";
    static const char *const files[] = {"manifest.json", "manifest.json", "state.safetensors", "state.safetensors", "state.safetensors"};
    static const int hows[] = {0, 1, 0, 1, 2};
    char text[128];
    trained straight, part;
    training_rows(training_path("torn.jsonl"), 7);
    snprintf(text, sizeof text, options, 2, "");
    training_run(TINY_LLAMA, text, training_path("torn.jsonl"), training_path("torn-straight"), NULL, &straight);
    ok(&straight);
    for (int limit = 1; limit <= 2; limit++)
        for (size_t k = 0; k < 5; k++) {
            char name[32];
            stopper s = {.at = 10};
            sn_train_hooks hooks = {.step = stop_at, .context = &s, .stop = &s.stop};
            snprintf(name, sizeof name, "torn%d-%zu", limit, k);
            snprintf(text, sizeof text, options, limit, "");
            training_run(TINY_LLAMA, text, training_path("torn.jsonl"), training_path("%s", name), &hooks, &part);
            ok(&part);
            assert_true(sn_path_exists(training_path("%s/checkpoint-10", name)));
            assert_true(sn_path_exists(training_path("%s/checkpoint-8", name)) == (limit == 2));
            damage(training_path("%s/checkpoint-10/%s", name, files[k]), hows[k]);
            training_warnings();
            snprintf(text, sizeof text, options, limit, " resume=on");
            training_run(TINY_LLAMA, text, training_path("torn.jsonl"), training_path("%s", name), NULL, &part);
            ok(&part);
            assert_true(training_warnings() >= 1);
            assert_same_run(&straight, &part, name);
            assert_same_files("torn-straight", name, false);
        }
}

/* Checkpoints of later steps, left from a run that was given up, neither survive the new run's nor are resumed. */
static void left_over_checkpoints(void **state) {
    (void)state;
    trained straight, part;
    stopper s = {.at = 2};
    sn_train_hooks hooks = {.step = stop_at, .context = &s, .stop = &s.stop};
    training_rows(training_path("left.jsonl"), 7);
    training_run(TINY_LLAMA, "max_steps=12 save_steps=3", training_path("left.jsonl"), training_path("left"), NULL, &straight);
    ok(&straight);
    training_run(TINY_LLAMA, "max_steps=12 save_steps=3", training_path("left.jsonl"), training_path("left"), &hooks, &part);
    ok(&part);
    assert_true(sn_path_exists(training_path("left/checkpoint-2")));
    assert_false(sn_path_exists(training_path("left/checkpoint-12")));
    training_run(TINY_LLAMA, "max_steps=12 save_steps=3 resume=on", training_path("left.jsonl"), training_path("left"), NULL, &part);
    ok(&part);
    assert_same_run(&straight, &part, "left over");
}

/* A child trains with a checkpoint a step and is killed at some moment, and the next one goes on; in the end the bits are the
 * same. The moments lie within half the time that a straight run takes. */
static void killed_at_random(void **state) {
    (void)state;
    static const char *const options = "max_steps=12 save_steps=1 lora=on lora_dropout=0.1 resume=on";
    trained straight, part;
    int killed = 0;
    training_rows(training_path("kill.jsonl"), 7);
    double started = sn_now();
    training_run(TINY_LLAMA, options, training_path("kill.jsonl"), training_path("kill-straight"), NULL, &straight);
    double most = (sn_now() - started) / 2;
    ok(&straight);
    for (uint32_t i = 0; i < 12; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            training_run(TINY_LLAMA, options, training_path("kill.jsonl"), training_path("kill"), NULL, &part);
            _exit(part.status == SN_OK ? 0 : 1);
        }
        int status;
        usleep((useconds_t)(1e6 * most * sn_uniform(sn_philox(7, 0, i, 0, 0, 0).v[0])));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        killed += WIFSIGNALED(status);
        if (!WIFEXITED(status)) continue;
        assert_int_equal(WEXITSTATUS(status), 0); /* it had ended: once more from the start */
        assert_ok(sn_remove_tree(training_path("kill")));
    }
    assert_true(killed > 0);
    training_run(TINY_LLAMA, options, training_path("kill.jsonl"), training_path("kill"), NULL, &part);
    ok(&part);
    assert_same_run(&straight, &part, "killed");
    assert_same_files("kill-straight", "kill", true);
}

#ifdef __x86_64__
enum { FAULT_KILL, FAULT_FULL };

static bool changes_files(long call) {
    static const long calls[] = {SYS_write,     SYS_writev, SYS_pwrite64, SYS_fsync,     SYS_fdatasync,
                                 SYS_ftruncate, SYS_rename, SYS_renameat, SYS_unlink,    SYS_unlinkat,
                                 SYS_mkdir,     SYS_rmdir,  SYS_mkdirat,  SYS_fallocate, SYS_renameat2};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (calls[i] == call) return true;
    return false;
}

static bool needs_room(long call) { return call == SYS_write || call == SYS_writev || call == SYS_pwrite64 || call == SYS_fallocate; }

/* Traces a stopped child. KILL: it dies before its nth system call that changes a file. FULL: from its nth write on nothing more
 * fits on the disk. Returns its wait status; *calls: how many such calls it made. */
static int run_with_fault(pid_t child, int fault, int nth, int *calls) {
    int status;
    bool inside = false, refuse = false;
    *calls = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) return status;
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    for (long signal = 0;;) {
        struct user_regs_struct regs;
        assert_int_equal(ptrace(PTRACE_SYSCALL, child, 0, signal), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSTOPPED(status)) return status;
        signal = WSTOPSIG(status);
        if (signal != (SIGTRAP | 0x80)) continue;
        signal = 0;
        inside = !inside;
        assert_int_equal(ptrace(PTRACE_GETREGS, child, 0, &regs), 0);
        long call = (long)regs.orig_rax;
        if (inside && (fault == FAULT_KILL ? changes_files(call) : needs_room(call))) {
            bool due = ++*calls >= nth;
            if (due && fault == FAULT_KILL) {
                kill(child, SIGKILL);
                assert_int_equal(waitpid(child, &status, 0), child);
                return status;
            }
            refuse = due;
            if (refuse) regs.orig_rax = (unsigned long long)-1; /* no such call: nothing is done */
        } else if (!inside && refuse) {
            regs.rax = (unsigned long long)-ENOSPC;
            refuse = false;
        } else {
            continue;
        }
        ptrace(PTRACE_SETREGS, child, 0, &regs);
    }
}

/* At every single write, sync, rename and removal of a run with three checkpoints: killed there, or the disk full from there on.
 * What is left is resumed, and ends with the bits of a run that nothing happened to. */
static void a_fault_at_every_write(void **state) {
    (void)state;
    static const char *const options = "max_steps=3 save_steps=1 save_total_limit=2 lora=on lora_rank=1 lora_target=q_proj resume=on";
    trained straight, part;
    training_rows(training_path("every.jsonl"), 5);
    training_run(TINY_LLAMA, options, training_path("every.jsonl"), training_path("every-straight"), NULL, &straight);
    ok(&straight);
    for (int fault = FAULT_KILL; fault <= FAULT_FULL; fault++) {
        int calls = 0, last = 0;
        for (int nth = 1; nth == 1 || calls >= nth - 1; nth++) {
            char out[32], a[65], b[65];
            snprintf(out, sizeof out, "every%d", fault);
            assert_ok(sn_remove_tree(training_path("%s", out)));
            unlink(training_path("every.jsonl.snug-idx"));
            pid_t child = fork();
            assert_true(child >= 0);
            if (!child) {
                if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(77);
                raise(SIGSTOP);
                training_run(TINY_LLAMA, options, training_path("every.jsonl"), training_path("%s", out), NULL, &part);
                _exit(part.status == SN_OK ? 0 : part.status == SN_ERR_FILE ? 3 : 4);
            }
            int status = run_with_fault(child, fault, nth, &calls);
            if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
                fprintf(stderr, "no process can be traced here: skipped\n");
                skip();
            }
            if (calls < nth) { /* it had ended before */
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                break;
            }
            if (fault == FAULT_KILL) assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            else if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) fail_msg("disk full at call %d: wait status %#x", nth, status);
            training_run(TINY_LLAMA, options, training_path("every.jsonl"), training_path("%s", out), NULL, &part);
            if (part.status != SN_OK) fail_msg("fault %d at call %d: %s", fault, nth, part.error);
            assert_same_run(&straight, &part, out);
            training_digest(training_path("every-straight/checkpoint-3/state.safetensors"), a);
            training_digest(training_path("%s/checkpoint-3/state.safetensors", out), b);
            assert_string_equal(a, b);
            training_digest(training_path("every-straight/adapter_model.safetensors"), a);
            training_digest(training_path("%s/adapter_model.safetensors", out), b);
            assert_string_equal(a, b);
            last = nth;
        }
        print_message("%s at each of %d calls\n", fault == FAULT_KILL ? "killed" : "disk full", last);
        assert_true(last > 30);
    }
}
#else
static void a_fault_at_every_write(void **state) {
    (void)state;
    skip();
}
#endif

static void put_limit(const char *folder, const char *kilobytes) {
    char text[64];
    snprintf(text, sizeof text, "size=%sk", kilobytes);
    if (mount("none", folder, "tmpfs", 0, text)) {
        fprintf(stderr, "no tmpfs can be mounted here: skipped\n");
        skip();
    }
}

/* A disk that fills up: an error, and the checkpoint before loads. */
static void full_disk(void **state) {
    (void)state;
    trained straight, part;
    stopper s = {.at = 3};
    sn_train_hooks hooks = {.step = stop_at, .context = &s, .stop = &s.stop};
    training_rows(training_path("full.jsonl"), 7);
    training_run(TINY_LLAMA, "max_steps=12 save_steps=3", training_path("full.jsonl"), training_path("full-straight"), NULL, &straight);
    ok(&straight);
    assert_ok(sn_make_dirs(training_path("full")));
    put_limit(training_path("full"), "600");
    training_run(TINY_LLAMA, "max_steps=12 save_steps=3", training_path("full.jsonl"), training_path("full/out"), &hooks, &part);
    sn_status first = part.status;
    int fd = first == SN_OK ? open(training_path("full/ballast"), O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    static char zeros[4096];
    while (fd >= 0 && write(fd, zeros, sizeof zeros) == (ssize_t)sizeof zeros) continue;
    if (fd >= 0) close(fd);
    training_run(TINY_LLAMA, "max_steps=12 save_steps=3 resume=on", training_path("full.jsonl"), training_path("full/out"), NULL, &part);
    sn_status second = part.status;
    char error[512];
    snprintf(error, sizeof error, "%s", part.error);
    unlink(training_path("full/ballast"));
    training_run(TINY_LLAMA, "max_steps=12 save_steps=3 resume=on", training_path("full.jsonl"), training_path("full/out"), NULL, &part);
    umount2(training_path("full"), MNT_DETACH);
    assert_int_equal(first, SN_OK);
    assert_int_equal(second, SN_ERR_FILE);
    if (!*error) fail_msg("no message of the full disk");
    ok(&part);
    assert_same_run(&straight, &part, "full disk");
}

static int start(void **state) {
    (void)state;
    if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1); /* hundreds of syncs, but no power fails */
    training_open("resume");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_and_resume),  cmocka_unit_test(schedule_goes_on),
        cmocka_unit_test(torn_checkpoints), cmocka_unit_test(left_over_checkpoints),
        cmocka_unit_test(killed_at_random), cmocka_unit_test(a_fault_at_every_write),
        cmocka_unit_test(full_disk),
    };
    return cmocka_run_group_tests(tests, start, training_close);
}
