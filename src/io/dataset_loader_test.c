/* Batches: order, padding, packing, resume, the evaluation split, memory. */
#include <sys/resource.h>

#include "io/dataset_fake.h"

static void shuffle_is_a_bijection(void **state) {
    (void)state;
    static uint8_t seen[5000];
    for (uint64_t n = 1; n <= 5000; n = n < 40 ? n + 1 : n * 3) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = sn_shuffle(n, 7, 1, i);
            assert_true(p < n && !seen[p]);
            seen[p] = 1;
        }
    }
    int same_epoch = 0, fixed = 0, sum = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        same_epoch += sn_shuffle(1000, 7, 1, i) == sn_shuffle(1000, 7, 2, i);
        fixed += sn_shuffle(1000, 7, 1, i) == i;
        sum += i < 500 && sn_shuffle(1000, 7, 1, i) < 500;
    }
    assert_true(same_epoch < 10 && fixed < 10 && sum > 200 && sum < 300);
    assert_true(sn_shuffle(UINT64_C(1) << 40, 1, 0, 12345) < UINT64_C(1) << 40);
}

static void padding_is_by_position(void **state) { /* the pad id and a real EOS look alike */
    (void)state;
    static arrays a;
    sn_dataset *d;
    sn_loader *l;
    sn_data_cursor at = {0};
    sn_step step;
    assert_ok(
        open_text("pad.jsonl", "{\"input_ids\": [7, 0, 8, 0]}\n{\"input_ids\": [9, 0]}\n", (sn_dataset_options){.cutoff_len = 6}, &d));
    assert_ok(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 2}, &l));
    assert_ok(sn_loader_step(l, &at, &step));
    assert_ok(sn_loader_fill(l, 0, 0, batch(&a)));
    assert_int_equal(step.label_tokens, 4);
    assert_int_equal(a.b.label_tokens, 4);
    assert_int_equal(a.b.tokens, 6);
    assert_memory_equal(a.b.ids, ((int32_t[]){7, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0}), 48);
    assert_memory_equal(a.b.labels, ((int32_t[]){0, 8, 0, -100, -100, -100, 0, -100, -100, -100, -100, -100}), 48);
    assert_memory_equal(a.b.positions, ((int32_t[]){0, 1, 2, 3, 0, 0, 0, 1, 0, 0, 0, 0}), 48);
    assert_memory_equal(a.b.seq_start, ((int32_t[]){0, 0, 0, 0, 4, 5, 6, 6, 8, 9, 10, 11}), 48);
    sn_loader_close(l);
    sn_dataset_close(d);
}

static void packed_samples_stay_apart(void **state) {
    (void)state;
    static arrays a;
    sn_dataset *d;
    sn_loader *l;
    sn_data_cursor at = {0};
    sn_step step;
    assert_ok(open_text(
        "pack.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5, 6, 7]}\n{\"input_ids\": [8, 9]}\n{\"input_ids\": [10, 11, 12]}\n",
        (sn_dataset_options){.cutoff_len = 6}, &d));
    assert_ok(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 2, .packing = true}, &l));
    assert_ok(sn_loader_step(l, &at, &step));
    assert_ok(sn_loader_fill(l, 0, 0, batch(&a)));
    assert_memory_equal(a.b.ids, ((int32_t[]){1, 2, 3, 8, 9, 0, 4, 5, 6, 7, 0, 0}), 48);
    assert_memory_equal(a.b.labels, ((int32_t[]){2, 3, -100, 9, -100, -100, 5, 6, 7, -100, -100, -100}), 48);
    assert_memory_equal(a.b.positions, ((int32_t[]){0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 0, 0}), 48);
    assert_memory_equal(a.b.seq_start, ((int32_t[]){0, 0, 0, 3, 3, 5, 6, 6, 6, 6, 10, 11}), 48);
    assert_int_equal(step.samples, 3);
    assert_int_equal(step.label_tokens, 6);
    assert_false(step.ends_epoch);
    assert_int_equal(at.position, 3); /* the sample without room begins the next step */
    assert_ok(sn_loader_step(l, &at, &step));
    assert_true(step.ends_epoch && step.samples == 1);
    uint64_t steps;
    assert_ok(sn_loader_steps(l, 0, &steps));
    assert_int_equal(steps, 2);
    sn_loader_close(l);
    sn_dataset_close(d);
}

