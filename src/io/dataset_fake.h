/* What the tests of training data share: a byte tokenizer, files in a folder of their own, a batch's arrays. */
#ifndef SN_IO_DATASET_FAKE_H
#define SN_IO_DATASET_FAKE_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "io/dataset.h"
#include "support/support.h"

/* A tokenizer whose ids are bytes, with four control tokens. */
enum { IM_START = 256, IM_END, EOS, BOS };

static inline sn_status encode_bytes(const sn_encoder *e, const char *text, size_t n, unsigned flags, sn_ids *out) {
    static const char *const specials[] = {"<|im_start|>", "<|im_end|>", "</s>", "<s>"};
    (void)e;
    for (size_t i = 0; i < n;) {
        int32_t id = (unsigned char)text[i];
        size_t used = 1;
        for (int k = 0; k < 4 && (flags & SN_ENCODE_SPECIAL); k++) {
            size_t m = strlen(specials[k]);
            if (n - i >= m && !memcmp(text + i, specials[k], m)) id = IM_START + k, used = m;
        }
        SN_TRY(sn_ids_push(out, id));
        i += used;
    }
    return SN_OK;
}
static inline bool special_bytes(const sn_encoder *e, int32_t id) { return (void)e, id >= 256; }
static const sn_encoder bytes = {.encode = encode_bytes, .is_special = special_bytes, .bos = -1, .eos = EOS, .fingerprint = 1};
__attribute__((unused)) static const sn_encoder bytes_bos = {
    .encode = encode_bytes, .is_special = special_bytes, .bos = BOS, .eos = EOS, .fingerprint = 2};

static char folder[600];

static inline const char *write_file(const char *name, const char *text, size_t n) {
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_ok(sn_file_write_at(fd, path, 0, text, n));
    close(fd);
    return path;
}

static inline sn_status open_text(const char *name, const char *text, sn_dataset_options o, sn_dataset **d) {
    o.path = write_file(name, text, strlen(text));
    if (!o.encoder) o.encoder = &bytes;
    return sn_dataset_open(&o, d);
}

static inline const char *many_rows(const char *name, int rows) {
    sn_str text = {0};
    for (int i = 0; i < rows; i++) {
        sn_str_printf(&text, "{\"input_ids\": [%d", i);
        for (int k = 0; k < 1 + i * 7 % 29; k++) sn_str_printf(&text, ", %d", i + k);
        sn_str_add(&text, "]}\n");
    }
    const char *path = write_file(name, text.data, text.size);
    sn_str_free(&text);
    return path;
}

typedef struct arrays {
    sn_batch b;
    int32_t memory[4][4096];
} arrays;
static inline sn_batch *batch(arrays *a) {
    a->b = (sn_batch){.ids = a->memory[0], .positions = a->memory[1], .seq_start = a->memory[2], .labels = a->memory[3]};
    return &a->b;
}

static inline void quiet(void *context, sn_log_level level, const char *text) { (void)context, (void)level, (void)text; }

static inline int run_in_folder(const char *name, const struct CMUnitTest *tests, size_t count) {
    sn_log_to(quiet, NULL);
    snprintf(folder, sizeof folder, "%s", test_dir(name));
    int failed = _cmocka_run_group_tests(name, tests, count, NULL, NULL);
    sn_remove_tree(folder);
    return failed;
}

#endif
