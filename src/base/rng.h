/* Counter-based random numbers: Philox4x32-10.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
 * A number depends only on (key, counter), so splitting, re-ordering or repeating work never changes it. */
#ifndef SN_BASE_RNG_H
#define SN_BASE_RNG_H

#include <stdint.h>

typedef struct sn_rng4 {
    uint32_t v[4];
} sn_rng4;

/* Four 32-bit random words for a 64-bit key and a 128-bit counter. */
static inline sn_rng4 sn_philox(uint32_t k0, uint32_t k1, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (sn_rng4){{c0, c1, c2, c3}};
}

/* Uniform in [0, 1) with 24 bits. */
static inline float sn_uniform(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* Two independent standard normal numbers from two words (Box-Muller). */
void sn_normal2(uint32_t a, uint32_t b, float out[2]);

#endif
