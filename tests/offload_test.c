/* Offload is exact: where optimizer states rest changes no loss, norm, weight or state, with accumulation, recomputation, 16 bits, bf16
 * moments (whose rounding depends on logical indices) and adapters; the programs keep what every program keeps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "plan/forecast.h"
#include "support/program_check.h"
#include "support/tiny.h"

enum { STEPS = 3 };

typedef struct outcome {
    double loss[STEPS];
    float norm[STEPS];
    char digest[65];
} outcome;

#define DISK "offload_dir=offload_test_disk "

/* The embedding takes several tiles, the last of them shorter and of no whole number of disk blocks. */
static sn_model_config wide_llama(void) {
    sn_model_config c = tiny_llama();
    c.vocab_size = 33001;
    return c;
}

/* Everything but gradients, which live within a step where they do not accumulate and rest in memory, and activations. */
static void digest_of(tiny *t, char hex[65]) {
    sn_sha256 h;
    sn_sha256_start(&h);
    for (size_t p = 0; p < t->job->n_persistent; p++) {
        size_t bytes = (size_t)t->plan->persistent[p].bytes;
        const sn_class class_of = t->job->persistent[p].class_of;
        void *data = bytes && class_of != SN_CLASS_GRADIENTS && class_of != SN_CLASS_ACTIVATIONS ? sn_alloc(bytes) : NULL;
        if (!data) continue;
        assert_ok(sn_run_read(t->run, (sn_pid)p, 0, data, bytes));
        sn_sha256_add(&h, data, bytes);
        sn_free(data);
    }
    sn_sha256_end(&h, hex);
}

static void run_steps(const sn_model_config *config, const char *options, const char *device, outcome *o) {
    tiny t;
    memset(o, 0, sizeof *o);
    tiny_open(&t, config, options, device, true);
    for (int i = 0; i < STEPS; i++) o->loss[i] = tiny_step(&t, i, &o->norm[i]);
    digest_of(&t, o->digest);
    tiny_close(&t);
}

static const struct {
    const char *device, *options;
} homes[] = {{"cpu", DISK "offload_optimizer=disk"},
             {"cpu-split", DISK "offload_optimizer=disk"},
             {"cpu-split", "offload_optimizer=host"},
             {"cpu", DISK "offload_optimizer=disk:0.4"},
             {"cpu-split", "offload_optimizer=host:0.6"},
             {"cpu", DISK "offload_gradients=disk"},
             {"cpu", DISK "offload_param=disk"},
             {"cpu", DISK "offload_optimizer=disk offload_gradients=disk offload_param=disk"},
             {"cpu-split", DISK "offload_optimizer=disk offload_gradients=host offload_param=disk:0.5"},
             {"cpu-split", "offload_optimizer=host offload_gradients=host offload_param=host"},
             {"cpu", DISK "offload_activations=disk"},
             {"cpu-split", "offload_activations=host"},
             {"cpu-split", DISK "offload_activations=disk:0.5 offload_param=host offload_gradients=disk"}};
enum { HOMES = sizeof homes / sizeof homes[0] };

static void check(const sn_model_config *config, const char *recipe) {
    for (int accumulation = 1; accumulation <= 4; accumulation += 3) {
        char options[512];
        outcome plain, other;
        snprintf(options, sizeof options, "gradient_accumulation_steps=%d %s", accumulation, recipe);
        run_steps(config, options, "cpu", &plain);
        assert_true(plain.loss[0] > 1 && plain.loss[STEPS - 1] != plain.loss[0]);
        for (int h = 0; h < HOMES; h++) {
            snprintf(options, sizeof options, "gradient_accumulation_steps=%d %s %s", accumulation, recipe, homes[h].options);
            run_steps(config, options, homes[h].device, &other);
            if (memcmp(&plain, &other, sizeof plain))
                fail_msg("%s on %s: loss %.17g, at home %.17g; norm %.9g, %.9g; %.8s, %.8s", options, homes[h].device,
                         other.loss[STEPS - 1], plain.loss[STEPS - 1], (double)other.norm[STEPS - 1], (double)plain.norm[STEPS - 1],
                         other.digest, plain.digest);
        }
    }
}

static void tiles(void **state) {
    (void)state;
    sn_model_config wide = wide_llama();
    check(&wide, "recompute=light");
    check(&wide, "moment_dtype=bf16 precision=bf16 weight_decay=0.1");
    check(&wide, "optimizer=adamw_8bit weight_decay=0.1");
    check(&wide, "optimizer=lion moment_dtype=bf16 precision=bf16");
}

