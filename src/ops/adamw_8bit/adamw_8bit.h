/* adamw_8bit: one step of AdamW whose moments rest as codes of the dynamic 8-bit map (dynamic_map.h), in blocks of
 * SN_DYNAMIC_BLOCK elements of the flattened parameter with an f32 absolute maximum each. The arithmetic is adamw's, in f32 with the
 * unrounded new moments; they are then divided by their block's maximum and take the nearest codes. States of zero bytes are zero
 * moments. Nothing is written when clip[1] is 0. Source: Dettmers et al. 2021 (arXiv 2110.02861).
 *
 * Inputs: w, g, m u8 (w's shape), m_max f32 [blocks], v u8, v_max f32 [blocks], hyper, clip, w16?. Attributes: adamw's. Where rows are
 * whole blocks, [blocks] may be w's shape with the last dimension in blocks. */
#ifndef SN_OPS_ADAMW_8BIT_H
#define SN_OPS_ADAMW_8BIT_H

#include "ops/adamw/adamw.h"
#include "ops/adamw_8bit/dynamic_map.h"

extern const sn_kernel sn_adamw_8bit_cpu[], sn_adamw_8bit_avx2[], sn_adamw_8bit_avx512[];

#endif
