/* rope_table: cosines and sines of token positions, made once a step and shared by every layer.
 *
 *   positions i32 [T] -> table f32 [T, R]: R/2 cosines, then R/2 sines.
 *
 * Pair i turns by position * inv_freq[i], inv_freq[i] = theta^(-2i/R), all in f32 as transformers computes it.
 * RoPE: Su et al., "RoFormer", 2021. The llama3 scaling is that of Meta's Llama 3.1 release. */
#ifndef SN_OPS_ROPE_TABLE_H
#define SN_OPS_ROPE_TABLE_H

#include "program/kernel.h"

enum { SN_ROPE_TABLE_DIMS, SN_ROPE_TABLE_TYPE, SN_ROPE_TABLE_ORIGINAL_CONTEXT };                                   /* attrs.i */
enum { SN_ROPE_TABLE_THETA, SN_ROPE_TABLE_FACTOR, SN_ROPE_TABLE_LOW_FREQ_FACTOR, SN_ROPE_TABLE_HIGH_FREQ_FACTOR }; /* attrs.f */

typedef enum sn_rope_table_type {
    SN_ROPE_TABLE_DEFAULT,
    SN_ROPE_TABLE_LINEAR, /* every frequency / factor */
    SN_ROPE_TABLE_LLAMA3, /* wavelengths beyond original_context / low_freq_factor: / factor; below original_context /
                           * high_freq_factor: kept; between: interpolated */
} sn_rope_table_type;

/* The inverse frequency of pair i (0 <= i < dims / 2) under these attributes. */
float sn_rope_inverse_frequency(const sn_attrs *attrs, int64_t i);

extern const sn_kernel sn_rope_table_cpu[];

#endif
