/* Scalar conversions: f16, bf16, the 32-element block formats and q8_k. */
#include "tensor/convert.h"

#include <assert.h>

#include "tensor/blocks.h"

float sn_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return sn_bits_f32(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0)); /* a NaN becomes quiet */
    if (exponent) return sn_bits_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    return sn_bits_f32(sign | sn_f32_bits((float)mantissa * 0x1p-24f));
}

uint16_t sn_f32_to_f16(float f) {
    uint32_t u = sn_f32_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
    if (a < 0x38800000u) {                                  /* subnormal: 0.5 has the unit 2^-24 in its last place */
        return (uint16_t)(sign | (sn_f32_bits(sn_bits_f32(a) + 0.5f) - sn_f32_bits(0.5f)));
    }
    return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1) - 0x38000000u) >> 13);
}

static float half_at(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return sn_f16_to_f32(h);
}

static void put_half(uint8_t *p, float f) {
    uint16_t h = sn_f32_to_f16(f);
    memcpy(p, &h, 2);
}

int sn_block_offset(sn_dtype t) {
    switch (t) {
    case SN_Q4_0: return 8;
    case SN_Q5_0: return 16;
    case SN_Q8_0:
    case SN_Q8_1: return 128;
    case SN_Q3_K: return 4;
    case SN_Q6_K: return 32;
    default: return 0;
    }
}

bool sn_block_has_min(sn_dtype t) { return t == SN_Q4_1 || t == SN_Q5_1 || t == SN_Q2_K || t == SN_Q4_K || t == SN_Q5_K; }

int sn_block_group(sn_dtype t) { return t == SN_Q2_K || t == SN_Q3_K || t == SN_Q6_K ? 16 : 32; }

/* Bytes of a block before its codes: scale, then minimum (or q8_1's sum), then the fifth bits. */
void sn_block32_unpack(sn_dtype t, const uint8_t *b, sn_block32 *o) {
    o->d = half_at(b);
    o->m = sn_block_has_min(t) ? half_at(b + 2) : 0;
    b += sn_block_has_min(t) || t == SN_Q8_1 ? 4 : 2;
    if (t == SN_Q8_0 || t == SN_Q8_1) {
        for (int j = 0; j < 32; j++) o->code[j] = b[j] ^ 0x80;
        return;
    }
    uint32_t high = 0;
    if (t == SN_Q5_0 || t == SN_Q5_1) {
        memcpy(&high, b, 4);
        b += 4;
    }
    for (int j = 0; j < 16; j++) {
        o->code[j] = (uint8_t)((b[j] & 15) | (high >> j & 1) << 4);
        o->code[j + 16] = (uint8_t)(b[j] >> 4 | (high >> (j + 16) & 1) << 4);
    }
}

static void decode32(sn_dtype t, const uint8_t *row, int64_t n, float *out) {
    const int bytes = sn_dtypes[t].bytes, offset = sn_block_offset(t);
    const bool has_min = sn_block_has_min(t);
    sn_block32 b;
    for (int64_t i = 0; i < n; i += 32, row += bytes) {
        sn_block32_unpack(t, row, &b);
        for (int j = 0; j < 32; j++) {
            float v = b.d * (float)(b.code[j] - offset);
            out[i + j] = has_min ? v + b.m : v; /* adding 0 would lose the sign of -0 */
        }
    }
}

static void decode256(sn_dtype t, const uint8_t *row, int64_t n, float *out) {
    const int bytes = sn_dtypes[t].bytes, offset = sn_block_offset(t), group = sn_block_group(t);
    sn_block256 b;
    for (int64_t i = 0; i < n; i += 256, row += bytes) {
        sn_block256_unpack(t, row, &b);
        for (int j = 0; j < 256; j++) {
            float scale = b.d * (float)b.scale[j / group], least = b.dmin * (float)b.min[j / group];
            out[i + j] = scale * (float)(b.code[j] - offset) - least;
        }
    }
}

static void decode_q8_k(const uint8_t *row, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 256, row += 292) {
        float d;
        memcpy(&d, row, 4);
        for (int j = 0; j < 256; j++) out[i + j] = d * (float)(int8_t)row[4 + j];
    }
}

void sn_to_f32(sn_dtype from, const void *row, int64_t n, float *out) {
    const uint16_t *h = row;
    switch (from) {
    case SN_F32:
        if (row != out) memcpy(out, row, (size_t)n * 4);
        break;
    case SN_F16:
        for (int64_t i = 0; i < n; i++) out[i] = sn_f16_to_f32(h[i]);
        break;
    case SN_BF16:
        for (int64_t i = 0; i < n; i++) out[i] = sn_bf16_to_f32(h[i]);
        break;
    case SN_Q4_0:
    case SN_Q4_1:
    case SN_Q5_0:
    case SN_Q5_1:
    case SN_Q8_0:
    case SN_Q8_1: decode32(from, row, n, out); break;
    case SN_Q2_K:
    case SN_Q3_K:
    case SN_Q4_K:
    case SN_Q5_K:
    case SN_Q6_K: decode256(from, row, n, out); break;
    case SN_Q8_K: decode_q8_k(row, n, out); break;
    default: assert(!"sn_to_f32: neither a float nor a block format");
    }
}

/* A code below 2^24 cut to an integer and held in 0 .. top; a NaN gives 0. */
static uint8_t clamp_code(float f, int top) { return f >= (float)top ? (uint8_t)top : f > 0 ? (uint8_t)f : 0; }

