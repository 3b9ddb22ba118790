/* PEFT adapters as folders: adapter_config.json and adapter_model.safetensors. */
#ifndef SN_ENGINE_ADAPTER_H
#define SN_ENGINE_ADAPTER_H

#include "io/options.h"

/* A copy of the recipe with the adapter's rank, alpha, targets and scale. SN_ERR_UNSUPPORTED names what snug has no code
 * for (DoRA, bias, rank_pattern, modules_to_save, a task that is not causal LM). */
sn_status sn_adapter_recipe(const char *dir, const sn_options *recipe, sn_options **out);

#endif
