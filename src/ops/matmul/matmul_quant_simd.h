/* Integer products with quantised weights, written once over the lanes of matmul_quant_lanes.h. The including file names
 * its processor family by its compile flags; each format and tile width becomes a function of its own through
 * always_inline and constant arguments. Defines arrange, pack, multiply and multiply_stored of an sn_quant_isa. */
#ifndef SN_OPS_MATMUL_MATMUL_QUANT_SIMD_H
#define SN_OPS_MATMUL_MATMUL_QUANT_SIMD_H

#include "ops/matmul/matmul_quant.h"
#include "ops/matmul/matmul_quant_lanes.h"

#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL16 _Pragma("GCC unroll 16")

INLINE int block_bytes(sn_dtype w) { return w == SN_Q4_0 ? 18 : w == SN_Q4_1 ? 20 : w == SN_Q5_0 ? 22 : w == SN_Q5_1 ? 24 : 34; }
INLINE bool has_min(sn_dtype w) { return w == SN_Q4_1 || w == SN_Q5_1 || w == SN_Q2_K || w == SN_Q4_K || w == SN_Q5_K; }
INLINE bool is_signed(sn_dtype w) { return SIGNED_Q8 && w == SN_Q8_0; }
INLINE bool has_offset(sn_dtype w) { return w == SN_Q4_0 || w == SN_Q5_0 || w == SN_Q8_0 || w == SN_Q3_K || w == SN_Q6_K; }
INLINE int largest_code(sn_dtype w) {
    switch (w) {
    case SN_Q2_K: return 3;
    case SN_Q3_K: return 7;
    case SN_Q4_0:
    case SN_Q4_1:
    case SN_Q4_K: return 15;
    case SN_Q5_0:
    case SN_Q5_1:
    case SN_Q5_K: return 31;
    case SN_Q6_K: return 63;
    default: return 255;
    }
}
INLINE int group_size(sn_dtype w) { return w == SN_Q2_K || w == SN_Q3_K || w == SN_Q6_K ? 16 : 32; }

/* Activations. */

static int sum_codes(__m256i codes) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
    __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

static void put_word(uint8_t *p, int32_t v) { memcpy(p, &v, 4); }
static void put_float(uint8_t *p, float v) { memcpy(p, &v, 4); }

static void arrange32(sn_dtype w, const uint8_t *a, size_t stride, int64_t blocks, int tokens, uint8_t *tile) {
    const int offset = is_signed(w) ? 0 : sn_block_offset(w);
    for (int64_t i = 0; i < blocks; i++, tile += 44 * tokens)
        for (int t = 0; t < tokens; t++) {
            const uint8_t *b = a + (size_t)t * stride + 36 * i;
            for (int g = 0; g < 8; g++) memcpy(tile + 4 * (g * tokens + t), b + 4 + 4 * g, 4);
            float da = _cvtsh_ss((unsigned short)(word_at(b) & 0xffff));
            int sum = sum_codes(_mm256_loadu_si256((const __m256i *)(b + 4)));
            put_float(tile + 32 * tokens + 4 * t, da);
            put_float(tile + 36 * tokens + 4 * t, (float)sum * da);
            put_word(tile + 40 * tokens + 4 * t, -offset * sum);
        }
}

/* The sums are of the weight's groups, and ready to be added when its codes have an offset. */
static void arrange256(sn_dtype w, const uint8_t *a, size_t stride, int64_t blocks, int tokens, uint8_t *tile) {
    const int factor = has_min(w) ? 1 : -sn_block_offset(w), group = group_size(w);
    for (int64_t i = 0; i < blocks; i++, tile += 324 * tokens)
        for (int t = 0; t < tokens; t++) {
            const uint8_t *b = a + (size_t)t * stride + 292 * i;
            for (int g = 0; g < 64; g++) memcpy(tile + 4 * (g * tokens + t), b + 4 + 4 * g, 4);
            for (int g = 0; g < 256 / group; g++) {
                __m256i codes = group == 32 ? _mm256_loadu_si256((const __m256i *)(b + 4 + 32 * g))
                                            : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)(b + 4 + 16 * g)));
                put_word(tile + 256 * tokens + 4 * (g * tokens + t), factor * sum_codes(codes));
            }
            memcpy(tile + 320 * tokens + 4 * t, b, 4);
        }
}

static void arrange(sn_dtype w, const uint8_t *a, size_t stride, int64_t k, int tokens, void *tile) {
    if (sn_dtypes[w].block == 32) arrange32(w, a, stride, k / 32, tokens, tile);
    else arrange256(w, a, stride, k / 256, tokens, tile);
}

