/* AdamW with moments in 8 bits: Dettmers et al. 2021 (arXiv 2110.02861). Small parameters keep f32 moments, as in bitsandbytes;
 * so do those of which a rank's part would begin or end inside a block. */
#include "ops/adamw_8bit/adamw_8bit.h"
#include "passes/optimizer.h"

enum { SMALLEST = 4096 /* elements */ };

sn_status sn_update_adamw_8bit(const sn_update *u, const sn_updated *x) {
    static const char *const names[] = {"exp_avg", "exp_avg_sq"}, *const largest[] = {"exp_avg_absmax", "exp_avg_sq_absmax"};
    int64_t n;
    if (!sn_shape_elements(&u->g->job->persistent[x->parameter].shape, &n)) return sn_fail(SN_ERR_SHAPE, "%s has no valid size", x->name);
    if (n < SMALLEST || !sn_update_has_runs(u, x, SN_DYNAMIC_BLOCK)) return sn_update_adamw(u, x);
    sn_vid in[6] = {x->w, x->gradient};
    for (int i = 0; i < 2; i++) {
        sn_pid code = sn_update_state(u, x, names[i], SN_U8);
        sn_pid scale = code == SN_NONE ? code : sn_update_state_runs(u, x, largest[i], SN_F32, SN_DYNAMIC_BLOCK);
        if (scale == SN_NONE) return SN_ERR_NO_MEMORY;
        in[2 + 2 * i] = sn_use_persistent(u->g, code);
        in[3 + 2 * i] = sn_use_persistent(u->g, scale);
    }
    sn_attrs a = {.i[SN_ADAMW_PARAMETER] = x->index, .f[SN_ADAMW_WEIGHT_DECAY] = x->decay};
    a.f[SN_ADAMW_BETA1] = sn_options_float(u->recipe, "adam_beta1");
    a.f[SN_ADAMW_BETA2] = sn_options_float(u->recipe, "adam_beta2");
    a.f[SN_ADAMW_EPS] = sn_options_float(u->recipe, "adam_epsilon");
    return sn_update_append(u, x, SN_OP_adamw_8bit, &a, 6, in);
}
