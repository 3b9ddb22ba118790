#include "support/tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "engine/export.h"
#include "engine/load.h"
#include "engine/turns.h"

sn_model_config tiny_llama(void) {
    sn_model_config c = {.vocab_size = TINY_VOCAB,
                         .hidden_size = 32,
                         .intermediate_size = 56,
                         .num_layers = 2,
                         .num_heads = 4,
                         .num_kv_heads = 2,
                         .head_dim = 8,
                         .max_position = 128,
                         .norm_eps = 1e-5,
                         .rope = {.theta = 10000},
                         .tie_word_embeddings = true};
    strcpy(c.architecture, "llama");
    return c;
}

sn_model_config tiny_llama_of_blocks(void) {
    sn_model_config c = tiny_llama();
    c.hidden_size = 96;
    c.num_heads = 6;
    c.num_kv_heads = 3;
    c.head_dim = 16;
    c.intermediate_size = 224;
    return c;
}

sn_model_config tiny_gpt2(void) {
    sn_model_config c = tiny_llama();
    strcpy(c.architecture, "gpt2");
    c.arch = SN_ARCH_GPT2;
    c.hidden_act = SN_ACT_GELU_TANH;
    c.num_kv_heads = 4;
    c.intermediate_size = 128;
    return c;
}

sn_options *tiny_recipe(const char *options) {
    char copy[512];
    sn_options *o;
    assert_ok(sn_recipe_new(&o));
    snprintf(copy, sizeof copy, "%s", options);
    for (char *save = NULL, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        assert_non_null(equals);
        *equals = 0;
        assert_ok(sn_options_set(o, word, equals + 1, SN_FROM_COMMAND_LINE, "test"));
    }
    return o;
}

static void open_run(tiny *t, const sn_model_config *config, const sn_parameters *parameters, const char *options, const char *device,
                     bool reuse) {
    *t = (tiny){.config = *config, .tokens = 48, .recipe = tiny_recipe(options)};
    int threads = (int)sn_options_int(t->recipe, "threads");
    assert_ok(sn_device_find(device, threads ? threads : 2, &t->device));
    t->cluster.addresses = t->device.shape.addresses;
    t->cluster.mesh = sn_mesh_alone();
    sn_training_shape shape = {.tokens = t->tokens, .evaluate = true};
    assert_ok(sn_job_for_training(config, parameters, &shape, t->recipe, &t->cluster, NULL, &t->job));
    sn_plan_request request = {.device = t->device.shape, .reuse = reuse};
    assert_ok(sn_plan_make(t->job, &request, &t->plan));
    assert_ok(sn_run_open(t->plan, &t->device, NULL, &t->run));
}

void tiny_open_model(tiny *t, sn_model *model, const char *options, const char *device) {
    sn_parameters parameters = sn_model_parameters(model);
    open_run(t, model->config, &parameters, options, device, true);
    assert_ok(sn_load_weights(t->run, t->job, 7));
}

static void initialise(tiny *t, const sn_persistent *e, sn_pid p, sn_pid key) {
    const sn_placed *at = &t->plan->persistent[p];
    void *data = sn_alloc((size_t)at->bytes);
    assert_non_null(data);
    sn_initialise(e, key, 7, 0, at->count, data);
    assert_ok(sn_run_write(t->run, p, 0, data, (size_t)at->bytes));
    sn_free(data);
}

void tiny_open(tiny *t, const sn_model_config *config, const char *options, const char *device, bool reuse) {
    open_run(t, config, NULL, options, device, reuse);
    if (!t->device.map) return;
    for (size_t p = 0; p < t->job->n_persistent; p++) {
        sn_persistent *e = &t->job->persistent[p];
        if (e->class_of == SN_CLASS_WEIGHTS && e->source.init == SN_INIT_ZERO) { /* LoRA's B and biases: nothing may hide behind zeros */
            e->source.init = SN_INIT_NORMAL;
            e->source.scale = 0.05f;
        }
        if (e->class_of == SN_CLASS_WEIGHTS && e->source.init == SN_INIT_NORMAL && e->source.scale < 0.05f) e->source.scale = 0.2f;
        if (e->class_of == SN_CLASS_WEIGHTS) initialise(t, e, (sn_pid)p, (sn_pid)p);
        if (e->class_of == SN_CLASS_OPTIMIZER && e->parent != SN_NONE && sn_job_turn(t->job, (sn_pid)p) < 0 && strstr(e->name, ".master")) {
            sn_persistent master = *e;
            master.source = t->job->persistent[e->parent].source;
            initialise(t, &master, (sn_pid)p, e->parent);
        }
    }
}