static void a_small_file_makes_one_small_step(void **state) {
    (void)state;
    static arrays a;
    sn_dataset *d;
    sn_loader *l;
    sn_data_cursor at = {0};
    sn_step step;
    uint64_t steps;
    assert_ok(open_text("three.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5]}\n{\"input_ids\": [6, 7]}\n",
                        (sn_dataset_options){.cutoff_len = 4}, &d));
    assert_ok(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 2, .accumulation = 2, .ranks = 2}, &l));
    assert_ok(sn_loader_steps(l, 0, &steps));
    assert_int_equal(steps, 1);
    assert_ok(sn_loader_step(l, &at, &step));
    assert_int_equal(step.label_tokens, 4);
    assert_int_equal(step.samples, 3);
    assert_true(step.ends_epoch);
    assert_int_equal(at.epoch, 1);
    static const int samples[2][2] = {{2, 1}, {0, 0}}; /* row 2 of the step belongs to rank 1's part of the first micro-batch */
    for (int m = 0; m < 2; m++) {
        for (int r = 0; r < 2; r++) {
            assert_ok(sn_loader_fill(l, m, r, batch(&a)));
            assert_int_equal(a.b.samples, samples[m][r]);
            if (!samples[m][r]) assert_int_equal(a.b.label_tokens, 0);
        }
    }
    assert_int_equal(sn_loader_fill(l, 2, 0, batch(&a)), SN_ERR_USAGE);
    sn_loader_close(l);
    sn_dataset_close(d);
}

static uint32_t hash_step(sn_loader *l, int accumulation, int ranks, int64_t tokens, int64_t *labels) {
    static arrays a;
    uint32_t crc = 0;
    *labels = 0;
    for (int m = 0; m < accumulation; m++) {
        for (int r = 0; r < ranks; r++) {
            assert_ok(sn_loader_fill(l, m, r, batch(&a)));
            *labels += a.b.label_tokens;
            for (int k = 0; k < 4; k++) {
                for (int64_t i = 0; i < tokens; i++) crc = crc * 16777619 ^ (uint32_t)a.memory[k][i];
            }
        }
    }
    return crc;
}

static void resume_is_exact(void **state) {
    (void)state;
    enum { STEPS = 40, ACCUMULATION = 2, RANKS = 2, ROWS = 2, LENGTH = 32 };
    sn_dataset *d;
    assert_ok(sn_dataset_open(&(sn_dataset_options){.path = many_rows("resume.jsonl", 101), .cutoff_len = LENGTH, .encoder = &bytes}, &d));
    for (int packing = 0; packing < 2; packing++) {
        sn_loader_options o = {
            .dataset = d, .micro_rows = ROWS, .accumulation = ACCUMULATION, .ranks = RANKS, .packing = packing, .shuffle = true, .seed = 5};
        sn_loader *l;
        uint32_t straight[STEPS];
        sn_data_cursor at = {0}, before[STEPS], sought;
        sn_step step;
        int64_t labels, samples = 0;
        assert_ok(sn_loader_open(&o, &l));
        for (int k = 0; k < STEPS; k++) {
            before[k] = at;
            assert_ok(sn_loader_step(l, &at, &step));
            if (step.epoch == 0) samples += step.samples;
            straight[k] = hash_step(l, ACCUMULATION, RANKS, ROWS * LENGTH, &labels);
            assert_int_equal(labels, step.label_tokens);
        }
        assert_int_equal(samples, 101); /* each row once an epoch */
        assert_true(at.epoch >= 2);
        sn_loader_close(l);
        for (int k = 0; k < STEPS; k++) {
            assert_ok(sn_loader_open(&o, &l));
            assert_ok(sn_loader_seek(l, (uint64_t)k, &sought));
            assert_memory_equal(&sought, &before[k], sizeof sought);
            at = before[k];
            for (int j = k; j < STEPS && j < k + 3; j++) {
                assert_ok(sn_loader_step(l, &at, &step));
                assert_int_equal(hash_step(l, ACCUMULATION, RANKS, ROWS * LENGTH, &labels), straight[j]);
            }
            sn_loader_close(l);
        }
    }
    sn_dataset_close(d);
}