static void recipes(void **state) {
    (void)state;
    sn_model_config llama = tiny_llama(), gpt2 = tiny_gpt2();
    check(&llama, "recompute=all precision=bf16");
    check(&llama, "moment_dtype=bf16 recompute=selective");
    check(&llama, "optimizer=sgd momentum=0.9 precision=fp16");
    check(&llama, "optimizer=sgd momentum=0.9 moment_dtype=bf16");
    check(&llama, "lora=on lora_rank=4 lora_dropout=0.1 recompute=every:2");
    check(&gpt2, "recompute=none max_grad_norm=0.1");
    check(&gpt2, "optimizer=adamw_8bit precision=bf16");
    check(&llama, "optimizer=muon");
    check(&llama, "optimizer=adafactor");
}

static void programs_are_ordered(void **state) {
    (void)state;
    sn_model_config wide = wide_llama();
    for (int h = 0; h < HOMES; h++)
        for (int accumulation = 1; accumulation <= 2; accumulation++) {
            char options[256];
            tiny t;
            snprintf(options, sizeof options, "precision=bf16 gradient_accumulation_steps=%d %s", accumulation, homes[h].options);
            tiny_open(&t, &wide, options, homes[h].device, true);
            for (int k = 0; k < t.plan->n_programs; k++) check_program_is_ordered(&t.plan->programs[k].program);
            tiny_close(&t);
        }
}

/* Random orders that respect only queues and events, each from the same start, give the same bits; more of them where SNUG_TEST_FULL is
 * set. */
static void random_orders_change_no_bit(void **state) {
    (void)state;
    const uint32_t orders = getenv("SNUG_TEST_FULL") ? 16 : 4;
    sn_model_config wide = wide_llama();
    for (int h = 0; h < HOMES; h++) {
        char first[65] = "", digest[65], options[256];
        for (uint32_t seed = 0; seed < orders; seed++) {
            tiny t;
            snprintf(options, sizeof options, "moment_dtype=bf16 %s", homes[h].options);
            tiny_open(&t, &wide, options, homes[h].device, true);
            int index = sn_job_role_index(t.job, SN_ROLE_TRAIN);
            for (int step = 0; step < 2; step++) {
                tiny_fill(&t, index, step, 0);
                run_in_random_order(t.run, t.plan, index, 0, seed * 2 + (uint32_t)step);
            }
            digest_of(&t, digest);
            if (!seed) strcpy(first, digest);
            assert_string_equal(digest, first);
            tiny_close(&t);
        }
    }
}

/* Every transient byte of both memory tiers is NaN before a step, and what dies becomes NaN at once. */
static void dead_bytes_are_never_read(void **state) {
    (void)state;
    sn_model_config wide = wide_llama();
    for (int h = 0; h < HOMES; h++) {
        char digest[2][65];
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            tiny t;
            tiny_open(&t, &wide, homes[h].options, homes[h].device, true);
            int index = sn_job_role_index(t.job, SN_ROLE_TRAIN);
            const sn_planned *p = &t.plan->programs[index];
            tiny_fill(&t, index, 0, 0);
            for (int tier = 0; poisoned && tier < SN_TIER_DISK; tier++)
                memset((char *)sn_run_arena(t.run, (sn_tier)tier) + t.plan->persistent_bytes[tier], 0xff,
                       (size_t)(t.plan->arena_bytes[tier] - t.plan->persistent_bytes[tier]));
            for (uint32_t k = 0; k < p->program.count; k++) {
                sn_run_instruction(t.run, index, k, 0);
                for (size_t i = 0; poisoned && i < p->n_lives; i++)
                    if (p->lives[i].last == k)
                        memset((char *)sn_run_arena(t.run, p->lives[i].tier) + p->lives[i].offset, 0xff, p->lives[i].bytes);
            }
            digest_of(&t, digest[poisoned]);
            tiny_close(&t);
        }
        assert_string_equal(digest[0], digest[1]);
    }
}

