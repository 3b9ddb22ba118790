/* kv_write: puts the keys and values of new tokens into a paged cache.
 *
 *   cache! [B, 2, G, S, D] (f32, bf16 or f16), k act [T, G*D], v act [T, G*D], slots i32 [T]
 *
 * Slot = block * S + offset; -1 skips the token. cache[block][0] holds keys, cache[block][1] values. Values are
 * rounded to the cache's form (nearest even). Two tokens of one call must not share a slot. */
#ifndef SN_OPS_KV_WRITE_H
#define SN_OPS_KV_WRITE_H

#include "program/kernel.h"

enum { SN_KV_WRITE_HEAD_DIM }; /* attrs.i */

extern const sn_kernel sn_kv_write_cpu[];
extern const sn_kernel sn_kv_write_avx2[];
extern const sn_kernel sn_kv_write_avx512[];

#endif
