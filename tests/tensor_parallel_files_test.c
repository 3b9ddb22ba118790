/* Tensor parallelism and files: each rank reads its part of folders and GGUFs (permuted, quantised rows), checkpoints are in logical
 * coordinates, so that a run goes on at another number of ranks, and what is exported is the whole model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "support/training.h"

enum { ROWS = 12, STEPS = 6, STOP = 3 };

static char folder[600], gguf[600], blocks[600], data[600];

static int start(void **state) {
    (void)state;
    training_open("tensor_parallel_files");
    sn_model_config c = tiny_llama_of_blocks();
    snprintf(folder, sizeof folder, "%s", training_path("model"));
    snprintf(gguf, sizeof gguf, "%s", training_path("model.gguf"));
    snprintf(data, sizeof data, "%s", training_path("rows.jsonl"));
    snprintf(blocks, sizeof blocks, "%s", training_path("blocks"));
    tiny_write(&c, folder, gguf, SN_Q8_0);
    c.hidden_size = 64;
    c.vocab_size = 104;
    c.head_dim = 128;
    c.num_heads = 4;
    c.num_kv_heads = 2;
    c.intermediate_size = 512;
    tiny_write(&c, blocks, training_path("blocks.gguf"), SN_Q8_0);
    training_rows(data, ROWS);
    return 0;
}

static void run(const char *model, const char *options, const char *out, trained *t) {
    char all[600];
    snprintf(all, sizeof all, "per_device_train_batch_size=2 %s", options);
    training_steadily(model, all, data, training_path("%s", out), t);
}

static void assert_runs_near(const trained *a, const trained *b, int first, const char *what) {
    assert_int_equal(b->steps, STEPS - first);
    for (int k = first; k < STEPS; k++)
        if (!(fabs(a->loss[k] - b->loss[k - first]) <= 1e-5 * a->loss[k]))
            fail_msg("%s: step %d: %.9g, one rank %.9g", what, k + 1, b->loss[k - first], a->loss[k]);
}

static void each_rank_reads_its_part(void **state) {
    (void)state;
    static const char *const recipes[] = {"max_steps=6", "max_steps=6 lora=on lora_rank=4",
                                          "max_steps=6 qlora=on lora_rank=4 recompute=all",
                                          "max_steps=6 qlora=on lora_rank=4 precision=bf16"};
    for (int m = 0; m < 2; m++)
        for (int r = 0; r < 4; r++) {
            trained one, other;
            char options[256];
            double within = strstr(recipes[r], "bf16") ? 2e-2 : 1e-5;
            run(m ? gguf : folder, recipes[r], "one", &one);
            for (int ranks = 2; ranks <= 3; ranks++) {
                snprintf(options, sizeof options, "%s thread_ranks=%d tp=%d sequence_parallel=%s", recipes[r], ranks, ranks,
                         r % 2 ? "on" : "off");
                char out[32];
                snprintf(out, sizeof out, "ranks%d", ranks);
                run(m ? gguf : folder, options, out, &other);
                for (int k = 0; k < STEPS; k++)
                    if (!(fabs(one.loss[k] - other.loss[k]) <= within * one.loss[k]))
                        fail_msg("%s %s: step %d: %.9g, one rank %.9g", m ? gguf : folder, options, k + 1, other.loss[k], one.loss[k]);
                const char *name = r ? "adapter_model.safetensors" : "model.safetensors";
                training_near(training_path("one/%s", name), training_path("%s/%s", out, name), within);
            }
        }
}

/* q, k and v beside each other in one weight, which a GGUF holds transposed. */
static void gpt2_reads_its_thirds(void **state) {
    (void)state;
    static const char *const models[] = {TINY_GPT2, TINY_GPT2 ".gguf"};
    for (int m = 0; m < 2; m++)
        for (int lora = 0; lora < 2; lora++) {
            trained one, other;
            char options[256];
            const char *recipe = lora ? "max_steps=6 lora=on lora_rank=4" : "max_steps=6";
            const char *name = lora ? "adapter_model.safetensors" : "model.safetensors";
            run(models[m], recipe, "one", &one);
            snprintf(options, sizeof options, "%s thread_ranks=2 tp=2 sequence_parallel=%s", recipe, lora ? "on" : "off");
            run(models[m], options, "other", &other);
            assert_runs_near(&one, &other, 0, options);
            training_near(training_path("one/%s", name), training_path("other/%s", name), 1e-5);
        }
}

/* Stopped at one number of ranks, gone on with at another. */
static void goes_on(const char *more, const char *before, const char *after, const char *what) {
    trained straight, first, second;
    char options[512];
    snprintf(options, sizeof options, "%s max_steps=%d", more, STEPS);
    run(folder, options, "straight", &straight);
    assert_ok(sn_remove_tree(training_path("resumed")));
    snprintf(options, sizeof options, "%s max_steps=%d %s", more, STOP, before);
    run(folder, options, "resumed", &first);
    snprintf(options, sizeof options, "%s max_steps=%d resume=on %s", more, STEPS, after);
    run(folder, options, "resumed", &second);
    assert_runs_near(&straight, &second, second.steps == STEPS ? 0 : STOP, what);
    training_near(training_path("straight/checkpoint-%d/state.safetensors", STEPS),
                  training_path("resumed/checkpoint-%d/state.safetensors", STEPS), 1e-5);
    assert_int_equal(training_warnings(), 0);
}

