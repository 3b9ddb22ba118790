/* What the optimizer updates share: pieces of state in f32, rounded back as their form asks. */
#ifndef SN_OPS_MATH_UPDATE_H
#define SN_OPS_MATH_UPDATE_H

#include "ops/math/random.h"
#include "ops/math/rows.h"

/* Slots of `hyper` and `clip`: what the engine and clip_factor tell an update. */
enum { SN_HYPER_LR, SN_HYPER_BC1, SN_HYPER_BC2, SN_HYPER_INV_LOSS_SCALE, SN_HYPER_STEP, SN_HYPER_SEED_LO, SN_HYPER_SEED_HI, SN_HYPER_LAST };
enum { SN_CLIP_FACTOR, SN_CLIP_APPLIED, SN_CLIP_NORM, SN_CLIP_LATE /* updates were made before the norm was known */ };

/* Random words for rounding one tensor of a parameter: role 0 is the weight, 1 and 2 its states. */
static inline sn_random sn_update_random(const float *hyper, int64_t parameter, int role) {
    return (sn_random){.key = {sn_f32_bits(hyper[SN_HYPER_SEED_LO]), sn_f32_bits(hyper[SN_HYPER_SEED_HI])},
                       .c = {(uint32_t)hyper[SN_HYPER_STEP], (uint32_t)parameter * 4 + (uint32_t)role, 0, 0},
                       .low = 2,
                       .high = 3};
}

/* Stores n <= SN_PIECE updated values of t from element `at` on; `first` is the logical index of the tensor's element 0.
 * bf16 is rounded stochastically. */
static inline void sn_store_updated(const sn_tensor *t, int64_t at, int64_t n, const float *x, const sn_random *source, int64_t first) {
    if (t->dtype != SN_BF16) {
        sn_store_f32(t->dtype, x, n, sn_element(t, at));
        return;
    }
    uint32_t buffer[SN_PIECE + 8 * SN_RANDOM_BLOCK];
    sn_store_stochastic_bf16(x, sn_random_words(source, first + at, n, buffer), n, (uint16_t *)sn_element(t, at));
}

/* Stores the 16-bit copy of n <= SN_PIECE updated weights: rounded to the nearest. With hyper's `last`, the number of a turn from 1 on, the
 * f32 weights will be gone after this update: then bf16 is rounded stochastically (role 3, that number in place of the step), so that small
 * changes are not lost. */
static inline void sn_store_copy(const sn_tensor *w16, int64_t at, int64_t n, const float *x, const float *hyper, int64_t parameter,
                                 int64_t first) {
    if (hyper[SN_HYPER_LAST] == 0 || w16->dtype != SN_BF16) {
        sn_store_f32(w16->dtype, x, n, sn_element(w16, at));
        return;
    }
    sn_random random = sn_update_random(hyper, parameter, 3);
    random.c[0] = (uint32_t)hyper[SN_HYPER_LAST];
    sn_store_updated(w16, at, n, x, &random, first);
}

#endif
