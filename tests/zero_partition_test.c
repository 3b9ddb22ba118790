/* Shards over the ranks of one node, of which every node has all: each stage gives the bits of stage 0 with sums in the same two levels,
 * and within a tolerance those of one level; replicas agree to the last bit; fewer bytes leave a node. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "engine/compare.h"
#include "io/safetensors.h"
#include "support/training.h"
#include "support/world.h"

enum { LENGTH = 8, ROWS = 16 };

static const world_rows rows = {.rows = ROWS, .length = LENGTH};

/* The embedding's shards differ in size, and its sum is large enough to be made in parts. */
static sn_model_config odd_llama(void) {
    sn_model_config c = tiny_llama();
    c.vocab_size = 1009;
    c.intermediate_size = 211;
    return c;
}

/* What ranks hold alike has to agree (world_keep). */
static void train(const sn_model_config *model, int ranks, const char *options, world_outcome *out) {
    world w;
    world_forget(out);
    world_open(&w, &rows, model, "cpu", ranks, options);
    world_train(&w, 1e-2, options, out);
    world_keep(&w, out);
    world_close(&w);
}

/* Stages 0 to 3 at 4 and 8 ranks of 2 nodes. f32: sums of another order are within 1e-6 (at an epsilon of Adam that does not make noise of
 * nothing); 16 bits are rounded once more. */
static void stages_agree(void **state) {
    (void)state;
    static world_outcome flat, first, other;
    static const struct {
        const char *options;
        double tolerance;
    } jobs[] = {{"adam_epsilon=1e-3 recompute=light", 1e-6},
                {"adam_epsilon=1e-3 lora=on lora_rank=130 lora_dropout=0.1 recompute=all", 1e-6},
                {"optimizer=sgd momentum=0.9 join_sums=0 overlap_comm=0", 1e-6},
                {"adam_epsilon=1e-3 precision=bf16", 2e-2},
                {"optimizer=muon", 1e-3},
                {"adam_epsilon=1e-3 optimizer=adamw_8bit", 1e-3}};
    const sn_model_config config = odd_llama();
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++)
        for (int ranks = 4; ranks <= (j ? 4 : 8); ranks *= 2)
            for (int accumulation = 1; accumulation <= 16 / ranks; accumulation += 3) {
                char options[256];
                snprintf(options, sizeof options, "threads=1 gradient_accumulation_steps=%d zero_stage=0 %s", accumulation,
                         jobs[j].options);
                train(&config, ranks, options, &flat);
                for (int stage = 0; stage < 4; stage++) {
                    snprintf(options, sizeof options,
                             "threads=1 gradient_accumulation_steps=%d zero_stage=%d nodes=2 zero_partition=node %s", accumulation, stage,
                             jobs[j].options);
                    train(&config, ranks, options, stage ? &other : &first);
                    if (stage) world_compare(&other, &first, 0, options);
                    else world_compare(&first, &flat, jobs[j].tolerance, options);
                }
            }
    world_forget(&flat);
    world_forget(&first);
    world_forget(&other);
}

/* One sum over nodes a step: what rests in shards is summed inside a node before. */
static void one_sum_a_step(void **state) {
    (void)state;
    static world_outcome flat, by_stage[4];
    const sn_model_config config = odd_llama();
    train(&config, 4, "threads=1 adam_epsilon=1e-3 gradient_accumulation_steps=4", &flat);
    for (int stage = 0; stage < 4; stage++) {
        char options[200];
        snprintf(options, sizeof options,
                 "threads=1 adam_epsilon=1e-3 gradient_accumulation_steps=4 gradient_sync=step zero_stage=%d nodes=2 zero_partition=node",
                 stage);
        train(&config, 4, options, &by_stage[stage]);
        world_compare(&by_stage[stage], &flat, 1e-6, options);
    }
    world_compare(&by_stage[1], &by_stage[0], 0, "stages 0 and 1");
    world_compare(&by_stage[3], &by_stage[2], 0, "stages 2 and 3");
    for (int stage = 0; stage < 4; stage++) world_forget(&by_stage[stage]);
    world_forget(&flat);
}

