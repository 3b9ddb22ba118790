/* Whole-model finite differences: the gradient that the programs leave in memory against the loss itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/tiny.h"

static double loss_of(tiny *t) {
    sn_pid loss = sn_job_find(t->job, "loss");
    memset(sn_run_persistent(t->run, loss), 0, 16);
    int program = sn_job_role_index(t->job, SN_ROLE_EVALUATE);
    tiny_fill(t, program, 0, 0);
    assert_ok(sn_run_program(t->run, program, 0));
    const double *sum = sn_run_persistent(t->run, loss);
    return sum[0] / sum[1];
}

/* Accumulation keeps the gradients when the first micro-batch is done. */
static void check_model(sn_model_config config, const char *more) {
    tiny t;
    char options[128];
    snprintf(options, sizeof options, "gradient_accumulation_steps=2 %s", more);
    tiny_open(&t, &config, options, "cpu", true);
    int program = sn_job_role_index(t.job, SN_ROLE_TRAIN);
    tiny_fill(&t, program, 0, 0);
    *(float *)sn_run_io(t.run, program, "scale", 0, NULL) *= 2; /* this micro-batch alone */
    assert_ok(sn_run_program(t.run, program, 0));
    int checked = 0;
    for (size_t q = 0; q < t.job->n_persistent; q++) {
        const sn_persistent *e = &t.job->persistent[q];
        if (e->class_of != SN_CLASS_GRADIENTS) continue;
        float *w = sn_run_persistent(t.run, e->parent), *g = sn_run_persistent(t.run, (sn_pid)q);
        int64_t n = 1;
        for (int i = 0; i < e->shape.rank; i++) n *= e->shape.d[i];
        for (int64_t i = n / 3; i < n; i += n / 3 + 1) {
            float old = w[i], step = 2e-2f * (1 + fabsf(old)) * 0.25f;
            w[i] = old + step;
            double up = loss_of(&t), high = w[i];
            w[i] = old - step;
            double down = loss_of(&t), low = w[i];
            w[i] = old;
            double numeric = (up - down) / (high - low);
            if (fabs(numeric - g[i]) > 2e-3 * (1 + fabs(numeric)) * 0.5 + 2e-4)
                fail_msg("%s: %s[%lld]: gradient %g, finite difference %g", config.architecture, e->name, (long long)i, g[i], numeric);
            checked++;
        }
    }
    assert_true(checked >= 10);
    tiny_close(&t);
}

static void llama(void **state) {
    (void)state;
    check_model(tiny_llama(), "seed=1");
    sn_model_config untied = tiny_llama();
    untied.tie_word_embeddings = false;
    untied.attention_bias = untied.mlp_bias = true;
    untied.sliding_window = 5;
    check_model(untied, "recompute=all");
}
static void llama_lora(void **state) {
    (void)state;
    check_model(tiny_llama(), "lora=on lora_rank=3");
}
static void gpt2(void **state) {
    (void)state;
    check_model(tiny_gpt2(), "seed=1");
    check_model(tiny_gpt2(), "lora=on lora_target=c_attn,c_fc");
}

/* Finite differences through the training program itself, whose dropout is drawn by counter: the same mask every time. */
static double training_loss(tiny *t, int program) {
    double *sum = sn_run_persistent(t->run, sn_job_find(t->job, "loss"));
    memset(sum, 0, 2 * sizeof *sum);
    tiny_fill(t, program, 0, 0);
    *(float *)sn_run_io(t->run, program, "scale", 0, NULL) *= 2; /* this micro-batch alone */
    assert_ok(sn_run_program(t->run, program, 0));
    return sum[0] / sum[1];
}

static void check_with_dropout(sn_model_config config, const char *more) {
    static float gradient[4096];
    tiny t;
    int checked = 0;
    char options[128];
    snprintf(options, sizeof options, "gradient_accumulation_steps=2 %s", more);
    tiny_open(&t, &config, options, "cpu", true);
    int program = sn_job_role_index(t.job, SN_ROLE_TRAIN);
    double base = training_loss(&t, program);
    assert_true(training_loss(&t, program) == base);
    for (size_t q = 0; q < t.job->n_persistent; q++) {
        const sn_persistent *e = &t.job->persistent[q];
        if (e->class_of != SN_CLASS_GRADIENTS) continue;
        float *w = sn_run_persistent(t.run, e->parent);
        int64_t n = e->shape.d[0] * e->shape.d[1];
        assert_true(n <= 4096);
        training_loss(&t, program); /* the gradients at w */
        memcpy(gradient, sn_run_persistent(t.run, (sn_pid)q), (size_t)n * sizeof *gradient);
        for (int64_t i = n / 3; i < n; i += n / 3 + 1) {
            float old = w[i], step = 5e-3f * (1 + fabsf(old));
            w[i] = old + step;
            double up = training_loss(&t, program), high = w[i];
            w[i] = old - step;
            double down = training_loss(&t, program), low = w[i];
            w[i] = old;
            double numeric = (up - down) / (high - low);
            if (fabs(numeric - gradient[i]) > 1e-3 * (1 + fabs(numeric)) + 2e-4)
                fail_msg("%s: %s[%lld]: gradient %g, finite difference %g", options, e->name, (long long)i, gradient[i], numeric);
            checked++;
        }
    }
    assert_true(checked >= 10);
    tiny_close(&t);
}

/* Half of the adapters' inputs dropped: what they hand back to the layers below must be dropped alike. */
static void lora_with_dropout(void **state) {
    (void)state;
    check_with_dropout(tiny_llama(), "lora=on lora_rank=3 lora_dropout=0.5");
    check_with_dropout(tiny_llama(), "lora=on lora_rank=3 lora_dropout=0.5 recompute=all");
    check_with_dropout(tiny_gpt2(), "lora=on lora_rank=3 lora_dropout=0.5");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(llama), cmocka_unit_test(llama_lora), cmocka_unit_test(gpt2),
                                       cmocka_unit_test(lora_with_dropout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