static void evaluation_split(void **state) {
    (void)state;
    sn_dataset *d;
    int seen[101] = {0};
    assert_ok(sn_dataset_open(&(sn_dataset_options){.path = many_rows("split.jsonl", 101), .cutoff_len = 32, .encoder = &bytes}, &d));
    for (int part = SN_DATA_TRAIN; part <= SN_DATA_EVAL; part++) {
        static arrays a;
        sn_loader *l;
        sn_data_cursor at = {0};
        sn_step step;
        assert_ok(sn_loader_open(
            &(sn_loader_options){
                .dataset = d, .micro_rows = 1, .shuffle = part == SN_DATA_TRAIN, .part = (sn_data_part)part, .eval_fraction = 0.2},
            &l));
        assert_int_equal(sn_loader_rows(l), part == SN_DATA_TRAIN ? 80 : 21);
        while (at.epoch == 0) {
            assert_ok(sn_loader_step(l, &at, &step));
            assert_ok(sn_loader_fill(l, 0, 0, batch(&a)));
            seen[a.b.ids[0]] += part;
        }
        sn_loader_close(l);
    }
    int held = 0, early = 0;
    for (int i = 0; i < 101; i++) {
        assert_true(seen[i] == SN_DATA_TRAIN || seen[i] == SN_DATA_EVAL); /* each row in one part, once */
        held += seen[i] == SN_DATA_EVAL;
        early += i < 50 && seen[i] == SN_DATA_EVAL;
    }
    assert_int_equal(held, 21);
    assert_true(early > 3 && early < 18);
    sn_loader *l;
    assert_int_equal(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 1, .part = SN_DATA_EVAL, .eval_fraction = 1.5}, &l),
                     SN_ERR_USAGE);
    assert_int_equal(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 1, .part = SN_DATA_EVAL, .eval_fraction = 0.999}, &l),
                     SN_ERR_DATA);
    assert_int_equal(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = INT64_MAX / 2}, &l), SN_ERR_USAGE);
    sn_dataset_close(d);
}

static long peak_kib(void) { /* VmHWM of this process */
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void memory_does_not_grow_with_the_file(void **state) {
    (void)state;
    enum { ROWS = 100000 };
    char path[700];
    snprintf(path, sizeof path, "%s/large.jsonl", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < ROWS; i++) fprintf(f, "{\"text\": \"row %d of many, with some words to fill it: %0*d\"}\n", i, i % 300, i);
    fclose(f);
    long before = peak_kib();
    sn_dataset *d;
    sn_loader *l;
    static arrays a;
    sn_data_cursor at = {0};
    sn_step step;
    assert_ok(sn_dataset_open(&(sn_dataset_options){.path = path, .cutoff_len = 512, .encoder = &bytes}, &d));
    assert_int_equal(sn_dataset_get_info(d)->rows, ROWS);
    assert_ok(sn_loader_open(&(sn_loader_options){.dataset = d, .micro_rows = 4, .shuffle = true, .packing = true, .seed = 1}, &l));
    for (int i = 0; i < 2000; i++) {
        assert_ok(sn_loader_step(l, &at, &step));
        assert_ok(sn_loader_fill(l, 0, 0, batch(&a)));
    }
    long grown = peak_kib() - before; /* the file has 23 MB, the index 3.2 MB */
    print_message("peak grew by %ld KiB\n", grown);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(grown < 2600);
#endif
    sn_loader_close(l);
    sn_dataset_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_does_not_grow_with_the_file),
        cmocka_unit_test(shuffle_is_a_bijection),
        cmocka_unit_test(padding_is_by_position),
        cmocka_unit_test(packed_samples_stay_apart),
        cmocka_unit_test(a_small_file_makes_one_small_step),
        cmocka_unit_test(resume_is_exact),
        cmocka_unit_test(evaluation_split),
    };
    return run_in_folder("loader", tests, sizeof tests / sizeof *tests);
}