/* Where values rest changes no bit. */
static void other_tiers(void **state) {
    (void)state;
    static world_outcome plain, away;
    const sn_model_config config = odd_llama();
    for (int step = 0; step < 2; step++)
        for (int stage = 2; stage < 4; stage++) {
            char options[256], more[400];
            snprintf(options, sizeof options,
                     "threads=1 gradient_accumulation_steps=2 zero_stage=%d nodes=2 zero_partition=node gradient_sync=%s", stage,
                     step ? "step" : "micro");
            train(&config, 4, options, &plain);
            snprintf(more, sizeof more,
                     "%s offload_optimizer=disk offload_gradients=disk offload_param=disk offload_dir=zero_partition_test_disk", options);
            train(&config, 4, more, &away);
            world_compare(&away, &plain, 0, more);
        }
    world_forget(&plain);
    world_forget(&away);
}

/* One node is all of them; a number says the same as the nodes do. */
static void other_words(void **state) {
    (void)state;
    static world_outcome a, b;
    const sn_model_config config = odd_llama();
    for (int stage = 1; stage < 4; stage++) {
        char one[128], all[128];
        snprintf(one, sizeof one, "threads=1 gradient_accumulation_steps=2 zero_stage=%d nodes=1 zero_partition=node", stage);
        snprintf(all, sizeof all, "threads=1 gradient_accumulation_steps=2 zero_stage=%d nodes=2", stage);
        train(&config, 4, one, &a);
        train(&config, 4, all, &b);
        world_compare(&a, &b, 0, one);
        snprintf(one, sizeof one, "threads=1 gradient_accumulation_steps=2 zero_stage=%d zero_partition=4", stage);
        train(&config, 8, one, &a);
        snprintf(all, sizeof all, "threads=1 gradient_accumulation_steps=2 zero_stage=%d nodes=2 zero_partition=node", stage);
        train(&config, 8, all, &b);
        world_compare(&a, &b, 0, one);
    }
    world_forget(&a);
    world_forget(&b);
}

/* Beside axes that lie inside a node. */
static void products(void **state) {
    (void)state;
    static world_outcome flat, other;
    static const struct {
        int ranks;
        const char *options, *plain;
    } jobs[] = {{8, "tp=2 nodes=2 zero_partition=node zero_stage=3", "tp=2"},
                {8, "tp=2 nodes=2 zero_partition=node zero_stage=1 sequence_parallel=on recompute=all", "tp=2 sequence_parallel=on"},
                {8, "tp=2 nodes=2 zero_partition=node zero_stage=2 gradient_sync=step", "tp=2"},
                {8, "cp=2 nodes=2 zero_partition=node zero_stage=3", "cp=2"},
                {8, "pp=2 nodes=4 zero_partition=node zero_stage=2", "pp=2"},
                {16, "tp=2 cp=2 nodes=2 zero_partition=node zero_stage=1", "tp=2 cp=2"},
                {8, "tp=2 zero_partition=2 zero_stage=3 zero_gather_dtype=int8", "tp=2 zero_stage=3 zero_gather_dtype=int8"}};
    const sn_model_config config = odd_llama();
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++) {
        char options[256];
        const char *common = "threads=1 adam_epsilon=1e-3 gradient_accumulation_steps=2";
        snprintf(options, sizeof options, "%s %s", common, jobs[j].plain);
        train(&config, jobs[j].ranks, options, &flat);
        snprintf(options, sizeof options, "%s %s", common, jobs[j].options);
        train(&config, jobs[j].ranks, options, &other);
        world_compare(&other, &flat, strstr(jobs[j].options, "int8") ? 1e-4 : 2e-6, options);
    }
    world_forget(&flat);
    world_forget(&other);
}

/* Bytes that a rank gives to collectives along an axis, of one run of programs of this role. */
static double given(const world *w, sn_role role, const char *op, int axis) {
    double bytes = 0;
    for (int k = 0; k < w->plans[0]->n_programs; k++) {
        const sn_program *p = &w->plans[0]->programs[k].program;
        for (uint32_t i = 0; w->plans[0]->programs[k].role == role && i < p->count; i++) {
            const sn_instr *in = &p->instrs[i];
            size_t n = 0;
            if (in->queue != SN_QUEUE_COMM || in->axis != axis || strcmp(in->op, op)) continue;
            assert_true(sn_shape_bytes(&in->in[0].shape, in->in[0].dtype, &n));
            bytes += (double)n;
        }
    }
    return bytes;
}

