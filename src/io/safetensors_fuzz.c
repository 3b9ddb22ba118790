/* libFuzzer target: any bytes as a safetensors file; also, the same bytes as config.json. */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "io/hf_config.h"
#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[64];
    sn_st st;
    sn_model_config c;
    sn_generation_config g;
    sn_str text = {0};
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (sn_hf_config_parse("fuzz", (const char *)data, size, &c) == SN_OK) {
        sn_hf_config_text(&c, &text);
        sn_str_free(&text);
        sn_model_config_free(&c);
    }
    sn_generation_config_parse("fuzz", (const char *)data, size, &g);
    if (ftruncate(fd, (off_t)size) || sn_file_write_at(fd, path, 0, data, size) != SN_OK) return 0;
    if (sn_st_open(path, &st) != SN_OK) return 0;
    for (size_t i = 0; i < st.tensor_count; i++) {
        char byte;
        if (st.tensors[i].bytes && sn_st_read(&st, &st.tensors[i], st.tensors[i].bytes - 1, &byte, 1) != SN_OK) __builtin_trap();
    }
    sn_st_close(&st);
    return 0;
}
