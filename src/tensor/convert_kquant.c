/* The 256-element block formats with quantised scales ("k-quants"). */
#include <string.h>

#include "tensor/blocks.h"
#include "tensor/convert.h"

static float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return sn_f16_to_f32(h);
}

/* The 12 bytes of q4_k and q5_k: eight scales and eight mins of 6 bits. */
static void scales_6bit(const uint8_t *s, sn_block256 *o) {
    for (int g = 0; g < 4; g++) {
        o->scale[g] = (int8_t)(s[g] & 63);
        o->min[g] = s[g + 4] & 63;
        o->scale[g + 4] = (int8_t)((s[g + 8] & 15) | (s[g] >> 6) << 4);
        o->min[g + 4] = (uint8_t)(s[g + 8] >> 4 | (s[g + 4] >> 6) << 4);
    }
}

/* q3_k: 16 scales of 6 bits with offset 32 in 12 bytes. */
static void scales_q3_k(const uint8_t *s, sn_block256 *o) {
    for (int g = 0; g < 16; g++) {
        int low = s[g % 8] >> (g / 8 * 4) & 15, high = s[8 + g % 4] >> (g / 4 * 2) & 3;
        o->scale[g] = (int8_t)((low | high << 4) - 32);
    }
}

void sn_block256_scales(sn_dtype t, const uint8_t *b, sn_block256 *o) {
    o->dmin = 0;
    memset(o->scale, 0, sizeof o->scale);
    memset(o->min, 0, sizeof o->min);
    switch (t) {
    case SN_Q2_K: /* scales and mins [16] as nibbles, codes [64] of 2 bits, d, dmin */
        for (int g = 0; g < 16; g++) {
            o->scale[g] = (int8_t)(b[g] & 15);
            o->min[g] = b[g] >> 4;
        }
        o->d = half_at(b + 80);
        o->dmin = half_at(b + 82);
        break;
    case SN_Q3_K: /* high bits [32], low two bits [64], scales [12], d */
        scales_q3_k(b + 96, o);
        o->d = half_at(b + 108);
        break;
    case SN_Q4_K: /* d, dmin, scales [12], codes [128] */
    case SN_Q5_K: /* d, dmin, scales [12], high bits [32], low nibbles [128] */
        scales_6bit(b + 4, o);
        o->d = half_at(b);
        o->dmin = half_at(b + 2);
        break;
    default: /* q6_k: low nibbles [128], high two bits [64], scales [16] of 8 bits, d */
        memcpy(o->scale, b + 192, 16);
        o->d = half_at(b + 208);
        break;
    }
}

static uint8_t code_at(sn_dtype t, const uint8_t *b, int j) {
    int low, high;
    switch (t) {
    case SN_Q2_K: return b[16 + j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3;
    case SN_Q3_K:
        low = b[32 + j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3;
        high = b[j % 32] >> (j / 32) & 1;
        return (uint8_t)(low | high << 2);
    case SN_Q4_K: return b[16 + j / 64 * 32 + j % 32] >> (j % 64 / 32 * 4) & 15;
    case SN_Q5_K:
        low = b[48 + j / 64 * 32 + j % 32] >> (j % 64 / 32 * 4) & 15;
        high = b[16 + j % 32] >> (j / 32) & 1;
        return (uint8_t)(low | high << 4);
    default:
        low = b[j / 128 * 64 + j % 64] >> (j % 128 / 64 * 4) & 15;
        high = b[128 + j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2) & 3;
        return (uint8_t)(low | high << 4);
    }
}

void sn_block256_unpack(sn_dtype t, const uint8_t *block, sn_block256 *out) {
    sn_block256_scales(t, block, out);
    for (int j = 0; j < 256; j++) out->code[j] = code_at(t, block, j);
}
