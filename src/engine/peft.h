/* PEFT's adapter folders, both ways: adapter_config.json and adapter_model.safetensors. The format knows LoRA, by its own
 * names of keys and tensors; inside snug, adapters are entries of the job's table with adapter_of (graph/graph.h). */
#ifndef SN_ENGINE_PEFT_H
#define SN_ENGINE_PEFT_H

#include "graph/graph.h"
#include "io/options.h"
#include "io/safetensors.h"
#include "run/run.h"

struct sn_session;

/* A copy of the recipe with the adapter's rank, alpha, targets and scale. SN_ERR_UNSUPPORTED names what snug has no code
 * for (DoRA, bias, rank_pattern, modules_to_save, a task that is not causal LM). */
sn_status sn_adapter_recipe(const char *dir, const sn_options *recipe, sn_options **out);

/* Fills the adapters of an opened run from a folder; every tensor must match a part of the job's adapters and every part be
 * found. */
sn_status sn_adapter_load(sn_run *run, const sn_job *job, const char *dir);

/* An adapter's folder by itself. */
typedef struct sn_adapter {
    sn_st tensors;
    float scale;
} sn_adapter;
sn_status sn_adapter_open(const char *dir, sn_adapter *out);
void sn_adapter_close(sn_adapter *a); /* a zeroed one is fine */

/* The tensor of a part of what is added to `weight` ("model.layers.0.self_attn.q_proj.weight"); NULL: none. */
const sn_st_tensor *sn_adapter_find(const sn_adapter *a, const char *weight, sn_adapter_part part);

/* The name that the file gives to a part, in `name`; false when the weight is no module's or the name is too long. */
enum { SN_ADAPTER_NAME = 320 };
bool sn_adapter_tensor_name(const char *weight, sn_adapter_part part, char name[SN_ADAPTER_NAME]);

/* Writes out_dir/adapter_config.json and out_dir/adapter_model.safetensors (F32) of a run's adapters, as PEFT 0.21 reads
 * them. `base` is written as base_model_name_or_path. target_modules are leaf names ("q_proj") where every module of that
 * name is adapted, whole module names otherwise. SN_ERR_USAGE when the run has no adapters. */
sn_status sn_export_adapter(const struct sn_session *s, const sn_options *recipe, const char *base, const char *out_dir);

#endif