/* Bytes of the first of 4 shares in such units. */
static double share(int64_t n, int64_t unit) { return (double)((((n + unit - 1) / unit + 3) / 4 * unit) * 4); }

/* Between nodes go sums, each of a rank's part of a gradient, and nothing else. A part is a shard of what rests, or is updated, in shards;
 * of what is summed to be whole, a shard of large ones. */
static void what_goes_where(void **state) {
    (void)state;
    sn_model_config config = odd_llama();
    config.tie_word_embeddings = false; /* whose gradient has two summands */
    for (int stage = 0; stage < 4; stage++)
        for (int step = 0; step < 2; step++) {
            world w;
            char options[200];
            double wanted = 0;
            snprintf(options, sizeof options,
                     "threads=1 gradient_accumulation_steps=2 join_sums=0 zero_stage=%d nodes=2 zero_partition=node gradient_sync=%s",
                     stage, step ? "step" : "micro");
            world_plan(&w, &rows, &config, "cpu", 8, options);
            assert_int_equal(w.s.job->mesh.size[SN_MESH_REPLICA], 2);
            assert_int_equal(w.s.job->mesh.size[SN_MESH_DP], 4);
            for (size_t p = 0; p < w.s.job->n_persistent; p++) {
                const sn_persistent *e = &w.s.job->persistent[p];
                int64_t n;
                if (e->class_of != SN_CLASS_GRADIENTS) continue;
                assert_true(sn_shape_elements(&e->shape, &n));
                if (stage >= 2 || step) wanted += n > 4096 ? share(n, 4096) : (double)n * 4;
                else wanted += n * 4 > 64 << 10 ? share(n, 64) : (double)n * 4;
            }
            const double micro = given(&w, SN_ROLE_TRAIN, "reduce_scatter", SN_MESH_REPLICA);
            const double update = given(&w, SN_ROLE_UPDATE, "reduce_scatter", SN_MESH_REPLICA);
            if ((step ? update : micro) != wanted || (step ? micro : update) != 0)
                fail_msg("%s: %g bytes in a micro-batch and %g in the update, wanted %g in one of them", options, micro, update, wanted);
            if (stage == 3) assert_true(given(&w, SN_ROLE_TRAIN, "all_gather", SN_MESH_DP) > 0);
            world_close(&w);
        }
}

/* Ranks of a class are alike, also where shards are dealt over two axes at once, and beside columns. */
static void classes(void **state) {
    (void)state;
    static const char *const jobs[] = {"zero_stage=1 nodes=2 zero_partition=node", "zero_stage=3 nodes=4 zero_partition=node",
                                       "zero_stage=1 tp=2 zero_partition=2", "zero_stage=2 tp=3 nodes=2 zero_partition=node"};
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++) {
        const int ranks = strstr(jobs[j], "tp=3") ? 24 : 16;
        sn_model_config config = odd_llama();
        config.vocab_size = 20011;
        config.hidden_size = 48;
        config.num_heads = 6;
        config.num_kv_heads = 3;
        const size_t n = world_classes(&config, ranks, jobs[j]);
        if (!(n > 1 && n < (size_t)ranks)) fail_msg("%s: %zu classes of %d ranks", jobs[j], n, ranks);
    }
}

typedef struct planned {
    sn_forecast f;
    sn_bill bill;
} planned;

static void plan_shape(const char *model, const char *options, planned *out) {
    sn_model m;
    sn_session s;
    sn_rates rates;
    bool measured;
    assert_ok(sn_model_open(model, &m));
    sn_options *recipe = tiny_recipe(options);
    assert_ok(sn_train_plan(&m, recipe, NULL, NULL, &s));
    assert_true(s.plan->ranks_planned < 32);
    assert_ok(sn_train_rates(&s, recipe, &rates, &measured));
    assert_ok(sn_train_forecast(&s, recipe, &rates, &out->f));
    out->bill = s.plan->bill;
    sn_session_close(&s);
    sn_options_close(recipe);
    sn_model_close(&m);
}

