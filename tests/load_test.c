/* The program "load": every weight and master gets exactly what reading its file whole and converting it gives, on both
 * devices, however large the tiles; the program is ordered, tight and the same in any order of its queues; a file that
 * changes under it is an error that names file, offset and tensor, and nothing hangs. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/load.h"
#include "support/program_check.h"
#include "support/tiny.h"
#include "tensor/convert.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/model_files/"

static const char *root;

static char *whole_tensor(const sn_model_files *files, const char *name, const sn_model_tensor **t) {
    *t = sn_model_files_find(files, name);
    assert_non_null(*t);
    char *raw = sn_alloc((size_t)(*t)->bytes);
    assert_ok(sn_model_files_read(files, *t, 0, (*t)->shape.d[0], raw, (size_t)(*t)->bytes));
    return raw;
}

/* Every value that has a file holds the file's values in its form. Returns how many were compared. */
static int compare(const tiny *t, const sn_model *model) {
    int compared = 0;
    for (size_t p = 0; p < t->job->n_persistent; p++) {
        const sn_persistent *e = &t->job->persistent[p];
        if (e->source.file < 0) continue;
        const sn_model_tensor *tensor;
        char *raw = whole_tensor(&model->files, e->parent == SN_NONE ? e->name : t->job->persistent[e->parent].name, &tensor), *want = raw;
        size_t bytes;
        assert_true(sn_shape_bytes(&e->shape, e->rest.form, &bytes));
        if (tensor->dtype != e->rest.form) {
            int64_t n;
            assert_true(sn_shape_elements(&e->shape, &n));
            float *wide = sn_alloc((size_t)n * sizeof *wide);
            want = sn_alloc(bytes);
            sn_to_f32(tensor->dtype, raw, n, wide);
            assert_ok(sn_from_f32(e->rest.form, wide, n, want));
            sn_free(wide);
        }
        if (memcmp(sn_run_persistent(t->run, (sn_pid)p), want, bytes)) fail_msg("%s of %s differs", e->name, model->path);
        if (want != raw) sn_free(want);
        sn_free(raw);
        compared++;
    }
    return compared;
}

/* A model of which the embedding takes several tiles and no whole number of them, as a GGUF. */
static const char *large_model(int family, int form) {
    static char folder[600], gguf[600];
    sn_model_config config = family ? tiny_gpt2() : tiny_llama();
    config.vocab_size = 61001;
    config.intermediate_size = 64;
    snprintf(folder, sizeof folder, "%s/hf", root);
    snprintf(gguf, sizeof gguf, "%s/large.gguf", root);
    tiny_write(&config, folder, gguf, form);
    return gguf;
}

static const char *const recipes[] = {"seed=1", "lora=on lora_rank=2", "qlora=on lora_rank=2", "precision=bf16",
                                      "precision=fp16 qlora=on lora_rank=2"};
static const char *const devices[] = {"cpu", "cpu-split"};

static void check_model(const char *path) {
    sn_model model;
    assert_ok(sn_model_open(path, &model));
    for (size_t r = 0; r < sizeof recipes / sizeof recipes[0]; r++)
        for (int d = 0; d < 2; d++) {
            tiny t;
            tiny_open_model(&t, &model, recipes[r], devices[d]);
            int copies = model.files.lm_head_beside_tied; /* a tied head that is there a second time is not loaded */
            assert_true(compare(&t, &model) >= (int)model.files.tensor_count - copies);
            int load = sn_job_role_index(t.job, SN_ROLE_LOAD);
            check_program_is_tight(t.plan, load);
            check_program_is_ordered(&t.plan->programs[load].program);
            tiny_close(&t);
        }
    sn_model_close(&model);
}

static void files_of_every_layout(void **state) { /* shards; permuted rows; transposed matrices, in the file or not */
    (void)state;
    static const char *const paths[] = {GOLDEN "llama", GOLDEN "llama.gguf", GOLDEN "gpt2", GOLDEN "gpt2.gguf"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) check_model(paths[i]);
}

static void many_tiles(void **state) {
    (void)state;
    check_model(large_model(0, SN_Q8_0));
    check_model(large_model(1, SN_F16));
}

/* Tiles bound what loading takes: two of them, whatever the size of the weights. */
static void staging_is_small(void **state) {
    (void)state;
    sn_model model;
    tiny t;
    assert_ok(sn_model_open(large_model(0, SN_F16), &model));
    for (int d = 0; d < 2; d++) {
        tiny_open_model(&t, &model, "seed=1", devices[d]);
        const sn_planned *load = &t.plan->programs[sn_job_role_index(t.job, SN_ROLE_LOAD)];
        for (int tier = 0; tier < SN_TIER_COUNT; tier++) assert_true(load->program.transient_bytes[tier] <= 4 << 20);
        assert_true(load->program.transient_bytes[d ? SN_TIER_HOST : SN_TIER_DEVICE] > 2 << 20);
        int reads = 0, queues[SN_QUEUE_COUNT] = {0};
        for (uint32_t k = 0; k < load->program.count; k++) {
            reads += !strcmp(load->program.instrs[k].op, "read");
            queues[load->program.instrs[k].queue]++;
        }
        assert_true(reads > (int)model.files.tensor_count);
        assert_int_equal(queues[SN_QUEUE_IO], reads);
        assert_int_equal(queues[SN_QUEUE_COPY] > 0, d);
        tiny_close(&t);
    }
    tiny_open_model(&t, &model, "precision=fp16 lora=on", "cpu"); /* forms agree: no staging at all */
    int load = sn_job_role_index(t.job, SN_ROLE_LOAD);
    for (size_t i = 0; i < t.plan->programs[load].n_lives; i++)
        assert_true(t.plan->programs[load].lives[i].class_of == SN_CLASS_WORKSPACE || t.plan->programs[load].lives[i].bytes < 4096);
    tiny_close(&t);
    sn_model_close(&model);
}

