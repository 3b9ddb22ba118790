/* Jobs: which programs a task needs, built and passed through the pipeline. */
#ifndef SN_ENGINE_JOB_H
#define SN_ENGINE_JOB_H

#include "models/model.h"
#include "passes/pass.h"

/* A recipe with every option of the passes and of the engine's tasks. */
sn_status sn_recipe_new(sn_options **out);

/* Reads DeepSpeed's JSON config into a recipe, below its YAML recipe in rank. An unknown key is SN_ERR_USAGE with its place; a warning
 * says where DeepSpeed does something else under the same name. */
sn_status sn_recipe_read_deepspeed(sn_options *recipe, const char *path);

/* SN_ERR_USAGE when train_batch_size is given and is not rows x micro-batches x ranks. */
sn_status sn_recipe_check_batch(const sn_options *recipe, int ranks);

/* The tables that such a recipe has; *count of them. */
const sn_option_group *const *sn_recipe_groups(size_t *count);

extern const sn_option_group sn_training_options, sn_machine_options, sn_generation_options, sn_evaluation_options, sn_schedule_options,
    sn_cluster_options;

/* Programs step (forward_backward, forward_backward_next and update when gradients accumulate) and evaluate. `tokens` is of
 * one micro-batch over all ranks; `evaluate` says whether the job evaluates too. */
typedef struct sn_training_shape {
    int64_t tokens;
    bool evaluate;
} sn_training_shape;
sn_status sn_job_for_training(const sn_model_config *config, const sn_parameters *parameters, const sn_training_shape *shape,
                              const sn_options *recipe, const sn_cluster *cluster, const char *stop_after, sn_job **out);

/* One program "evaluate" (losses) or "logits". */
sn_status sn_job_for_evaluation(const sn_model_config *config, const sn_parameters *parameters, int64_t tokens, bool logits,
                                const sn_options *recipe, const sn_cluster *cluster, sn_job **out);

/* Programs "prompt" and "decode" over one KV cache. */
sn_status sn_job_for_generation(const sn_model_config *config, const sn_parameters *parameters, const sn_model_shape *prompt,
                                const sn_model_shape *decode, const sn_options *recipe, const sn_cluster *cluster, sn_job **out);

/* Writes the initial contents of a persistent value that has no file: zeros, a constant, or random numbers keyed by
 * (seed, parameter, logical element), as source.init says: n elements from `first` on. */
void sn_initialise(const sn_persistent *e, sn_pid p, uint64_t seed, int64_t first, int64_t n, void *data);

#endif