/* Fewer bytes between nodes for more in memory: of 3 passes over the weights' bytes at stage 3, 2 are left, or 2 a step; ranks hold an 8th
 * instead of a 64th. */
static void a_large_cluster(void **state) {
    (void)state;
    planned all, node, once;
    const char *job = "full=true precision=bf16 ranks=64 nodes=8 zero_stage=3 device_shape=h100-80g recompute=all "
                      "gradient_accumulation_steps=4 threads=1";
    char options[256];
    plan_shape("llama-3-70b", job, &all);
    snprintf(options, sizeof options, "%s zero_partition=node", job);
    plan_shape("llama-3-70b", options, &node);
    snprintf(options, sizeof options, "%s zero_partition=node gradient_sync=step", job);
    plan_shape("llama-3-70b", options, &once);
    const double weights = 70.55e9 * 2;
    assert_true(all.f.node_sent_bytes > 4 * 2.9 * weights && all.f.node_sent_bytes < 4 * 3.2 * weights);
    assert_true(node.f.node_sent_bytes < 0.75 * all.f.node_sent_bytes && node.f.node_sent_bytes > 0.5 * all.f.node_sent_bytes);
    assert_true(once.f.node_sent_bytes < 0.3 * node.f.node_sent_bytes);
    for (int c = 0; c <= SN_CLASS_OPTIMIZER; c++)
        if (c == SN_CLASS_WEIGHTS || c == SN_CLASS_GRADIENTS || c == SN_CLASS_OPTIMIZER) {
            const double times = (double)node.bill.at_rest[c] / (double)all.bill.at_rest[c];
            if (!(times > 7.5 && times < 8.5)) fail_msg("%s: %g times as many bytes", sn_class_name((sn_class)c), times);
            assert_true(once.bill.at_rest[c] == node.bill.at_rest[c]);
        }
    assert_true(node.bill.total > all.bill.total);
    /* Where the network is slow, a step takes less. */
    job = "full=true precision=bf16 ranks=16 nodes=4 zero_stage=3 device_shape=rtx4090-24g recompute=all gradient_accumulation_steps=4 "
          "threads=1";
    plan_shape("llama-3-8b", job, &all);
    snprintf(options, sizeof options, "%s zero_partition=node", job);
    plan_shape("llama-3-8b", options, &node);
    snprintf(options, sizeof options, "%s zero_partition=node gradient_sync=step", job);
    plan_shape("llama-3-8b", options, &once);
    assert_true(once.f.step_seconds < node.f.step_seconds && once.f.step_seconds < all.f.step_seconds);
}

/* The planner offers it where there are several nodes, as another order of sums. */
static void is_offered(void **state) {
    (void)state;
    sn_model m;
    assert_ok(sn_model_open("smollm2-135m", &m));
    static const char *const jobs[] = {"ranks=8 nodes=2", "ranks=8", "ranks=8 nodes=8", "ranks=6 nodes=2 tp=3",
                                       "ranks=8 nodes=2 zero_partition=all"};
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++) {
        char options[160];
        sn_comparison c;
        int found = 0;
        snprintf(options, sizeof options, "full=true threads=1 device_shape=h100-80g cutoff_len=64 %s", jobs[j]);
        sn_options *recipe = tiny_recipe(options);
        assert_ok(sn_compare_training(&m, recipe, &c));
        for (size_t i = 0; i < c.n; i++) {
            if (!strstr(c.rows[i].change, "--zero-partition node")) continue;
            found++;
            assert_int_equal(c.rows[i].kind, SN_CHOICE_REORDERED);
            assert_string_equal(c.rows[i].reason, "");
        }
        if (found != (j ? 0 : 3)) fail_msg("%s: offered %d times", jobs[j], found);
        sn_comparison_free(&c);
        sn_options_close(recipe);
    }
    sn_model_close(&m);
}

/* Shards are spread over all data-parallel ranks of a node that share the rest of their place, and over no other's, whatever lies around
 * and inside. */
