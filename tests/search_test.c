/* The budget of each tier, to the byte; the search for a change that fits: what it passes over cannot win; how many plans it makes; and the
 * queues of an estimate by hand. */
#include <stdio.h>
#include <string.h>

#include "engine/fit.h"
#include "engine/train.h"
#include "support/tiny.h"

static const char tiny_config[] = "tests/golden/cli/tiny/config.json";

static sn_options *with_memory(const char *options, const char *format, unsigned long long bytes) {
    char text[96];
    sn_options *o = tiny_recipe(options);
    snprintf(text, sizeof text, format, bytes);
    assert_ok(sn_options_set(o, "memory", text, SN_FROM_COMMAND_LINE, "test"));
    return o;
}

/* Fits with exactly `need` bytes of what `format` names; with one fewer, refused with that byte. */
static void check_to_the_byte(const char *options, const char *format, uint64_t need, const char *said) {
    sn_model m;
    sn_session s;
    assert_ok(sn_model_open(tiny_config, &m));
    for (int fewer = 0; fewer < 2; fewer++) {
        sn_options *o = with_memory(options, format, need - (uint64_t)fewer), *chosen;
        sn_status status = sn_fit_training(&m, o, NULL, &s, &chosen, NULL);
        assert_null(chosen);
        if (fewer) {
            assert_int_equal(status, SN_ERR_BUDGET);
            if (!strstr(sn_error_text(), said) || !strstr(sn_error_text(), ": 1 bytes (1 B) missing"))
                fail_msg("'%s' does not say '%s' and that a byte is missing", sn_error_text(), said);
        } else {
            assert_ok(status);
            sn_session_close(&s);
        }
        sn_options_close(o);
    }
    sn_model_close(&m);
}

static void plan_of(const char *options, sn_session *s, uint64_t need[SN_HOLD_COUNT]) {
    static sn_model m;
    sn_options *o = tiny_recipe(options);
    assert_ok(sn_model_open(tiny_config, &m));
    assert_ok(sn_train_plan(&m, o, NULL, NULL, s));
    sn_limits l = sn_limits_of(s, o);
    sn_needs_of(&l, &s->plan->bill, need);
    sn_options_close(o);
    sn_model_close(&m);
}

