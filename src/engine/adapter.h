/* PEFT adapters as folders: adapter_config.json and adapter_model.safetensors. */
#ifndef SN_ENGINE_ADAPTER_H
#define SN_ENGINE_ADAPTER_H

#include "io/options.h"

/* A copy of the recipe with the adapter's rank, alpha, targets and scale. SN_ERR_UNSUPPORTED names what snug has no code
 * for (DoRA, bias, rank_pattern, modules_to_save, a task that is not causal LM). */
sn_status sn_adapter_recipe(const char *dir, const sn_options *recipe, sn_options **out);

/* "chat_template" of the text of a tokenizer_config.json: a string, or a list of {name, template} of which "default"
 * counts. *out is NULL when there is none (sn_free it). */
sn_status sn_hf_chat_template(const char *name, const char *text, size_t size, char **out);

#endif