/* Staging is what two tiles of each state take; states leave memory, by the share that was asked for. */
static void the_bill(void **state) {
    (void)state;
    sn_model_config wide = wide_llama();
    tiny plain, disk, part, split;
    tiny_open(&plain, &wide, "seed=1", "cpu", true);
    tiny_open(&disk, &wide, DISK "offload_optimizer=disk", "cpu", true);
    tiny_open(&part, &wide, DISK "offload_optimizer=disk:0.01", "cpu", true);
    tiny_open(&split, &wide, "offload_optimizer=host", "cpu-split", true);
    uint64_t at_home = plain.plan->bill.by_class[SN_TIER_DEVICE][SN_CLASS_OPTIMIZER],
             left = disk.plan->bill.by_class[SN_TIER_DEVICE][SN_CLASS_OPTIMIZER];
    uint64_t on_disk = disk.plan->bill.by_tier[SN_TIER_DISK], states = plain.plan->bill.by_class[SN_TIER_DEVICE][SN_CLASS_WEIGHTS] * 2;
    assert_int_equal(at_home - left, states);
    assert_true(on_disk >= states && on_disk < states + 4096 * disk.job->n_persistent);
    assert_int_equal(disk.plan->bill.by_class[SN_TIER_DISK][SN_CLASS_OPTIMIZER], states);
    assert_true(disk.plan->bill.total + states - (9 << 20) < plain.plan->bill.total);
    assert_int_equal(split.plan->bill.by_class[SN_TIER_HOST][SN_CLASS_OPTIMIZER], states);
    assert_true(part.plan->bill.by_tier[SN_TIER_DISK] >= states / 100 && part.plan->bill.by_tier[SN_TIER_DISK] < on_disk);
    tiny_close(&plain);
    tiny_close(&disk);
    tiny_close(&part);
    tiny_close(&split);
}

static void refused(const char *options, const char *device, sn_status want, const char *text) {
    sn_options *recipe = tiny_recipe(options);
    sn_model_config config = tiny_llama();
    sn_device d;
    sn_job *job;
    sn_cluster cluster = {.addresses = 0, .mesh = sn_mesh_alone()};
    assert_ok(sn_device_find(device, 1, &d));
    cluster.addresses = d.shape.addresses;
    sn_training_shape shape = {.tokens = 48};
    assert_int_equal(sn_job_for_training(&config, NULL, &shape, recipe, &cluster, NULL, &job), want);
    if (!strstr(sn_error_text(), text)) fail_msg("'%s' does not say '%s'", sn_error_text(), text);
    sn_options_close(recipe);
}

static uint64_t counted(const char *name) {
    char line[128];
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name))) assert_int_equal(sscanf(line + strlen(name), ": %llu", &n), 1);
    fclose(f);
    return n;
}

/* What the plan says a step reads and writes on disk is what the system counts, byte for byte. */
static void traffic(void **state) {
    (void)state;
    sn_model_config wide = wide_llama();
    static const char *const recipes[] = {"offload_optimizer=disk", "offload_optimizer=disk offload_gradients=disk offload_param=disk",
                                          "offload_optimizer=disk offload_gradients=disk gradient_accumulation_steps=3 recompute=all",
                                          "offload_optimizer=disk offload_param=disk:0.5 optimizer=lion"};
    for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++) {
        char options[256];
        float norm;
        tiny t;
        sn_rates rates = {.f32_flops = 1e9, .bytes_per_s = 1e9, .disk_read = 1e9, .disk_write = 1e9};
        sn_forecast f = {.ranks = 1, .nodes = 1};
        snprintf(options, sizeof options, DISK "%s", recipes[r]);
        tiny_open(&t, &wide, options, "cpu", true);
        assert_ok(sn_plan_forecast(t.plan, &rates, sn_options_int(t.recipe, "gradient_accumulation_steps"), t.tokens, &f));
        tiny_step(&t, 0, &norm);
        int exact = 0; /* two steps have to be; where a page of the program itself had to be read again, another is looked at */
        for (int step = 1; step < 9 && exact < 2; step++) {
            uint64_t read = counted("read_bytes"), written = counted("write_bytes");
            tiny_step(&t, step, &norm);
            read = counted("read_bytes") - read;
            assert_true(read >= (uint64_t)f.disk_read_bytes);
            assert_int_equal(counted("write_bytes") - written, (uint64_t)f.disk_written_bytes);
            exact += read == (uint64_t)f.disk_read_bytes;
        }
        assert_int_equal(exact, 2);
        assert_true(f.disk_read_bytes > 4e6 && f.disk_written_bytes > 4e6);
        tiny_close(&t);
    }
}

static void refusals(void **state) {
    (void)state;
    refused("offload_optimizer=host", "cpu", SN_ERR_PLAN, "saves nothing");
    refused("offload_optimizer=disk", "cpu", SN_ERR_USAGE, "offload_dir");
    static const char *const bad[] = {"tape", "disk:", "disk:0", "disk:1.5", "disk:0.5x", "none:0.5", "disk:nan", "hos"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char options[64];
        snprintf(options, sizeof options, "offload_optimizer=%s offload_dir=x", bad[i]);
        refused(options, "cpu-split", SN_ERR_USAGE, bad[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles),
                                       cmocka_unit_test(recipes),
                                       cmocka_unit_test(programs_are_ordered),
                                       cmocka_unit_test(random_orders_change_no_bit),
                                       cmocka_unit_test(dead_bytes_are_never_read),
                                       cmocka_unit_test(the_bill),
                                       cmocka_unit_test(traffic),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