static void each_tier_to_the_byte(void **state) {
    (void)state;
    static const char here[] = "threads=1 cutoff_len=64", disk[] = "threads=1 cutoff_len=64 offload_dir=/tmp offload_optimizer=disk",
                      two[] = "threads=1 cutoff_len=64 thread_ranks=2 zero_stage=1 offload_dir=/tmp offload_optimizer=disk",
                      split[] = "threads=1 cutoff_len=64 device=cpu-split offload_optimizer=host";
    static const struct {
        const char *options, *format, *said;
        sn_hold hold;
    } cases[] = {
        {here, "%llu", "the plan needs", SN_HOLD_DEVICE},
        {here, "device=%llu,host=1GiB", "the plan needs", SN_HOLD_DEVICE},
        {here, "host=%llu", "host: the plan needs", SN_HOLD_HOST},
        {disk, "device=1GiB,disk=%llu", "disk: the plan needs", SN_HOLD_DISK},
        {two, "%llu", "the plan needs", SN_HOLD_DEVICE}, /* a rank's */
        {two, "host=%llu", "host: the 2 ranks of a node need", SN_HOLD_HOST},
        {two, "disk=%llu", "disk: the 2 ranks of a node need", SN_HOLD_DISK},
        {split, "device=%llu", "device: the plan needs", SN_HOLD_DEVICE},
        {split, "device=1GiB,host=%llu", "host: the plan needs", SN_HOLD_HOST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sn_session s;
        uint64_t need[SN_HOLD_COUNT];
        plan_of(cases[i].options, &s, need);
        const sn_bill *b = &s.plan->bill;
        if (cases[i].options == here)
            assert_true(need[SN_HOLD_DEVICE] == b->total && need[SN_HOLD_HOST] == b->total && need[SN_HOLD_DISK] == b->files);
        if (cases[i].options == two)
            assert_true(need[SN_HOLD_DEVICE] == b->total && need[SN_HOLD_HOST] == 2 * b->total &&
                        need[SN_HOLD_DISK] == 2 * (b->by_tier[SN_TIER_DISK] - b->files) + b->files);
        if (cases[i].options == split)
            need[SN_HOLD_DEVICE] = b->by_tier[SN_TIER_DEVICE]; /* a bare number, or none, is of both tiers there */
        if (cases[i].options == split) assert_true(need[SN_HOLD_HOST] == b->by_tier[SN_TIER_HOST] + b->reserved);
        sn_session_close(&s);
        check_to_the_byte(cases[i].options, cases[i].format, need[cases[i].hold], cases[i].said);
    }
}

/* Of a planned machine only what was stated limits the disk; of this one what is free, too. */
static void another_machine_has_another_disk(void **state) {
    (void)state;
    for (int other = 0; other < 2; other++) {
        char options[256];
        sn_model m;
        sn_session s;
        snprintf(options, sizeof options, "memory=device=1GiB,disk=1TiB offload_dir=. %s", other ? "device_shape=h100-80g" : "");
        sn_options *o = tiny_recipe(options);
        assert_ok(sn_model_open("gpt2", &m));
        assert_ok(sn_train_plan(&m, o, NULL, NULL, &s));
        sn_limits l = sn_limits_of(&s, o);
        assert_true(l.most[SN_HOLD_DISK] == 1ull << 40 && (l.disk_free == UINT64_MAX) == other);
        sn_session_close(&s);
        sn_options_close(o);
        sn_model_close(&m);
    }
}

/* ---- The search ---- */

static void look(const char *model, const char *options, sn_choice_kind most, bool exhaustive, sn_search *out) {
    sn_model m;
    sn_session s;
    sn_options *o = tiny_recipe(options);
    assert_ok(sn_model_open(model, &m));
    assert_ok(sn_train_plan(&m, o, NULL, NULL, &s));
    sn_limits l = sn_limits_of(&s, o);
    l.disk_free = UINT64_MAX; /* whatever this machine has */
    assert_ok(sn_search_run(&m, o, &s, &l, most, exhaustive, out));
    sn_session_close(&s);
    sn_options_close(o);
    sn_model_close(&m);
}

/* Whether some planned change is as good as what looking at everything finds. */
static void what_is_passed_over_cannot_win(void **state) {
    (void)state;
    static const char *const jobs[] = {
        "threads=1 cutoff_len=64 per_device_train_batch_size=8 offload_dir=/tmp",
        "threads=1 cutoff_len=64 per_device_train_batch_size=2 offload_dir=/tmp recompute=none",
        "threads=1 cutoff_len=32 per_device_train_batch_size=4 thread_ranks=2",
        "threads=1 cutoff_len=32 per_device_train_batch_size=2 device=cpu-split max_grad_norm=0",
        "threads=1 cutoff_len=32 per_device_train_batch_size=2 ranks=8 nodes=2 device_shape=l40s-48g",
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        sn_session s;
        uint64_t need[SN_HOLD_COUNT];
        plan_of(jobs[i], &s, need);
        const uint64_t reserved = s.plan->bill.reserved, total = s.plan->bill.total - reserved;
        sn_session_close(&s);
        for (int part = 1; part < 10; part += 2) { /* tenths of what the job as it is takes beside `reserved` */
            sn_search all, some;
            char options[256];
            snprintf(options, sizeof options, "%s memory=%llu", jobs[i], (unsigned long long)(reserved + total * (uint64_t)part / 10));
            const sn_choice_kind most = i == 1 && part == 3 ? SN_CHOICE_LOSSY : SN_CHOICE_REORDERED;
            look(tiny_config, options, most, true, &all);
            look(tiny_config, options, most, false, &some);
            assert_true(some.planned <= all.planned);
            assert_false(some.cut);
            if ((some.n_fits > 0) != (all.n_fits > 0))
                fail_msg("%s: %d, but of all %d, '%s' %llu", options, some.n_fits, all.n_fits, all.fits[0].change,
                         (unsigned long long)all.fits[0].need[0]);
            if (all.n_fits) {
                assert_int_equal(some.fits[0].kind, all.fits[0].kind);
                if (some.fits[0].seconds > 1.0001 * all.fits[0].seconds)
                    fail_msg("%s: took '%s', %g s; '%s' takes %g s", options, some.fits[0].change, some.fits[0].seconds, all.fits[0].change,
                             all.fits[0].seconds);
            }
            sn_search_free(&all);
            sn_search_free(&some);
        }
    }
}

/* 80 layers of Llama 3 70B: a plan takes a tenth of a second there. */
static void how_many_plans(void **state) {
    (void)state;
    static const struct {
        const char *memory;
        sn_choice_kind most;
        size_t plans;
    } cases[] = {
        {"memory=600GiB", SN_CHOICE_REORDERED, 28}, {"memory=60GiB", SN_CHOICE_REORDERED, 30}, {"memory=60GiB", SN_CHOICE_LOSSY, 30}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char options[160];
        sn_search s;
        snprintf(options, sizeof options, "%s cutoff_len=2048 per_device_train_batch_size=4 offload_dir=/tmp", cases[i].memory);
        look("llama-3-70b", options, cases[i].most, false, &s);
        assert_true(s.n_fits > 0 && !s.cut);
        assert_int_equal(s.fits[0].kind, SN_CHOICE_EXACT); /* a disk has room */
        if (s.planned > cases[i].plans) fail_msg("%s: %zu plans of %zu candidates", options, s.planned, s.considered);
        sn_search_free(&s);
    }
}

static void disk_where_only_disk_has_room(void **state) {
    (void)state;
    sn_model m;
    sn_session s;
    uint64_t need[SN_HOLD_COUNT];
    sn_options *chosen;
    sn_fit f;
    assert_ok(sn_model_open("smollm2-135m", &m));
    sn_options *o = with_memory("cutoff_len=128 offload_dir=/tmp fit=on recompute=all", "device=%llu,disk=64GiB", 1200ull << 20);
    assert_ok(sn_fit_training(&m, o, NULL, &s, &chosen, &f));
    assert_non_null(chosen); /* weights, gradients and states are 2.1 GiB, and no recomputation helps */
    assert_non_null(strstr(f.search.fits[0].change, "disk"));
    assert_int_equal(f.search.fits[0].kind, SN_CHOICE_EXACT);
    assert_true(s.plan->bill.total <= 1200ull << 20 && s.plan->arena_bytes[SN_TIER_DISK] > 500ull << 20);
    sn_limits l = sn_limits_of(&s, chosen);
    sn_needs_of(&l, &s.plan->bill, need);
    assert_memory_equal(need, f.search.fits[0].need, sizeof need); /* what was said is what is planned */
    sn_str text = {0}, json = {0};
    sn_fit_print(&f, &text);
    sn_fit_json(&f, &json);
    assert_non_null(strstr(text.data, "fit: took --"));
    assert_non_null(strstr(text.data, "bit-exact: the fastest that fits of"));
    assert_non_null(strstr(json.data, "\"kind\": \"exact\""));
    sn_session_close(&s);
    sn_options_close(chosen);
    sn_options_close(o);
    /* and where the disk has none, it is refused with what would have been wanted */
    o = with_memory("cutoff_len=128 offload_dir=/tmp fit=on recompute=all", "device=%llu,disk=1GiB", 1200ull << 20);
    assert_int_equal(sn_fit_training(&m, o, NULL, &s, &chosen, &f), SN_ERR_BUDGET);
    assert_non_null(strstr(sn_error_text(), "disk: the plan needs"));
    sn_str_free(&text);
    sn_str_free(&json);
    sn_options_close(o);
    sn_model_close(&m);
}

/* ---- The estimate ---- */

/* Two reads ahead of two computations, a write behind the first: by hand, with 1 s a byte or operation.
 *      io       r1 0-3  r2 3-6          w 8-10 (waits for c1)
 *      compute          c1 3-8  c2 8-12 (waits for r2, has it)  */
static void queues_by_hand(void **state) {
    (void)state;
    sn_arg three = {.dtype = SN_I8, .shape = sn_shape_of(3)}, two = {.dtype = SN_I8, .shape = sn_shape_of(2)};
    sn_instr instrs[] = {
        {.op = "fetch", .out = &three, .n_out = 1, .queue = SN_QUEUE_IO, .signal = 1},
        {.op = "fetch", .out = &three, .n_out = 1, .queue = SN_QUEUE_IO, .signal = 2},
        {.op = "matmul", .flops = 5, .bytes = 1, .queue = SN_QUEUE_COMPUTE, .signal = 1, .wait = {[SN_QUEUE_IO] = 1}},
        {.op = "store", .in = &two, .n_in = 1, .queue = SN_QUEUE_IO, .signal = 3, .wait = {[SN_QUEUE_COMPUTE] = 1}},
        {.op = "matmul", .flops = 4, .bytes = 1, .queue = SN_QUEUE_COMPUTE, .signal = 2, .wait = {[SN_QUEUE_IO] = 2}},
    };
    sn_program p = {.instrs = instrs, .count = 5};
    sn_rates rates = {.f32_flops = 1, .bytes_per_s = 1, .disk_read = 1, .disk_write = 1};
    const sn_mesh one = sn_mesh_alone();
    sn_program_time t;
    double seconds[5];
    assert_ok(sn_program_estimate(&p, &rates, &one, seconds, &t));
    assert_true(t.span == 12 && t.compute == 9 && t.io == 8 && t.communication == 0);
    assert_true(seconds[0] == 3 && seconds[2] == 5 && seconds[3] == 2);
    rates.disk_read = 0.5; /* r1 0-6, c1 6-11, r2 6-12, c2 12-16, w 12-14 */
    assert_ok(sn_program_estimate(&p, &rates, &one, NULL, &t));
    assert_true(t.span == 16 && t.io == 14);
    rates.profile = (sn_profile){.n = 1, .points = {{.key = "matmul/", .work = 5, .intensity = 3, .factor = 2}}};
    assert_ok(sn_program_estimate(&p, &rates, &one, NULL, &t)); /* a kernel that reaches half the peak: r1 0-6, c1 6-16, c2 16-24 */
    assert_true(t.span > 23.999 && t.span < 24.001 && t.compute > 17.999 && t.compute < 18.001);
}

static void the_nearest_points_count_most(void **state) {
    (void)state;
    sn_profile p = {.n = 3,
                    .points = {{.key = "matmul/", .work = 1, .intensity = 10, .factor = 4},
                               {.key = "matmul/", .work = 1000, .intensity = 10, .factor = 1},
                               {.key = "matmul/other", .work = 1, .intensity = 10, .factor = 9}}};
    sn_instr in = {.op = "matmul"}, unseen = {.op = "matmul", .kernel = &(sn_kernel){.name = "third"}}, foreign = {.op = "add"};
    double at = sn_profile_factor(&p, &in, 1, 10), far = sn_profile_factor(&p, &in, 1000, 10), between = sn_profile_factor(&p, &in, 30, 10);
    assert_true(at > 3.9 && at <= 4 && far >= 1 && far < 1.05 && between > 1.2 && between < 3.9);
    double other = sn_profile_factor(&p, &unseen, 1, 10); /* the other kernels of its op */
    assert_true(other > 4 && other < 9);
    assert_true(sn_profile_factor(&p, &foreign, 1, 10) == 1 && sn_profile_factor(&(sn_profile){0}, &in, 1, 10) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_machine_has_another_disk), cmocka_unit_test(each_tier_to_the_byte),
                                       cmocka_unit_test(what_is_passed_over_cannot_win),   cmocka_unit_test(how_many_plans),
                                       cmocka_unit_test(disk_where_only_disk_has_room),    cmocka_unit_test(queues_by_hand),
                                       cmocka_unit_test(the_nearest_points_count_most)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
