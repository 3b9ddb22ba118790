/* Philox words and stochastic rounding in blocks that become vectors. */
#ifndef SN_OPS_MATH_RANDOM_H
#define SN_OPS_MATH_RANDOM_H

#include "base/rng.h"
#include "ops/math/rows.h"

enum { SN_RANDOM_BLOCK = 16 }; /* counters that are worked on at a time */

/* What a run of random words is drawn by: word 4 j + l of a run is word l of Philox(key, counter), where j stands in the
 * counter's places `low` and `high` and c[] holds the other places. */
typedef struct sn_random {
    uint32_t key[2];
    uint32_t c[4];
    int low;  /* place of the low 32 bits of the running number: 2 or 3 */
    int high; /* place of its high 32 bits; -1: they are 0 */
} sn_random;

/* Words first .. first + n - 1 (n <= SN_PIECE). `words` has room for SN_PIECE + 8 * SN_RANDOM_BLOCK; returns where the first is. */
static inline const uint32_t *sn_random_words(const sn_random *s, int64_t first, int64_t n, uint32_t *words) {
    int64_t j0 = first / 4, j1 = (first + n + 3) / 4;
    for (int64_t j = j0; j < j1; j += SN_RANDOM_BLOCK) {
        uint32_t c[4][SN_RANDOM_BLOCK], k0 = s->key[0], k1 = s->key[1];
        for (int place = 0; place < 4; place++)
            for (int l = 0; l < SN_RANDOM_BLOCK; l++) c[place][l] = s->c[place];
        for (int l = 0; l < SN_RANDOM_BLOCK; l++) {
            c[s->low][l] = (uint32_t)(j + l);
            if (s->high >= 0) c[s->high][l] = (uint32_t)((uint64_t)(j + l) >> 32);
        }
        for (int round = 0; round < 10; round++) { /* as sn_philox, SN_RANDOM_BLOCK counters abreast */
            for (int l = 0; l < SN_RANDOM_BLOCK; l++) {
                uint64_t p0 = (uint64_t)0xD2511F53u * c[0][l], p1 = (uint64_t)0xCD9E8D57u * c[2][l];
                c[0][l] = (uint32_t)(p1 >> 32) ^ c[1][l] ^ k0;
                c[2][l] = (uint32_t)(p0 >> 32) ^ c[3][l] ^ k1;
                c[1][l] = (uint32_t)p1;
                c[3][l] = (uint32_t)p0;
            }
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        uint32_t *to = words + (j - j0) * 4;
        for (int l = 0; l < SN_RANDOM_BLOCK; l++)
            for (int place = 0; place < 4; place++) to[l * 4 + place] = c[place][l];
    }
    return words + (first - j0 * 4);
}

/* bf16 by stochastic rounding: the upper 16 bits of a random word are added below the kept bits, then the rest is cut off.
 * The expected value is x. A NaN stays a (quiet) NaN. */
static inline void sn_store_stochastic_bf16(const float *x, const uint32_t *words, int64_t n, uint16_t *to) {
    SN_EACH(i, n, uint32_t u = sn_f32_bits(x[i]); uint32_t nan = u >> 16 | 0x40; uint32_t rounded = (u + (words[i] >> 16)) >> 16;
            to[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded););
}

#endif