/* Prefetches a block's worth of the next panel, in order of addresses: columns of a panel are read from many rows at once,
 * which the processor's own prefetching does not follow. Two small panels fit the first-level cache together. `b` is the
 * first row at block i. */
INLINE void prefetch(const uint8_t *b, size_t stride, int bytes, int64_t i) {
    const char *next = (const char *)b + LANES * stride + i * (LANES - 1) * bytes;
    if (LANES * stride <= 8192)
        for (int at = 0; at < LANES * bytes; at += 64) _mm_prefetch(next + at, _MM_HINT_T0);
    else
        for (int at = 0; at < LANES * bytes; at += 64) _mm_prefetch(next + at, _MM_HINT_T1);
}

/* Blocks of 32. */

INLINE void load32(sn_dtype w, const uint8_t *b, size_t stride, ivec code[8], fvec *d, fvec *m) {
    const ivec scales = v_gather(b, stride);
    *d = v_half(scales);
    if (has_min(w)) *m = v_half(v_right(scales, 16));
    b += has_min(w) ? 4 : 2;
    if (w == SN_Q8_0) {
        v_transpose(b, stride, code);
        v_transpose(b + 16, stride, code + 4);
        if (!is_signed(w)) {
            UNROLL
            for (int g = 0; g < 8; g++) code[g] = v_xor(code[g], v_bytes(0x80));
        }
        return;
    }
    const bool five = w == SN_Q5_0 || w == SN_Q5_1;
    ivec high = v_zero();
    if (five) {
        high = v_gather(b, stride);
        b += 4;
    }
    v_transpose(b, stride, code);
    UNROLL
    for (int g = 0; g < 4; g++) {
        code[g + 4] = v_and(v_right(code[g], 4), v_bytes(15));
        code[g] = v_and(code[g], v_bytes(15));
    }
    if (five) {
        UNROLL
        for (int g = 0; g < 8; g++) code[g] = v_or(code[g], v_fifth_bits(high, g));
    }
}

/* sum[t] += codes of `steps` words of each row times those of token t. */
INLINE void dot_words(sn_dtype w, int steps, int tokens, const ivec *code, const uint8_t *tile, ivec *sum) {
    const int most = is_signed(w) ? 1 : v_dot_steps(largest_code(w)), run = most < steps ? most : steps;
    UNROLL
    for (int first = 0; first < steps; first += run) {
        ivec part[SN_QUANT_MAX_TOKENS];
        UNROLL
        for (int t = 0; t < tokens; t++) part[t] = v_dot_start(sum[t]);
        UNROLL
        for (int g = first; g < first + run; g++) {
            const ivec c = code[g];
            UNROLL
            for (int t = 0; t < tokens; t++) {
                const ivec a = v_word(tile + 4 * (g * tokens + t));
                part[t] = is_signed(w) ? v_dot(part[t], v_magnitude(c), v_signed_like(a, c)) : v_dot(part[t], c, a);
            }
        }
        UNROLL
        for (int t = 0; t < tokens; t++) sum[t] = v_dot_end(sum[t], part[t]);
    }
}

INLINE void block32(sn_dtype w, int tokens, const ivec *code, fvec d, fvec m, const uint8_t *tile, fvec *acc) {
    ivec sum[SN_QUANT_MAX_TOKENS];
    UNROLL
    for (int t = 0; t < tokens; t++) sum[t] = has_offset(w) && !is_signed(w) ? v_word(tile + 40 * tokens + 4 * t) : v_zero();
    dot_words(w, 8, tokens, code, tile, sum);
    UNROLL
    for (int t = 0; t < tokens; t++) {
        acc[t] = v_fma(d, v_mulf(v_float(sum[t]), v_floats(tile + 32 * tokens + 4 * t)), acc[t]);
        if (has_min(w)) acc[t] = v_fma(m, v_floats(tile + 36 * tokens + 4 * t), acc[t]);
    }
}

enum { BLOCK32 = 40 * LANES, BLOCK256 = 392 * LANES }; /* bytes of a packed block */

INLINE void multiply32(sn_dtype w, int tokens, const uint8_t *panel, int64_t blocks, const uint8_t *tile, float *out) {
    fvec acc[SN_QUANT_MAX_TOKENS];
    UNROLL
    for (int t = 0; t < tokens; t++) acc[t] = v_zerof();
    for (int64_t i = 0; i < blocks; i++, panel += BLOCK32, tile += 44 * tokens)
        block32(w, tokens, (const ivec *)(const void *)panel, v_loadf(panel + 32 * LANES), v_loadf(panel + 36 * LANES), tile, acc);
    UNROLL
    for (int t = 0; t < tokens; t++) v_storef(out + t * LANES, acc[t]);
}

