/* Everything that leaves snug as model files: PEFT adapters, Hugging Face folders, GGUF files, merged models.
 *
 * Files appear under their names only when they are whole: each is written under a temporary name, fsynced and renamed.
 * Values are read by tiles; no tensor is ever whole in memory besides the run's own arenas.
 *
 * A trained value is written from its f32 master where the run has one. A frozen value is read from the model's own
 * files again, so that what was not trained leaves with the bits it came with. */
#ifndef SN_ENGINE_EXPORT_H
#define SN_ENGINE_EXPORT_H

#include "engine/session.h"

/* Writes out_dir/adapter_config.json and out_dir/adapter_model.safetensors (F32) of a run with LoRA, as PEFT 0.21 reads
 * them. `base` is written as base_model_name_or_path. target_modules are leaf names ("q_proj") where every module of that
 * name is adapted, whole module names otherwise. SN_ERR_USAGE when the run has no adapters. */
sn_status sn_export_adapter(const sn_session *s, const sn_options *recipe, const char *base, const char *out_dir);

#endif
