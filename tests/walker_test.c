/* Independent readers of a printed program. hazards: every two instructions on overlapping bytes, one of them writing,
 * are ordered by their queue or by a chain of events. walker: live bytes recomputed from the instructions alone: the
 * arena is at most 1.03 times their maximum and has no byte that no value covers. */
#include <malloc.h>

#include "support/program_check.h"
#include "support/tiny.h"

static const char *const recipes[] = {
    "seed=1",
    "recompute=all",
    "recompute=attention gradient_accumulation_steps=2",
    "lora=on recompute=all",
    "precision=bf16 recompute=every:2",
    "lora=on lora_dropout=0.1 precision=fp16",
};

static void programs_are_tight_and_ordered(void **state) {
    (void)state;
    static const char *const devices[] = {"cpu", "cpu-split"};
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        for (int d = 0; d < 2; d++)
            for (int family = 0; family < 2; family++) {
                sn_model_config config = family ? tiny_gpt2() : tiny_llama();
                tiny t;
                tiny_open(&t, &config, recipes[i], devices[d], true);
                for (int k = 0; k < t.plan->n_programs; k++) {
                    check_program_is_tight(t.plan, k);
                    check_program_is_ordered(&t.plan->programs[k].program);
                }
                uint64_t sum = 0;
                for (int c = 0; c < SN_CLASS_COUNT; c++) sum += t.plan->bill.by_class[SN_TIER_DEVICE][c];
                assert_int_equal(sum, t.plan->arena_bytes[SN_TIER_DEVICE]);
                tiny_close(&t);
            }
}

/* What the reserved line counts of graphs and lifetimes is all that they take, whatever the heap looks like when they are made. */
static void no_room_is_kept_for_more(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        sn_model_config config = tiny_llama();
        tiny t;
        tiny_open(&t, &config, recipes[i], "cpu", true);
        assert_int_equal(t.job->cap_persistent, t.job->n_persistent);
        for (int k = 0; k < t.job->n_graphs; k++) {
            const sn_graph *g = t.job->graphs[k];
            assert_true(g->cap_values == g->n_values && g->cap_nodes == g->n_nodes && g->cap_order == g->n_order);
            const sn_planned *p = &t.plan->programs[k];
            assert_true(malloc_usable_size(p->lives) < p->n_lives * sizeof *p->lives + 64);
        }
        tiny_close(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_are_tight_and_ordered), cmocka_unit_test(no_room_is_kept_for_more)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