INLINE void multiply32_stored(sn_dtype w, int tokens, const uint8_t *b, size_t stride, int64_t blocks, const uint8_t *tile, float *out) {
    fvec acc[SN_QUANT_MAX_TOKENS];
    UNROLL
    for (int t = 0; t < tokens; t++) acc[t] = v_zerof();
    for (int64_t i = 0; i < blocks; i++, b += block_bytes(w), tile += 44 * tokens) {
        prefetch(b, stride, block_bytes(w), i);
        ivec code[8];
        fvec d, m = v_zerof();
        load32(w, b, stride, code, &d, &m);
        block32(w, tokens, code, d, m, tile, acc);
    }
    UNROLL
    for (int t = 0; t < tokens; t++) v_storef(out + t * LANES, acc[t]);
}

INLINE void pack32(sn_dtype w, const uint8_t *b, size_t stride, int64_t blocks, uint8_t *panel) {
    for (int64_t i = 0; i < blocks; i++, b += block_bytes(w), panel += BLOCK32) {
        prefetch(b, stride, block_bytes(w), i);
        ivec code[8];
        fvec d, m = v_zerof();
        load32(w, b, stride, code, &d, &m);
        UNROLL
        for (int g = 0; g < 8; g++) v_store(panel + 4 * g * LANES, code[g]);
        v_storef(panel + 32 * LANES, d);
        v_storef(panel + 36 * LANES, m);
    }
}

/* Blocks of 256. */

INLINE void block256(sn_dtype w, int tokens, const uint8_t *panel, const uint8_t *tile, fvec *acc) {
    const int words = group_size(w) / 4;
    ivec total[SN_QUANT_MAX_TOKENS], least[SN_QUANT_MAX_TOKENS];
    UNROLL
    for (int t = 0; t < tokens; t++) total[t] = least[t] = v_zero();
    for (int g = 0; g < 64 / words; g++) {
        ivec sum[SN_QUANT_MAX_TOKENS];
        UNROLL
        for (int t = 0; t < tokens; t++) sum[t] = has_offset(w) ? v_word(tile + 256 * tokens + 4 * (g * tokens + t)) : v_zero();
        dot_words(w, words, tokens, (const ivec *)(const void *)(panel + 4 * LANES * words * g), tile + 4 * tokens * words * g, sum);
        const ivec scale = v_load(panel + (256 + 4 * g) * LANES);
        UNROLL
        for (int t = 0; t < tokens; t++) total[t] = v_add(total[t], v_mul(scale, sum[t]));
        if (has_min(w)) {
            const ivec min = v_load(panel + (320 + 4 * g) * LANES);
            UNROLL
            for (int t = 0; t < tokens; t++) least[t] = v_add(least[t], v_mul(min, v_word(tile + 256 * tokens + 4 * (g * tokens + t))));
        }
    }
    const fvec d = v_loadf(panel + 384 * LANES), dmin = v_loadf(panel + 388 * LANES);
    UNROLL
    for (int t = 0; t < tokens; t++) {
        const fvec da = v_floats(tile + 320 * tokens + 4 * t);
        acc[t] = v_fma(d, v_mulf(v_float(total[t]), da), acc[t]);
        if (has_min(w)) acc[t] = v_fma(dmin, v_mulf(v_float(least[t]), da), acc[t]);
    }
}

INLINE void multiply256(sn_dtype w, int tokens, const uint8_t *panel, int64_t blocks, const uint8_t *tile, float *out) {
    fvec acc[SN_QUANT_MAX_TOKENS];
    UNROLL
    for (int t = 0; t < tokens; t++) acc[t] = v_zerof();
    for (int64_t i = 0; i < blocks; i++, panel += BLOCK256, tile += 324 * tokens) block256(w, tokens, panel, tile, acc);
    UNROLL
    for (int t = 0; t < tokens; t++) v_storef(out + t * LANES, acc[t]);
}