static void shards_stay_inside(void **state) {
    (void)state;
    static const struct {
        int ranks, nodes, replicas;
        const char *options;
    } cases[] = {{16, 2, 2, ""},     {16, 2, 2, "tp=2"},      {16, 4, 2, "pp=2"},           {16, 2, 1, "pp=2"},
                 {16, 2, 1, "pp=4"}, {32, 4, 2, "pp=2 tp=2"}, {64, 8, 2, "pp=4 cp=2 tp=2"}, {32, 8, 4, "pp=2"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char options[100];
        snprintf(options, sizeof options, "zero_partition=node %s", cases[k].options);
        sn_options *recipe = tiny_recipe(options);
        const int per = cases[k].ranks / cases[k].nodes;
        sn_mesh mesh;
        assert_ok(sn_passes_mesh(recipe, cases[k].ranks, cases[k].nodes, &mesh));
        assert_int_equal(sn_mesh_ranks(&mesh), cases[k].ranks);
        assert_int_equal(mesh.size[SN_MESH_REPLICA], cases[k].replicas);
        for (int r = 0; r < cases[k].ranks; r++) {
            for (int i = 0; i < mesh.size[SN_MESH_DP]; i++) assert_int_equal(sn_mesh_neighbour(&mesh, r, SN_MESH_DP, i) / per, r / per);
            for (int i = 0; i < cases[k].replicas; i++)
                assert_true(sn_mesh_neighbour(&mesh, r, SN_MESH_REPLICA, i) == r ||
                            sn_mesh_neighbour(&mesh, r, SN_MESH_REPLICA, i) / per != r / per);
        }
        sn_options_close(recipe);
    }
}

static void what_cannot_be(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *options, *said;
    } cases[] = {
        {4, "nodes=3 zero_partition=node", "4 ranks cannot be spread evenly over 3 nodes"},
        {4, "nodes=2 tp=4 zero_partition=node", "zero_partition is node, but 1 data-parallel rank cannot be spread evenly over 2 nodes"},
        {12, "nodes=4 tp=2 zero_partition=node", "zero_partition is node, but 6 data-parallel ranks cannot be spread evenly over 4 nodes"},
        {8, "nodes=4 pp=2 tp=4 zero_partition=node",
         "zero_partition is node, but 1 data-parallel rank cannot be spread evenly over 2 nodes"},
        {12, "nodes=3 pp=2 zero_partition=node",
         "zero_partition is node, but of 3 nodes some would have parts of two sets of 6 data-parallel ranks"},
        {4, "nodes=4 zero_partition=node", "zero_partition is node, which leaves one data-parallel rank"},
        {4, "zero_partition=1", "zero_partition is 1, which leaves one"},
        {4, "zero_partition=3", "zero_partition is '3', wanted all, node or a number that divides the 4"},
        {4, "zero_partition=8", "zero_partition is '8'"},
        {4, "zero_partition=0", "zero_partition is '0'"},
        {4, "zero_partition=2x", "zero_partition is '2x'"},
        {4, "zero_partition=nodes", "zero_partition is 'nodes'"}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        sn_options *recipe = tiny_recipe(cases[k].options);
        sn_session s = {.ranks = cases[k].ranks};
        assert_ok(sn_session_cluster(&s, recipe));
        assert_int_equal(sn_session_mesh(&s, recipe), SN_ERR_USAGE);
        if (!strstr(sn_error_text(), cases[k].said)) fail_msg("%s: '%s', wanted '%s'", cases[k].options, sn_error_text(), cases[k].said);
        sn_options_close(recipe);
    }
    /* Machines with different numbers of ranks. */
    sn_options *recipe = tiny_recipe("zero_partition=node");
    sn_mesh mesh;
    assert_int_equal(sn_passes_mesh(recipe, 4, 0, &mesh), SN_ERR_USAGE);
    assert_non_null(strstr(sn_error_text(), "zero_partition is node, but the nodes do not all have the same number of ranks"));
    assert_ok(sn_passes_mesh(recipe, 1, 1, &mesh));
    assert_int_equal(sn_mesh_ranks(&mesh), 1);
    sn_options_close(recipe);
}

