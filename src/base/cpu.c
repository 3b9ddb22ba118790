#include "base/cpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t features;
static char text[128];

static void detect(void) {
    uint32_t f = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) f |= SN_CPU_AVX2;
    if ((f & SN_CPU_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        f |= SN_CPU_AVX512;
    if ((f & SN_CPU_AVX512) && __builtin_cpu_supports("avx512bf16")) f |= SN_CPU_AVX512_BF16;
    if ((f & SN_CPU_AVX512) && __builtin_cpu_supports("avx512vnni")) f |= SN_CPU_AVX512_VNNI;
#endif
    const char *cap = getenv("SNUG_CPU");
    if (cap && !strcmp(cap, "reference")) f = 0;
    if (cap && !strcmp(cap, "avx2")) f &= SN_CPU_AVX2;
    if (cap && !strcmp(cap, "avx512")) f &= SN_CPU_AVX2 | SN_CPU_AVX512;
    features = f;
    static const char *const names[] = {
#define X(name, text) text,
        SN_CPU_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (f & (1u << i)) {
            if (text[0]) strcat(text, " ");
            strcat(text, names[i]);
        }
    if (!text[0]) strcpy(text, "reference");
}

uint32_t sn_cpu_features(void) {
    pthread_once(&once, detect);
    return features;
}

const char *sn_cpu_text(void) {
    pthread_once(&once, detect);
    return text;
}
