/* Updating inside backward changes no bit: losses, norms, weights and states are those of the ordinary step without clipping. At no
 * time is there more gradient than the largest one and what a tied table gathers meanwhile. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "support/tiny.h"

enum { STEPS = 4 };

typedef struct outcome {
    double loss[STEPS];
    float norm[STEPS];
    char digest[65];
} outcome;

static void run(const sn_model_config *config, const char *options, const char *device, outcome *out) {
    tiny t;
    memset(out, 0, sizeof *out);
    tiny_open(&t, config, options, device, true);
    for (int i = 0; i < STEPS; i++) out->loss[i] = tiny_step(&t, i, &out->norm[i]);
    tiny_digest(&t, out->digest);
    tiny_close(&t);
}

static void equal(const sn_model_config *config, const char *options, const char *device) {
    char released[256];
    outcome a, b;
    snprintf(released, sizeof released, "gradient_release=on %s", options);
    run(config, options, device, &a);
    run(config, released, device, &b);
    assert_true(isfinite(a.loss[STEPS - 1]) && a.norm[0] > 0);
    if (memcmp(&a, &b, sizeof a)) fail_msg("%s: other bits than without", released);
}

static void bit_exact(void **state) {
    (void)state;
    static const char *const rules[] = {"adamw weight_decay=0.1",
                                        "adamw moment_dtype=bf16",
                                        "adamw_8bit",
                                        "adafactor",
                                        "lion",
                                        "muon",
                                        "galore galore_rank=8 galore_update_gap=2",
                                        "sgd momentum=0.9"};
    static const char *const forms[] = {"precision=f32 recompute=none", "precision=bf16 recompute=light",
                                        "gradient_dtype=bf16 recompute=all", "lora=on recompute=every:2"};
    for (int family = 0; family < 3; family++)
        for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++)
            for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
                sn_model_config config = family == 1 ? tiny_gpt2() : tiny_llama();
                config.tie_word_embeddings = family < 2;
                char options[200];
                snprintf(options, sizeof options, "threads=1 max_grad_norm=0 optimizer=%s %s", rules[r], forms[f]);
                equal(&config, options, "cpu");
            }
}

static void other_tiers(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    equal(&config, "threads=1 max_grad_norm=0 offload_optimizer=host offload_gradients=host offload_param=host", "cpu-split");
    equal(&config,
          "threads=1 max_grad_norm=0 offload_optimizer=disk offload_gradients=disk offload_param=disk offload_dir=release_test_disk",
          "cpu");
}

/* The largest sum of gradients alive at once. */
static uint64_t most_gradients(const tiny *t) {
    const sn_planned *p = &t->plan->programs[sn_job_role_index(t->job, SN_ROLE_TRAIN)];
    uint64_t most = 0;
    for (uint32_t k = 0; k < p->program.count; k++) {
        uint64_t live = 0;
        for (size_t i = 0; i < p->n_lives; i++)
            if (p->lives[i].class_of == SN_CLASS_GRADIENTS && p->lives[i].first <= k && k <= p->lives[i].last) live += p->lives[i].bytes;
        if (live > most) most = live;
    }
    return most;
}

static uint64_t bytes_of(const sn_persistent *e) {
    size_t bytes;
    assert_true(sn_shape_bytes(&e->shape, SN_F32, &bytes));
    return sn_round_up(bytes, 64);
}

static void gradients_die_at_once(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        sn_model_config config = tiny_llama();
        config.tie_word_embeddings = tied;
        config.num_layers = 6;
        uint64_t all = 0, table = 0, block = 0, seen[2];
        for (int on = 0; on < 2; on++) {
            tiny t;
            tiny_open(&t, &config, on ? "max_grad_norm=0 gradient_release=on" : "max_grad_norm=0", "null", true);
            seen[on] = most_gradients(&t);
            for (size_t p = 0; !on && p < t.job->n_persistent; p++) {
                const sn_persistent *e = &t.job->persistent[p];
                uint64_t bytes = bytes_of(e);
                if (e->class_of != SN_CLASS_WEIGHTS) continue;
                all += bytes;
                if (e->layer < 0 && bytes > table) table = bytes;
                if (e->layer >= 0 && bytes > block) block = bytes;
            }
            tiny_close(&t);
        }
        assert_int_equal(seen[0], all);
        assert_int_equal(seen[1], tied ? table + block : table);
    }
}

/* The table is updated once, behind its last use: by the embedding's gradient, at the end of backward. */
static void a_tied_table_is_updated_last(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    tiny t;
    tiny_open(&t, &config, "max_grad_norm=0 gradient_release=on", "null", true);
    const sn_program *p = &t.plan->programs[sn_job_role_index(t.job, SN_ROLE_TRAIN)].program;
    uint32_t updates = 0, of_table = 0, last = 0, first = UINT32_MAX;
    for (uint32_t k = 0; k < p->count; k++) {
        if (strcmp(p->instrs[k].op, "adamw")) continue;
        updates++;
        if (first == UINT32_MAX) first = k;
        last = k;
        of_table += strstr(p->instrs[k].name, "embed_tokens") != NULL;
    }
    assert_int_equal(updates, 2 * 9 + 2);
    assert_int_equal(of_table, 1);
    assert_non_null(strstr(p->instrs[last].name, "embed_tokens"));
    assert_non_null(strstr(p->instrs[first].name, "norm"));
    tiny_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bit_exact), cmocka_unit_test(other_tiers), cmocka_unit_test(gradients_die_at_once),
                                       cmocka_unit_test(a_tied_table_is_updated_last)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