static void checkpoints_at_other_ranks(void **state) {
    (void)state;
    training_warnings();
    goes_on("", "thread_ranks=2 tp=2", "thread_ranks=1", "2 to 1");
    goes_on("", "thread_ranks=2 tp=2 sequence_parallel=on", "thread_ranks=3 tp=3", "2 to 3");
    goes_on("", "thread_ranks=1", "thread_ranks=2 tp=2", "1 to 2");
    goes_on("lora=on lora_rank=4 lora_dropout=0.1", "thread_ranks=3 tp=3", "thread_ranks=2 tp=2", "adapters, 3 to 2");
    goes_on("per_device_train_batch_size=1 gradient_accumulation_steps=2", "thread_ranks=1", "thread_ranks=1", "itself");
}

/* States in blocks of 8 bits: saved by the block, whoever holds it. A slice that would cut one has f32 moments instead, which fit no codes.
 */
static void checkpoints_of_blocks(void **state) {
    (void)state;
    static const char *const spreads[] = {"thread_ranks=2 tp=2", "thread_ranks=4 tp=2 zero_stage=2 gradient_accumulation_steps=1",
                                          "thread_ranks=1"};
    static const char both[] = "optimizer=adamw_8bit gradient_accumulation_steps=2";
    trained straight, part;
    char options[256];
    training_warnings();
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            snprintf(options, sizeof options, "max_steps=%d %s %s", STEPS, both, spreads[to]);
            run(blocks, options, "straight", &straight);
            assert_ok(sn_remove_tree(training_path("resumed")));
            snprintf(options, sizeof options, "max_steps=%d %s %s", STOP, both, spreads[from]);
            run(blocks, options, "resumed", &part);
            snprintf(options, sizeof options, "max_steps=%d resume=on %s %s", STEPS, both, spreads[to]);
            run(blocks, options, "resumed", &part);
            const int first = part.steps == STEPS ? 0 : STOP;
            assert_int_equal(part.steps, STEPS - first);
            for (int k = STOP; k < STEPS; k++) {
                const double loss = part.loss[k - first], wanted = straight.loss[k];
                if (from == to ? loss != wanted : !(fabs(loss / wanted - 1) <= 1e-3))
                    fail_msg("%s: step %d: %.9g, straight %.9g", options, k + 1, loss, wanted);
            }
        }
    assert_int_equal(training_warnings(), 0);
    assert_ok(sn_remove_tree(training_path("resumed")));
    run(folder, "max_steps=3 optimizer=adamw_8bit", "resumed", &part);
    training_run(folder,
                 "max_steps=6 optimizer=adamw_8bit resume=on thread_ranks=2 tp=2 per_device_train_batch_size=2 lr_scheduler_type=constant "
                 "learning_rate=1e-3 adam_epsilon=1e-5",
                 data, training_path("resumed"), NULL, &part);
    assert_int_equal(part.status, SN_ERR_USAGE);
    if (!strstr(part.error,
                "model.embed_tokens.weight.exp_avg was saved as u8 [97,96], and is f32 [97,96] under this recipe, at these ranks"))
        fail_msg("'%s'", part.error);
}

/* Shards of shards: what data-parallel ranks hold of what tensor-parallel ones do. */
static void shards_of_shards(void **state) {
    (void)state;
    trained straight, first, second;
    run(folder, "max_steps=6 thread_ranks=2", "straight", &straight);
    run(folder, "max_steps=3 thread_ranks=4 tp=2 zero_stage=3", "resumed", &first);
    run(folder, "max_steps=6 resume=on thread_ranks=4 tp=2 zero_stage=1 sequence_parallel=on", "resumed", &second);
    assert_runs_near(&straight, &second, second.steps == STEPS ? 0 : STOP, "shards of shards");
    training_near(training_path("straight/model.safetensors"), training_path("resumed/model.safetensors"), 1e-5);
    run(folder, "max_steps=6 resume=on thread_ranks=2 tp=1", "resumed", &second); /* nothing left to do: read, and exported */
}

/* Tokens in shards over another axis, blocks in stages, evaluation. */
static void beside_other_axes(void **state) {
    (void)state;
    static const char *const spreads[] = {"thread_ranks=4 tp=2 cp=2", "thread_ranks=4 tp=2 cp=2 sequence_parallel=on",
                                          "thread_ranks=4 tp=2 pp=2", "thread_ranks=4 tp=2 pp=2 sequence_parallel=on recompute=all"};
    static const char recipe[] = "max_steps=6 gradient_accumulation_steps=2 per_device_train_batch_size=1 eval_fraction=0.2";
    trained one, other;
    run(folder, recipe, "one", &one);
    for (int i = 0; i < 4; i++) {
        char options[256];
        snprintf(options, sizeof options, "%s %s", recipe, spreads[i]);
        run(folder, options, "other", &other);
        assert_runs_near(&one, &other, 0, spreads[i]);
        if (!(fabs(one.summary.eval_loss - other.summary.eval_loss) <= 1e-5 * one.summary.eval_loss))
            fail_msg("%s: evaluation %.9g, one rank %.9g", spreads[i], other.summary.eval_loss, one.summary.eval_loss);
        training_near(training_path("one/model.safetensors"), training_path("other/model.safetensors"), 1e-5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(beside_other_axes),     cmocka_unit_test(each_rank_reads_its_part),
                                       cmocka_unit_test(gpt2_reads_its_thirds), cmocka_unit_test(checkpoints_at_other_ranks),
                                       cmocka_unit_test(checkpoints_of_blocks), cmocka_unit_test(shards_of_shards)};
    return cmocka_run_group_tests(tests, start, training_close);
}
