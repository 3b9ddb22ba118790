/* Processor features that choose a kernel. */
#ifndef SN_BASE_CPU_H
#define SN_BASE_CPU_H

#include <stdint.h>

#define SN_CPU_LIST(X)                          \
    X(AVX2, "avx2")     /* with FMA and F16C */ \
    X(AVX512, "avx512") /* F, BW, DQ, VL */     \
    X(AVX512_BF16, "avx512_bf16")               \
    X(AVX512_VNNI, "avx512_vnni")

enum {
#define X(name, text) SN_CPU_BIT_##name,
    SN_CPU_LIST(X)
#undef X
};
enum {
    SN_CPU_REFERENCE = 0,
#define X(name, text) SN_CPU_##name = 1 << SN_CPU_BIT_##name,
    SN_CPU_LIST(X)
#undef X
};

/* Bits of the features that this processor has and that the environment variable SNUG_CPU
 * (reference | avx2 | avx512 | native) allows. Read once. */
uint32_t sn_cpu_features(void);

/* "avx2 avx512 ..." for reports; "reference" when there are none. */
const char *sn_cpu_text(void);

#endif
