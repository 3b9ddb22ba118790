#include "tensor/dtype.h"

#include <string.h>

#include "base/mem.h"

const sn_dtype_info sn_dtypes[SN_DTYPE_COUNT] = {
#define X(id, name, block, bytes, gguf, st) {name, block, bytes, gguf, st},
    SN_DTYPE_LIST(X)
#undef X
};

const char *sn_dtype_name(sn_dtype t) { return (unsigned)t < SN_DTYPE_COUNT ? sn_dtypes[t].name : "?"; }

bool sn_dtype_by_name(const char *name, sn_dtype *out) {
    for (int i = 0; i < SN_DTYPE_COUNT; i++)
        if (!strcmp(sn_dtypes[i].name, name)) return *out = (sn_dtype)i, true;
    return false;
}

bool sn_dtype_by_gguf(uint32_t type, sn_dtype *out) {
    for (int i = 0; i < SN_DTYPE_COUNT; i++)
        if (sn_dtypes[i].gguf >= 0 && (uint32_t)sn_dtypes[i].gguf == type) return *out = (sn_dtype)i, true;
    return false;
}

bool sn_dtype_by_safetensors(const char *name, sn_dtype *out) {
    for (int i = 0; i < SN_DTYPE_COUNT; i++)
        if (sn_dtypes[i].st && !strcmp(sn_dtypes[i].st, name)) return *out = (sn_dtype)i, true;
    return false;
}

bool sn_dtype_row_bytes(sn_dtype t, int64_t n, size_t *out) {
    if ((unsigned)t >= SN_DTYPE_COUNT || n < 0 || n % sn_dtypes[t].block) return false;
    return sn_mul((size_t)(n / sn_dtypes[t].block), (size_t)sn_dtypes[t].bytes, out);
}
