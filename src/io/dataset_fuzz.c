/* libFuzzer target: any bytes as a JSON-lines data file, through index, batches and labels. */
#include "io/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTOFF = 16, ROWS = 2 };

/* One id a byte. */
static sn_status encode(const sn_encoder *e, const char *text, size_t n, unsigned flags, sn_ids *out) {
    (void)e, (void)flags;
    for (size_t i = 0; i < n; i++) SN_TRY(sn_ids_push(out, (uint8_t)text[i]));
    return SN_OK;
}
static bool is_special(const sn_encoder *e, int32_t id) {
    (void)e;
    return id == 0;
}

static void check_batch(const sn_batch *b) {
    int64_t labels = 0;
    for (int64_t t = 0; t < ROWS * CUTOFF; t++) {
        labels += b->labels[t] != SN_IGNORE_LABEL;
        if (b->seq_start[t] < 0 || b->seq_start[t] > t || b->positions[t] < 0 || b->positions[t] >= CUTOFF) abort();
    }
    if (labels != b->label_tokens) abort();
}

static void read_steps(const sn_dataset *d, bool packing) {
    int32_t ids[ROWS * CUTOFF], positions[ROWS * CUTOFF], starts[ROWS * CUTOFF], labels[ROWS * CUTOFF];
    sn_loader_options o = {.dataset = d, .micro_rows = ROWS, .packing = packing, .shuffle = true, .seed = 1};
    sn_loader *l;
    sn_data_cursor at = {0};
    sn_step step;
    if (sn_loader_open(&o, &l) != SN_OK) return;
    for (int i = 0; i < 4 && sn_loader_step(l, &at, &step) == SN_OK; i++) {
        sn_batch b = {.ids = ids, .positions = positions, .seq_start = starts, .labels = labels};
        if (sn_loader_fill(l, 0, 0, &b) == SN_OK) check_batch(&b);
    }
    sn_loader_close(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64], index[80];
    sn_encoder encoder = {.encode = encode, .is_special = is_special, .bos = -1, .eos = 0, .fingerprint = 1};
    snprintf(path, sizeof path, "/tmp/snug-dataset-fuzz-%ld.jsonl", (long)getpid());
    snprintf(index, sizeof index, "%s.snug-idx", path);
    FILE *f = fopen(path, "wb");
    if (!f) return 0;
    bool written = fwrite(data, 1, size, f) == size;
    fclose(f);
    if (!written) return 0;
    sn_dataset_options o = {.path = path, .cutoff_len = CUTOFF, .encoder = &encoder};
    sn_dataset *d;
    if (sn_dataset_open(&o, &d) == SN_OK) {
        read_steps(d, false);
        read_steps(d, true);
        sn_dataset_close(d);
    }
    unlink(path);
    unlink(index);
    return 0;
}
