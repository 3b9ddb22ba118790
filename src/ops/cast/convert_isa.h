/* Fast conversions for one processor family, with the bits of sn_to_f32 and sn_from_f32. */
#ifndef SN_OPS_CAST_CONVERT_ISA_H
#define SN_OPS_CAST_CONVERT_ISA_H

#include "tensor/convert.h"

/* A NULL entry: no fast code, the scalar conversion serves. */
typedef struct sn_convert_isa {
    void (*decode[SN_DTYPE_COUNT])(const void *row, int64_t n, float *out);
    void (*encode[SN_DTYPE_COUNT])(const float *row, int64_t n, void *out);
} sn_convert_isa;

extern const sn_convert_isa sn_convert_cpu, sn_convert_avx2, sn_convert_avx512;

static inline void sn_decode(const sn_convert_isa *isa, sn_dtype from, const void *row, int64_t n, float *out) {
    if (isa->decode[from]) isa->decode[from](row, n, out);
    else sn_to_f32(from, row, n, out);
}

/* `to` is a form that has an encoder. */
static inline void sn_encode(const sn_convert_isa *isa, sn_dtype to, const float *row, int64_t n, void *out) {
    if (isa->encode[to]) isa->encode[to](row, n, out);
    else (void)sn_from_f32(to, row, n, out);
}

#endif
