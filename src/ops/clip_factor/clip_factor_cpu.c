#include "ops/clip_factor/clip_factor.h"

#include <math.h>

#include "ops/math/rows.h"
#include "ops/math/update.h"

static void clip_factor_run(const sn_call *c) {
    const double *norms = c->in[0].data, max_norm = c->attrs.f[SN_CLIP_FACTOR_MAX_NORM];
    const double inv_scale = (double)((const float *)c->in[1].data)[SN_HYPER_INV_LOSS_SCALE];
    const int64_t n = sn_elements(&c->in[0]);
    float *clip = c->out[0].data;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += norms[i];
    const double norm = sqrt(sum) * inv_scale;
    const bool finite = isfinite(norm);
    double factor = inv_scale;
    if (max_norm > 0 && max_norm / (norm + 1e-6) < 1) factor *= max_norm / (norm + 1e-6);
    clip[SN_CLIP_FACTOR] = finite ? (float)factor : 0.0f;
    clip[SN_CLIP_APPLIED] = finite ? 1.0f : 0.0f;
    clip[SN_CLIP_NORM] = (float)norm; /* before clipping */
    clip[SN_CLIP_LATE] = c->attrs.i[SN_CLIP_FACTOR_LATE] ? 1.0f : 0.0f;
}

SN_ONE_KERNEL(sn_clip_factor_cpu, "reference", SN_CPU_REFERENCE, NULL, clip_factor_run);