void tiny_close(tiny *t) {
    sn_run_close(t->run);
    sn_plan_free(t->plan);
    sn_job_free(t->job);
    sn_options_close(t->recipe);
}

static void fill_hyper(tiny *t, int index, int number) {
    const int step = (int)sn_turn_step(&t->job->turns, number);
    float *hyper = sn_run_io(t->run, index, "hyper", 0, NULL);
    if (hyper)
        memcpy(hyper,
               (float[]){1e-2f, (float)(1 - pow(0.9, step + 1)), (float)(1 - pow(0.999, step + 1)), 1, (float)(step + 1), 0, 0,
                         (float)sn_turn_ends(&t->job->turns, number)},
               32);
}

void tiny_fill(tiny *t, int index, int step, int slot) {
    const sn_io_slot *io;
    int32_t *ids = sn_run_io(t->run, index, "ids", slot, &io);
    int32_t *positions = sn_run_io(t->run, index, "positions", slot, &io), *starts = sn_run_io(t->run, index, "seq_start", slot, &io);
    int32_t *labels = sn_run_io(t->run, index, "labels", slot, &io);
    float *scale = sn_run_io(t->run, index, "scale", slot, &io);
    uint32_t *key = sn_run_io(t->run, index, "key", slot, &io);
    static const int lengths[] = {17, 1, 12, 18};
    int at = 0, counted = 0;
    for (int s = 0; s < 4; s++)
        for (int i = 0, start = at; i < lengths[s]; i++, at++) {
            sn_rng4 r = sn_philox(99, 0, (uint32_t)step, (uint32_t)at, 0, 0);
            ids[at] = (int32_t)(r.v[0] % TINY_VOCAB);
            if (positions) positions[at] = i;
            starts[at] = start;
            labels[at] = i + 1 == lengths[s] || r.v[2] % 4 == 0 ? -100 : (int32_t)(r.v[1] % TINY_VOCAB);
            counted += labels[at] >= 0;
        }
    int64_t steps = sn_options_int(t->recipe, "gradient_accumulation_steps");
    scale[0] = 1.0f / (float)(counted * steps);
    if (key) memcpy(key, (uint32_t[]){5, 6, (uint32_t)step, 0}, 16);
    fill_hyper(t, index, 0);
}

double tiny_step(tiny *t, int step, float *norm) {
    int64_t steps = sn_options_int(t->recipe, "gradient_accumulation_steps");
    sn_pid loss = sn_job_find(t->job, "loss");
    memset(sn_run_persistent(t->run, loss), 0, 16);
    assert_ok(sn_take_turn(t->run, t->job, step));
    int first = sn_job_role_index(t->job, SN_ROLE_TRAIN), update = sn_job_role_index(t->job, SN_ROLE_UPDATE);
    for (int64_t m = 0; m < steps; m++) {
        int program = m ? sn_job_role_index(t->job, SN_ROLE_TRAIN_NEXT) : first;
        tiny_fill(t, program, (t->one_batch ? 0 : step * 10) + (int)m, (int)m % 2);
        fill_hyper(t, program, step);
        assert_ok(sn_run_program(t->run, program, (int)m % 2));
    }
    if (update >= 0) {
        fill_hyper(t, update, step);
        assert_ok(sn_run_program(t->run, update, 0));
    }
    const float *clip = sn_run_io(t->run, update < 0 ? first : update, "clip", 0, NULL);
    if (norm) *norm = clip[2];
    const double *sum = sn_run_persistent(t->run, loss);
    return sum[0] / sum[1];
}

void tiny_digest(tiny *t, char hex[65]) {
    sn_sha256 h;
    sn_sha256_start(&h);
    for (size_t p = 0; p < t->job->n_persistent; p++) {
        size_t bytes = (size_t)t->plan->persistent[p].bytes;
        void *data = bytes ? sn_alloc(bytes) : NULL;
        if (!data) continue;
        assert_ok(sn_run_read(t->run, (sn_pid)p, 0, data, bytes));
        sn_sha256_add(&h, data, bytes);
        sn_free(data);
    }
    sn_sha256_end(&h, hex);
}

void tiny_write(const sn_model_config *config, const char *folder, const char *gguf, int form) {
    tiny t;
    sn_model shape = {.path = "tiny", .config = &t.config}, model;
    tiny_open(&t, config, "seed=1", "cpu", true);
    sn_session s = {.model = &shape, .device = t.device, .cluster = t.cluster, .job = t.job, .plan = t.plan, .run = t.run};
    assert_ok(sn_export_hf(&s, folder, SN_F32, NULL));
    tiny_close(&t);
    assert_ok(sn_model_open(folder, &model));
    assert_ok(sn_merge_adapter(&model, NULL, gguf, true, form, 1, NULL));
    sn_model_close(&model);
}
