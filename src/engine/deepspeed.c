/* Recipes from DeepSpeed's JSON config: which keys there are follows from the options' tables and the passes' entries. */
#include "base/log.h"
#include "engine/job.h"

/* Keys that say how DeepSpeed reports and guards, nothing about the job. */
static const char general[] = "wall_clock_breakdown,memory_breakdown,dump_state,zero_allow_untested_optimizer,zero_force_ds_cpu_optimizer,"
                              "prescale_gradients:false,gradient_predivide_factor:1,"
                              "scheduler.params.warmup_min_lr:0,scheduler.params.warmup_type:linear";

sn_status sn_recipe_read_deepspeed(sn_options *recipe, const char *path) {
    enum { MOST = 64 };
    const char *hints[MOST];
    size_t n = 0;
    hints[n++] = general;
    for (size_t i = 0; i < sn_n_passes; i++) {
        if (!sn_passes[i]->deepspeed_hints) continue;
        if (n == MOST) return sn_fail(SN_ERR_INTERNAL, "more passes have DeepSpeed keys than their reader has room for");
        hints[n++] = sn_passes[i]->deepspeed_hints;
    }
    SN_TRY(sn_options_read_deepspeed(recipe, path, hints, n));
    if (sn_options_from(recipe, "lr_scheduler_type") == SN_FROM_DEEPSPEED && sn_options_int(recipe, "warmup_steps") > 0)
        sn_warn("%s: scheduler: the warm-up is linear here; DeepSpeed's is logarithmic unless its warmup_type is linear", path);
    return SN_OK;
}

sn_status sn_recipe_check_batch(const sn_options *recipe, int ranks) {
    int64_t whole = sn_options_int(recipe, "train_batch_size"), rows = sn_options_int(recipe, "per_device_train_batch_size");
    int64_t steps = sn_options_int(recipe, "gradient_accumulation_steps"), product;
    if (!whole) return SN_OK;
    if (sn_mul_i64(rows, steps, &product) && sn_mul_i64(product, ranks, &product) && product == whole) return SN_OK;
    return sn_fail(SN_ERR_USAGE,
                   "train_batch_size is %lld, but %lld rows of a micro-batch, %lld micro-batches and %d ranks make another number",
                   (long long)whole, (long long)rows, (long long)steps, ranks);
}