/* q4_k, q5_k. */
INLINE void pack_q45_k(sn_dtype w, const uint8_t *b, size_t stride, uint8_t *panel) {
    ivec head[4], low[4], high[8];
    v_transpose(b, stride, head); /* d and dmin, then the 12 bytes of scales and mins */
    v_storef(panel + 384 * LANES, v_half(head[0]));
    v_storef(panel + 388 * LANES, v_negate(v_half(v_right(head[0], 16))));
    UNROLL
    for (int g = 0; g < 4; g++) {
        const ivec s = v_right(head[1], 8 * g), m = v_right(head[2], 8 * g), both = v_right(head[3], 8 * g);
        v_store(panel + (256 + 4 * g) * LANES, v_and(s, v_set(63)));
        v_store(panel + (320 + 4 * g) * LANES, v_and(m, v_set(63)));
        v_store(panel + (272 + 4 * g) * LANES, v_or(v_and(both, v_set(15)), v_and(v_right(s, 2), v_set(48))));
        v_store(panel + (336 + 4 * g) * LANES, v_or(v_and(v_right(both, 4), v_set(15)), v_and(v_right(m, 2), v_set(48))));
    }
    if (w == SN_Q5_K) {
        v_transpose(b + 16, stride, high);
        v_transpose(b + 32, stride, high + 4);
    }
    const uint8_t *nibbles = b + (w == SN_Q5_K ? 48 : 16);
    UNROLL
    for (int chunk = 0; chunk < 8; chunk++) { /* 16 bytes: low nibbles of group 2 (chunk / 2), high ones of the next */
        v_transpose(nibbles + 16 * chunk, stride, low);
        uint8_t *to = panel + (chunk / 2 * 64 + chunk % 2 * 16) * LANES;
        UNROLL
        for (int i = 0; i < 4; i++) {
            ivec c0 = v_and(low[i], v_bytes(15)), c1 = v_and(v_right(low[i], 4), v_bytes(15));
            if (w == SN_Q5_K) {
                const ivec bits = v_right(high[chunk % 2 * 4 + i], chunk / 2 * 2);
                c0 = v_or(c0, v_left(v_and(bits, v_bytes(1)), 4));
                c1 = v_or(c1, v_left(v_and(bits, v_bytes(2)), 3));
            }
            v_store(to + 4 * i * LANES, c0);
            v_store(to + (4 * i + 32) * LANES, c1);
        }
    }
}

INLINE void pack_q6_k(const uint8_t *b, size_t stride, uint8_t *panel) {
    ivec scales[4], low[4], high[8];
    v_storef(panel + 384 * LANES, v_half(v_right(v_gather(b + 206, stride), 16)));
    v_transpose(b + 192, stride, scales);
    UNROLL16
    for (int g = 0; g < 16; g++) v_store(panel + (256 + 4 * g) * LANES, v_right_signed(v_left(scales[g / 4], 24 - g % 4 * 8), 24));
    for (int half = 0; half < 2; half++) {
        v_transpose(b + 128 + 32 * half, stride, high);
        v_transpose(b + 144 + 32 * half, stride, high + 4);
        UNROLL
        for (int chunk = 0; chunk < 4; chunk++) {
            v_transpose(b + 64 * half + 16 * chunk, stride, low);
            uint8_t *to = panel + (128 * half + 16 * chunk) * LANES;
            UNROLL
            for (int i = 0; i < 4; i++) {
                const ivec bits = v_right(high[chunk % 2 * 4 + i], chunk / 2 * 2);
                v_store(to + 4 * i * LANES, v_or(v_and(low[i], v_bytes(15)), v_left(v_and(bits, v_bytes(3)), 4)));
                v_store(to + (4 * i + 64) * LANES, v_or(v_and(v_right(low[i], 4), v_bytes(15)), v_and(bits, v_bytes(48))));
            }
        }
    }
}

/* q2_k and q3_k: unpacked element by element. */
static void pack_plain(sn_dtype w, const uint8_t *b, size_t stride, uint8_t *panel) {
    for (int r = 0; r < LANES; r++) {
        sn_block256 u;
        sn_block256_unpack(w, b + (size_t)r * stride, &u);
        for (int g = 0; g < 64; g++) memcpy(panel + 4 * (g * LANES + r), u.code + 4 * g, 4);
        for (int g = 0; g < 16; g++) {
            put_word(panel + (256 + 4 * g) * LANES + 4 * r, u.scale[g]);
            put_word(panel + (320 + 4 * g) * LANES + 4 * r, u.min[g]);
        }
        put_float(panel + 384 * LANES + 4 * r, u.d);
        put_float(panel + 388 * LANES + 4 * r, -u.dmin);
    }
}

