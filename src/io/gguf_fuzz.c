/* libFuzzer target: any bytes as a GGUF file; every array is read, the config too. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "io/gguf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[64];
    sn_gguf g;
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, (off_t)size) || sn_file_write_at(fd, path, 0, data, size) != SN_OK) return 0;
    if (sn_gguf_open(path, &g) != SN_OK) return 0;
    for (size_t i = 0; i < g.kv_count; i++) {
        const char *key = g.kv[i].key, *text;
        sn_gguf_string *strings;
        int32_t *ints;
        float *floats;
        size_t n;
        int64_t value;
        double real;
        sn_gguf_get_i64(&g, key, &value);
        sn_gguf_get_f64(&g, key, &real);
        sn_gguf_get_string(&g, key, &text);
        if (sn_gguf_get_strings(&g, key, &strings, &n) == SN_OK) sn_free(strings);
        if (sn_gguf_get_i32s(&g, key, &ints, &n) == SN_OK) sn_free(ints);
        if (sn_gguf_get_f32s(&g, key, &floats, &n) == SN_OK) sn_free(floats);
    }
    sn_model_config c;
    if (sn_gguf_config_read(&g, &c) == SN_OK) sn_model_config_free(&c);
    sn_gguf_close(&g);
    return 0;
}