/* MiCS's key is the same number; -1 is off. */
static void deepspeed(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int replicas;
    } cases[] = {{"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 4, \"mics_hierarchical_params_gather\": true}}", 2},
                 {"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 8}}", 1},
                 {"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": -1}}", 1}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        sn_options *o;
        sn_mesh mesh;
        assert_ok(sn_recipe_new(&o));
        training_text(training_path("mics.json"), cases[k].text);
        assert_ok(sn_recipe_read_deepspeed(o, training_path("mics.json")));
        assert_ok(sn_passes_mesh(o, 8, 1, &mesh));
        assert_int_equal(mesh.size[SN_MESH_REPLICA], cases[k].replicas);
        assert_int_equal(mesh.size[SN_MESH_DP] * cases[k].replicas, 8);
        sn_options_close(o);
    }
}

/* ---- Files ---- */

enum { STEPS = 6, STOP = 3 };

static char folder[600], data[600];

static int start(void **state) {
    (void)state;
    training_open("zero_partition");
    const sn_model_config c = tiny_llama_of_blocks();
    snprintf(folder, sizeof folder, "%s", training_path("model"));
    snprintf(data, sizeof data, "%s", training_path("rows.jsonl"));
    tiny_write(&c, folder, training_path("model.gguf"), SN_Q8_0);
    training_rows(data, 24);
    return 0;
}

static void run(const char *options, const char *out, trained *t) { training_steadily(folder, options, data, training_path("%s", out), t); }

/* Stopped in one form, gone on with in another: as if it had been one rank all the time. */
static void goes_on(const char *more, const char *before, const char *after) {
    trained straight, first, second;
    char options[512];
    snprintf(options, sizeof options, "%s max_steps=%d per_device_train_batch_size=8", more, STEPS);
    run(options, "straight", &straight);
    assert_ok(sn_remove_tree(training_path("resumed")));
    snprintf(options, sizeof options, "%s max_steps=%d %s", more, STOP, before);
    run(options, "resumed", &first);
    snprintf(options, sizeof options, "%s max_steps=%d resume=on %s", more, STEPS, after);
    run(options, "resumed", &second);
    assert_int_equal(second.steps, STEPS);
    for (int k = 0; k < STEPS; k++)
        if (!(fabs(straight.loss[k] - second.loss[k]) <= 1e-5 * straight.loss[k]))
            fail_msg("%s, %s: step %d: %.9g, one rank %.9g", before, after, k + 1, second.loss[k], straight.loss[k]);
    training_near(training_path("straight/checkpoint-%d/state.safetensors", STEPS),
                  training_path("resumed/checkpoint-%d/state.safetensors", STEPS), 1e-5);
    assert_int_equal(training_warnings(), 0);
}

#define ALL(n, rows, stage) "thread_ranks=" #n " per_device_train_batch_size=" #rows " zero_stage=" #stage
#define NODE(n, rows, stage, nodes) ALL(n, rows, stage) " zero_partition=node nodes=" #nodes

static void checkpoints(void **state) {
    (void)state;
    training_warnings();
    goes_on("", ALL(4, 2, 3), NODE(4, 2, 3, 2));
    goes_on("", NODE(4, 2, 2, 2), ALL(2, 4, 3));
    goes_on("", NODE(8, 1, 3, 4), NODE(4, 2, 1, 2));
    goes_on("", NODE(4, 2, 3, 2) " gradient_sync=step", "per_device_train_batch_size=8");
    goes_on("", NODE(8, 2, 3, 2) " tp=2", NODE(8, 1, 3, 2));
    goes_on("", NODE(8, 1, 1, 2) " pp=2 gradient_accumulation_steps=2", NODE(8, 2, 3, 2) " cp=2");
    goes_on("lora=on lora_rank=64 lora_dropout=0.1", ALL(2, 4, 2), NODE(8, 1, 3, 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stages_agree),   cmocka_unit_test(one_sum_a_step),
                                       cmocka_unit_test(other_tiers),    cmocka_unit_test(other_words),
                                       cmocka_unit_test(products),       cmocka_unit_test(what_goes_where),
                                       cmocka_unit_test(classes),        cmocka_unit_test(a_large_cluster),
                                       cmocka_unit_test(is_offered),     cmocka_unit_test(shards_stay_inside),
                                       cmocka_unit_test(what_cannot_be), cmocka_unit_test(deepspeed),
                                       cmocka_unit_test(checkpoints)};
    return cmocka_run_group_tests(tests, start, training_close);
}