/* Stores 32 codes of 4 or 5 bits as low nibbles, after the fifth bits if there are any. */
static void put_codes(const uint8_t code[32], bool five, uint8_t *out) {
    uint32_t high = 0;
    for (int j = 0; j < 32; j++) high |= (uint32_t)(code[j] >> 4) << j;
    if (five) memcpy(out, &high, 4);
    out += five ? 4 : 0;
    for (int j = 0; j < 16; j++) out[j] = (uint8_t)((code[j] & 15) | (code[j + 16] & 15) << 4);
}

/* q4_0, q5_0: the element of largest magnitude becomes code 0 (value -8 or -16 times d). */
static void encode_symmetric(const float *x, bool five, uint8_t *out) {
    const int half = five ? 16 : 8;
    float largest = 0, extreme = 0;
    for (int j = 0; j < 32; j++)
        if (fabsf(x[j]) > largest) largest = fabsf(x[j]), extreme = x[j];
    float d = extreme / (float)-half, inverse = d != 0 ? 1 / d : 0;
    uint8_t code[32];
    for (int j = 0; j < 32; j++) code[j] = clamp_code(x[j] * inverse + ((float)half + 0.5f), 2 * half - 1);
    put_half(out, d);
    put_codes(code, five, out + 2);
}

/* q4_1, q5_1: codes from the smallest to the largest element. */
static void encode_with_min(const float *x, bool five, uint8_t *out) {
    const int top = five ? 31 : 15;
    float low = x[0], high = x[0];
    for (int j = 1; j < 32; j++) {
        if (x[j] < low) low = x[j];
        if (x[j] > high) high = x[j];
    }
    float d = (high - low) / (float)top, inverse = d != 0 ? 1 / d : 0;
    uint8_t code[32];
    for (int j = 0; j < 32; j++) code[j] = clamp_code((x[j] - low) * inverse + 0.5f, top);
    put_half(out, d);
    put_half(out + 2, low);
    put_codes(code, five, out + 4);
}

/* q8_0 and q8_1; the latter also keeps d times the sum of its codes. Halves are rounded away from zero. */
static void encode_q8(const float *x, bool with_sum, uint8_t *out) {
    float largest = 0;
    for (int j = 0; j < 32; j++)
        if (fabsf(x[j]) > largest) largest = fabsf(x[j]);
    float d = largest / 127, inverse = d != 0 ? 1 / d : 0;
    int sum = 0;
    uint8_t *codes = out + (with_sum ? 4 : 2);
    for (int j = 0; j < 32; j++) {
        float v = x[j] * inverse;
        int q = v >= 127.5f ? 127 : v <= -127.5f ? -127 : isnan(v) ? 0 : (int)roundf(v);
        if (q > 127) q = 127;
        if (q < -127) q = -127;
        codes[j] = (uint8_t)(int8_t)q;
        sum += q;
    }
    put_half(out, d);
    if (with_sum) put_half(out + 2, (float)sum * d);
}

/* q8_k: the element of largest magnitude becomes -127; sums of 16 codes follow. */
static void encode_q8_k(const float *x, uint8_t *out) {
    float largest = 0, extreme = 0;
    for (int j = 0; j < 256; j++)
        if (fabsf(x[j]) > largest) largest = fabsf(x[j]), extreme = x[j];
    float inverse = largest != 0 ? -127 / extreme : 0, d = largest != 0 ? 1 / inverse : 0;
    memcpy(out, &d, 4);
    for (int g = 0; g < 16; g++) {
        int16_t sum = 0;
        for (int j = g * 16; j < g * 16 + 16; j++) {
            float v = inverse * x[j];
            v = fabsf(v) <= 127 ? v + 12582912.0f - 12582912.0f : v > 0 ? 127 : v < 0 ? -127 : 0; /* nearest even */
            out[4 + j] = (uint8_t)(int8_t)v;
            sum = (int16_t)(sum + (int8_t)v);
        }
        memcpy(out + 260 + 2 * g, &sum, 2);
    }
}

static void encode_block(sn_dtype to, const float *x, uint8_t *out) {
    switch (to) {
    case SN_Q4_0:
    case SN_Q5_0: encode_symmetric(x, to == SN_Q5_0, out); break;
    case SN_Q4_1:
    case SN_Q5_1: encode_with_min(x, to == SN_Q5_1, out); break;
    case SN_Q8_0:
    case SN_Q8_1: encode_q8(x, to == SN_Q8_1, out); break;
    default: encode_q8_k(x, out); break;
    }
}

sn_status sn_from_f32(sn_dtype to, const float *row, int64_t n, void *out) {
    uint16_t *h = out;
    switch (to) {
    case SN_F32:
        if (row != out) memcpy(out, row, (size_t)n * 4);
        return SN_OK;
    case SN_F16:
        for (int64_t i = 0; i < n; i++) h[i] = sn_f32_to_f16(row[i]);
        return SN_OK;
    case SN_BF16:
        for (int64_t i = 0; i < n; i++) h[i] = sn_f32_to_bf16(row[i]);
        return SN_OK;
    case SN_Q4_0:
    case SN_Q4_1:
    case SN_Q5_0:
    case SN_Q5_1:
    case SN_Q8_0:
    case SN_Q8_1:
    case SN_Q8_K:
        for (int64_t i = 0; i < n; i += sn_dtypes[to].block, out = (uint8_t *)out + sn_dtypes[to].bytes) encode_block(to, row + i, out);
        return SN_OK;
    default: return sn_fail(SN_ERR_UNSUPPORTED, "no encoder for the form %s", sn_dtype_name(to));
    }
}
