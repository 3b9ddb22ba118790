/* The plan changes where bytes lie and when queues run, never a bit of the result: every value in its own memory, then
 * as planned, then in 100 random orders that respect only queues and events. */
#include <stdio.h>
#include <string.h>

#include "support/program_check.h"
#include "support/tiny.h"

enum { STEPS = 3 };

typedef struct outcome {
    double loss[STEPS];
    float norm[STEPS];
    char digest[65];
} outcome;

static void run_steps(const sn_model_config *config, const char *options, const char *device, bool reuse, outcome *o) {
    tiny t;
    memset(o, 0, sizeof *o);
    tiny_open(&t, config, options, device, reuse);
    for (int i = 0; i < STEPS; i++) o->loss[i] = tiny_step(&t, i, &o->norm[i]);
    tiny_digest(&t, o->digest);
    tiny_close(&t);
}

static const char *const recipes[] = {
    "seed=1",
    "recompute=all",
    "recompute=attention gradient_accumulation_steps=3",
    "lora=on lora_rank=4 lora_dropout=0.1 recompute=every:2",
    "precision=bf16 max_grad_norm=0.1",
    "precision=fp16 optimizer=sgd momentum=0.9",
};

static void reuse_changes_no_bit(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        for (int family = 0; family < 2; family++) {
            sn_model_config config = family ? tiny_gpt2() : tiny_llama();
            outcome own, planned, split;
            run_steps(&config, recipes[i], "cpu", false, &own);
            run_steps(&config, recipes[i], "cpu", true, &planned);
            run_steps(&config, recipes[i], "cpu-split", true, &split);
            assert_true(own.loss[0] > 1 && own.loss[0] < 50);
            assert_true(own.loss[STEPS - 1] != own.loss[0]);
            assert_memory_equal(&own, &planned, sizeof own);
            assert_memory_equal(&own, &split, sizeof own);
        }
}

static void random_orders_change_no_bit(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    tiny t;
    char first[65] = "", digest[65];
    tiny_open(&t, &config, "recompute=all lora=on", "cpu-split", true);
    int index = sn_job_role_index(t.job, SN_ROLE_TRAIN);
    size_t bytes = (size_t)t.plan->arena_bytes[SN_TIER_DEVICE];
    void *arena = sn_run_arena(t.run, SN_TIER_DEVICE), *start = sn_alloc(bytes);
    assert_non_null(start);
    memcpy(start, arena, bytes);
    for (uint32_t seed = 0; seed < 100; seed++) {
        memcpy(arena, start, bytes);
        tiny_fill(&t, index, 0, 0);
        run_in_random_order(t.run, t.plan, index, 0, seed);
        tiny_digest(&t, digest);
        if (!seed) strcpy(first, digest);
        assert_string_equal(digest, first);
    }
    sn_free(start);
    tiny_close(&t);
}

static void recompute_is_bit_exact(void **state) {
    (void)state;
    static const char *const bases[] = {"seed=1", "lora=on lora_dropout=0.2", "precision=bf16", "gradient_accumulation_steps=2"};
    static const char *const kinds[] = {"none", "light", "selective", "attention", "every:1", "every:2", "all"};
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
        outcome first, other;
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            char options[128];
            sn_model_config config = tiny_llama();
            snprintf(options, sizeof options, "%s recompute=%s", bases[b], kinds[k]);
            run_steps(&config, options, "cpu", true, k ? &other : &first);
            if (k) assert_memory_equal(&first, &other, sizeof first);
        }
    }
}

/* Bytes outside a value's life are poisoned with NaN before every step and after every instruction: nothing may read them. */
static void poison(tiny *t, int index, uint32_t k, bool all) {
    const sn_planned *p = &t->plan->programs[index];
    char *arena = sn_run_arena(t->run, SN_TIER_DEVICE);
    uint64_t bytes;
    void *transient = sn_run_transient(t->run, &bytes);
    if (all) memset(transient, 0xff, bytes);
    for (size_t i = 0; !all && i < p->n_lives; i++)
        if (p->lives[i].tier == SN_TIER_DEVICE && p->lives[i].last == k) memset(arena + p->lives[i].offset, 0xff, p->lives[i].bytes);
}

static void dead_bytes_are_never_read(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        sn_model_config config = tiny_llama();
        char digest[2][65];
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            tiny t;
            tiny_open(&t, &config, recipes[i], "cpu", true);
            int index = sn_job_role_index(t.job, SN_ROLE_TRAIN);
            tiny_fill(&t, index, 0, 0);
            if (poisoned) poison(&t, index, 0, true);
            for (uint32_t k = 0; k < t.plan->programs[index].program.count; k++) {
                sn_run_instruction(t.run, index, k, 0);
                if (poisoned) poison(&t, index, k, false);
            }
            tiny_digest(&t, digest[poisoned]);
            tiny_close(&t);
        }
        assert_string_equal(digest[0], digest[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reuse_changes_no_bit),
        cmocka_unit_test(dead_bytes_are_never_read),
        cmocka_unit_test(random_orders_change_no_bit),
        cmocka_unit_test(recompute_is_bit_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
