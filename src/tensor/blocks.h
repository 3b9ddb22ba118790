/* What a quantised block holds, unpacked: the common shape behind GGUF's block formats. Decoding to f32, the reference
 * kernels and the packing of weight panels all start here.
 *
 * Source: the block layouts of ggml (GGUF types Q4_0 .. Q8_1 and Q2_K .. Q6_K). */
#ifndef SN_TENSOR_BLOCKS_H
#define SN_TENSOR_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* A block of 32: value[j] = d * (code[j] - offset) + m; m = 0 for formats without a minimum. */
typedef struct sn_block32 {
    float d, m;
    uint8_t code[32]; /* q8_0 and q8_1: the signed value + 128 */
} sn_block32;

/* A block of 256: value[j] = (d * scale[j / group]) * (code[j] - offset) - dmin * min[j / group]. */
typedef struct sn_block256 {
    float d, dmin; /* dmin = 0 for formats without a minimum */
    int8_t scale[16];
    uint8_t min[16];
    uint8_t code[256];
} sn_block256;

/* Constants of a format. */
int sn_block_offset(sn_dtype t);   /* subtracted from a code: 8, 16, 128, 4, 32 or 0 */
bool sn_block_has_min(sn_dtype t); /* q4_1, q5_1, q2_k, q4_k, q5_k */
int sn_block_group(sn_dtype t);    /* elements that share a scale: 32, or 16 for q2_k, q3_k and q6_k */

/* Unpacks one block of q4_0, q4_1, q5_0, q5_1, q8_0 or q8_1. */
void sn_block32_unpack(sn_dtype t, const uint8_t *block, sn_block32 *out);

/* Unpacks one block of q2_k, q3_k, q4_k, q5_k or q6_k; sn_block256_scales all but the codes. */
void sn_block256_scales(sn_dtype t, const uint8_t *block, sn_block256 *out);
void sn_block256_unpack(sn_dtype t, const uint8_t *block, sn_block256 *out);

#endif
