/* The 256-element block formats with quantised scales ("k-quants"). */
#include <string.h>

#include "tensor/blocks.h"
#include "tensor/convert.h"

static float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return sn_f16_to_f32(h);
}

/* q2_k: scales and mins [16] as nibbles, codes [64] of 2 bits, d, dmin. */
static void unpack_q2_k(const uint8_t *b, sn_block256 *o) {
    o->d = half_at(b + 80);
    o->dmin = half_at(b + 82);
    for (int g = 0; g < 16; g++) {
        o->scale[g] = (int8_t)(b[g] & 15);
        o->min[g] = b[g] >> 4;
    }
    for (int j = 0; j < 256; j++) o->code[j] = b[16 + j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3;
}

/* q3_k: high bits [32], low two bits [64], scales [12] of 6 bits with offset 32, d. */
static void unpack_q3_k(const uint8_t *b, sn_block256 *o) {
    const uint8_t *high = b, *low = b + 32, *s = b + 96;
    o->d = half_at(b + 108);
    o->dmin = 0;
    memset(o->min, 0, sizeof o->min);
    for (int g = 0; g < 16; g++) {
        int lo = s[g % 8] >> (g / 8 * 4) & 15, hi = s[8 + g % 4] >> (g / 4 * 2) & 3;
        o->scale[g] = (int8_t)((lo | hi << 4) - 32);
    }
    for (int j = 0; j < 256; j++) {
        int lo = low[j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3, hi = high[j % 32] >> (j / 32) & 1;
        o->code[j] = (uint8_t)(lo | hi << 2);
    }
}

/* The 12 bytes of q4_k and q5_k: eight scales and eight mins of 6 bits. */
static void unpack_scales_6bit(const uint8_t *s, sn_block256 *o) {
    for (int g = 0; g < 4; g++) {
        o->scale[g] = (int8_t)(s[g] & 63);
        o->min[g] = s[g + 4] & 63;
        o->scale[g + 4] = (int8_t)((s[g + 8] & 15) | (s[g] >> 6) << 4);
        o->min[g + 4] = (uint8_t)(s[g + 8] >> 4 | (s[g + 4] >> 6) << 4);
    }
}

/* q4_k: d, dmin, scales [12], codes [128]. */
static void unpack_q4_k(const uint8_t *b, sn_block256 *o) {
    o->d = half_at(b);
    o->dmin = half_at(b + 2);
    unpack_scales_6bit(b + 4, o);
    for (int j = 0; j < 256; j++) o->code[j] = b[16 + j / 64 * 32 + j % 32] >> (j % 64 / 32 * 4) & 15;
}

/* q5_k: d, dmin, scales [12], high bits [32], low nibbles [128]. */
static void unpack_q5_k(const uint8_t *b, sn_block256 *o) {
    o->d = half_at(b);
    o->dmin = half_at(b + 2);
    unpack_scales_6bit(b + 4, o);
    for (int j = 0; j < 256; j++) {
        int lo = b[48 + j / 64 * 32 + j % 32] >> (j % 64 / 32 * 4) & 15, hi = b[16 + j % 32] >> (j / 32) & 1;
        o->code[j] = (uint8_t)(lo | hi << 4);
    }
}

/* q6_k: low nibbles [128], high two bits [64], scales [16] of 8 bits, d. */
static void unpack_q6_k(const uint8_t *b, sn_block256 *o) {
    o->d = half_at(b + 208);
    o->dmin = 0;
    memcpy(o->scale, b + 192, 16);
    memset(o->min, 0, sizeof o->min);
    for (int j = 0; j < 256; j++) {
        int lo = b[j / 128 * 64 + j % 64] >> (j % 128 / 64 * 4) & 15, hi = b[128 + j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3;
        o->code[j] = (uint8_t)(lo | hi << 4);
    }
}

void sn_block256_unpack(sn_dtype t, const uint8_t *block, sn_block256 *out) {
    switch (t) {
    case SN_Q2_K: unpack_q2_k(block, out); break;
    case SN_Q3_K: unpack_q3_k(block, out); break;
    case SN_Q4_K: unpack_q4_k(block, out); break;
    case SN_Q5_K: unpack_q5_k(block, out); break;
    default: unpack_q6_k(block, out); break;
    }
}