INLINE void pack_block256(sn_dtype w, const uint8_t *b, size_t stride, uint8_t *panel) {
    if (w == SN_Q4_K || w == SN_Q5_K) pack_q45_k(w, b, stride, panel);
    else if (w == SN_Q6_K) pack_q6_k(b, stride, panel);
    else pack_plain(w, b, stride, panel);
}

INLINE void pack256(sn_dtype w, const uint8_t *b, size_t stride, int64_t blocks, uint8_t *panel) {
    const int bytes = sn_dtypes[w].bytes;
    for (int64_t i = 0; i < blocks; i++, b += bytes, panel += BLOCK256) {
        prefetch(b, stride, bytes, i);
        pack_block256(w, b, stride, panel);
    }
}

/* One packed block at a time, which stays in the first-level cache. */
INLINE void multiply256_stored(sn_dtype w, int tokens, const uint8_t *b, size_t stride, int64_t blocks, const uint8_t *tile, float *out) {
    _Alignas(64) uint8_t packed[BLOCK256];
    const int bytes = sn_dtypes[w].bytes;
    fvec acc[SN_QUANT_MAX_TOKENS];
    UNROLL
    for (int t = 0; t < tokens; t++) acc[t] = v_zerof();
    for (int64_t i = 0; i < blocks; i++, b += bytes, tile += 324 * tokens) {
        prefetch(b, stride, bytes, i);
        pack_block256(w, b, stride, packed);
        block256(w, tokens, packed, tile, acc);
    }
    UNROLL
    for (int t = 0; t < tokens; t++) v_storef(out + t * LANES, acc[t]);
}

/* Dispatch over formats and tile widths. */

#define BY_TOKENS(function, ...)              \
    switch (tokens) {                         \
    case 1: function(1, __VA_ARGS__); break;  \
    case 2: function(2, __VA_ARGS__); break;  \
    case 4: function(4, __VA_ARGS__); break;  \
    default: function(8, __VA_ARGS__); break; \
    }

/* The functions of one format, its name and block size. */
#define FORMAT(w, block)                                                                                                                   \
    static void pack_##w(const uint8_t *b, size_t stride, int64_t k, uint8_t *panel) { pack##block(SN_##w, b, stride, k / block, panel); } \
    INLINE void w##_packed(int tokens, const uint8_t *panel, int64_t k, const uint8_t *tile, float *out) {                                 \
        multiply##block(SN_##w, tokens, panel, k / block, tile, out);                                                                      \
    }                                                                                                                                      \
    static void multiply_##w(const uint8_t *panel, int64_t k, const uint8_t *tile, int tokens, float *out){                                \
        BY_TOKENS(w##_packed, panel, k, tile, out)} INLINE void w##_stored(int tokens, const uint8_t *b, size_t stride, int64_t k,         \
                                                                           const uint8_t *tile, float *out) {                              \
        multiply##block##_stored(SN_##w, tokens, b, stride, k / block, tile, out);                                                         \
    }                                                                                                                                      \
    static void stored_##w(const uint8_t *b, size_t stride, int64_t k, const uint8_t *tile, int tokens, float *out) {                      \
        BY_TOKENS(w##_stored, b, stride, k, tile, out)                                                                                     \
    }

#define FORMATS(X) \
    X(Q4_0, 32) X(Q4_1, 32) X(Q5_0, 32) X(Q5_1, 32) X(Q8_0, 32) X(Q2_K, 256) X(Q3_K, 256) X(Q4_K, 256) X(Q5_K, 256) X(Q6_K, 256)

FORMATS(FORMAT)

static const struct format {
    void (*pack)(const uint8_t *b, size_t stride, int64_t k, uint8_t *panel);
    void (*multiply)(const uint8_t *panel, int64_t k, const uint8_t *tile, int tokens, float *out);
    void (*stored)(const uint8_t *b, size_t stride, int64_t k, const uint8_t *tile, int tokens, float *out);
} formats[SN_DTYPE_COUNT] = {
#define X(w, block) [SN_##w] = {pack_##w, multiply_##w, stored_##w},
    FORMATS(X)
#undef X
};

static void pack(sn_dtype w, const uint8_t *b, size_t stride, int64_t k, void *panel) { formats[w].pack(b, stride, k, panel); }

static void multiply(sn_dtype w, const void *panel, int64_t k, const void *tile, int tokens, float *out) {
    formats[w].multiply(panel, k, tile, tokens, out);
}

static void multiply_stored(sn_dtype w, const uint8_t *b, size_t stride, int64_t k, const void *tile, int tokens, float *out) {
    formats[w].stored(b, stride, k, tile, tokens, out);
}

#endif
