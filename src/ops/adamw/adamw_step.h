/* The arithmetic of one step of AdamW on f32 pieces, whatever form the states rest in. f: the op's float attributes, in the slots
 * of adamw.h. */
#ifndef SN_OPS_ADAMW_STEP_H
#define SN_OPS_ADAMW_STEP_H

#include <math.h>

#include "ops/adamw/adamw.h"
#include "ops/math/update.h"

typedef struct adamw_numbers {
    float factor, keep; /* of the gradient and of the weight: 1 - lr * weight_decay */
    float one_beta1, beta2, one_beta2, step, root_bc2, eps;
} adamw_numbers;

/* As torch.optim.AdamW: what depends on hyperparameters alone is computed in f64 and rounded once. */
static inline adamw_numbers adamw_prepare(const double *f, const float *hyper, const float *clip) {
    const double lr = (double)hyper[SN_HYPER_LR];
    return (adamw_numbers){.factor = clip[SN_CLIP_FACTOR],
                           .keep = (float)(1.0 - lr * f[SN_ADAMW_WEIGHT_DECAY]),
                           .one_beta1 = (float)(1.0 - f[SN_ADAMW_BETA1]),
                           .beta2 = (float)f[SN_ADAMW_BETA2],
                           .one_beta2 = (float)(1.0 - f[SN_ADAMW_BETA2]),
                           .step = (float)(lr / (double)hyper[SN_HYPER_BC1]),
                           .root_bc2 = (float)sqrt((double)hyper[SN_HYPER_BC2]),
                           .eps = (float)f[SN_ADAMW_EPS]};
}

static inline void adamw_piece(const adamw_numbers *numbers, const float *g, const float *w, const float *m, const float *v, int64_t n,
                               float *w_new, float *m_new, float *v_new) {
    const adamw_numbers k = *numbers;
    SN_EACH(i, n, float d = g[i] * k.factor; float first = m[i] + k.one_beta1 * (d - m[i]);
            float second = v[i] * k.beta2 + (k.one_beta2 * d) * d; float root = sqrtf(second) / k.root_bc2 + k.eps;
            float weight = w[i] * k.keep - (k.step * first) / root; m_new[i] = first; v_new[i] = second; w_new[i] = weight;);
}

#endif