static void clear(tiny *t) {
    for (size_t p = 0; p < t->job->n_persistent; p++)
        if (t->job->persistent[p].source.file >= 0) memset(sn_run_persistent(t->run, (sn_pid)p), 0xa5, t->plan->persistent[p].bytes);
}

static void any_order_of_queues(void **state) {
    (void)state;
    sn_model model;
    assert_ok(sn_model_open(large_model(0, SN_Q8_0), &model));
    for (int d = 0; d < 2; d++) {
        tiny t;
        tiny_open_model(&t, &model, "precision=bf16", devices[d]);
        for (uint32_t seed = 0; seed < 20; seed++) {
            clear(&t);
            run_in_random_order(t.run, t.plan, sn_job_role_index(t.job, SN_ROLE_LOAD), 0, seed);
            compare(&t, &model);
        }
        tiny_close(&t);
    }
    sn_model_close(&model);
}

static void shapes_have_no_load(void **state) {
    (void)state;
    sn_model_config config = tiny_llama();
    tiny t;
    tiny_open(&t, &config, "seed=1", "cpu", true);
    assert_int_equal(sn_job_role_index(t.job, SN_ROLE_LOAD), -1);
    assert_int_equal(t.plan->n_files, 0);
    tiny_close(&t);
}

static void a_file_that_shrinks(void **state) {
    (void)state;
    const char *path = large_model(0, SN_Q8_0);
    for (int d = 0; d < 2; d++) {
        sn_model model;
        tiny t;
        char *data;
        size_t size;
        assert_ok(sn_model_open(path, &model));
        const sn_model_tensor *last = sn_model_files_find(&model.files, "model.layers.1.mlp.up_proj.weight");
        assert_ok(sn_file_read_all(path, 1 << 28, &data, &size));
        tiny_open_model(&t, &model, "seed=1", devices[d]);
        int load = sn_job_role_index(t.job, SN_ROLE_LOAD);
        assert_int_equal(truncate(path, (off_t)(last->offset + 5)), 0);
        for (int again = 0; again < 2; again++) {
            char offset[32];
            assert_int_equal(sn_run_program(t.run, load, 0), SN_ERR_FORMAT);
            snprintf(offset, sizeof offset, "at %llu", (unsigned long long)last->offset + 5);
            if (!strstr(sn_error_text(), path) || !strstr(sn_error_text(), ": model.") || !strstr(sn_error_text(), "ends early"))
                fail_msg("'%s' does not name the file and the tensor", sn_error_text());
        }
        tiny_fill(&t, sn_job_role_index(t.job, SN_ROLE_TRAIN), 0, 0); /* other programs run as before */
        assert_ok(sn_run_program(t.run, sn_job_role_index(t.job, SN_ROLE_TRAIN), 0));
        int fd_size = truncate(path, 0);
        assert_int_equal(fd_size, 0);
        assert_int_equal(sn_load_weights(t.run, t.job, 7), SN_ERR_FORMAT);
        assert_non_null(strstr(sn_error_text(), "program load: model.embed_tokens.weight: "));
        FILE *f = fopen(path, "r+b"); /* the same file, whole again: the run goes on */
        assert_non_null(f);
        assert_int_equal(fwrite(data, 1, size, f), size);
        fclose(f);
        assert_ok(sn_load_weights(t.run, t.job, 7));
        compare(&t, &model);
        tiny_close(&t);
        sn_model_close(&model);
        sn_free(data);
    }
}

static void a_file_that_is_gone(void **state) {
    (void)state;
    const char *path = large_model(0, SN_Q8_0);
    sn_model model;
    tiny t;
    sn_run *run;
    assert_ok(sn_model_open(path, &model));
    tiny_open_model(&t, &model, "seed=1", "cpu");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(sn_run_open(t.plan, &t.device, NULL, &run), SN_ERR_FILE);
    assert_null(run);
    assert_non_null(strstr(sn_error_text(), path));
    tiny_close(&t);
    sn_model_close(&model);
}

static int start(void **state) {
    (void)state;
    root = test_dir("load");
    return 0;
}

static int stop(void **state) {
    (void)state;
    return sn_remove_tree(root) == SN_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_every_layout), cmocka_unit_test(many_tiles),          cmocka_unit_test(staging_is_small),
        cmocka_unit_test(any_order_of_queues),   cmocka_unit_test(shapes_have_no_load), cmocka_unit_test(a_file_that_shrinks),
        cmocka_unit_test(a_file_that_is_gone),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
