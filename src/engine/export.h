/* Models that leave snug as files: Hugging Face folders, GGUF files, merged models. (Adapters by themselves: peft.h.)
 *
 * Files appear under their names only when they are whole: each is written under a temporary name, fsynced and renamed.
 * Values go through SN_STAGING_BYTES (of the run's transient arena, or allocated when there is no run); no tensor is whole
 * in memory besides the run's own arenas and the two factors of one adapted module.
 *
 * A trained value is written from its f32 master where the run has one. A frozen value is read from the model's own files
 * again: what was not trained leaves with the bits it came with. Where an adapter stands beside a weight, W + scale * B A
 * is written, computed in f32 on the (dequantised) base; the log names the base's form. Tied embeddings stay tied, unless an
 * adapter changes lm_head alone: then the model is written untied. */
#ifndef SN_ENGINE_EXPORT_H
#define SN_ENGINE_EXPORT_H

#include "engine/peft.h"
#include "engine/session.h"

/* Form of the matrices of an exported model; SN_FORM_SOURCE: each tensor as in the file it came from. */
enum { SN_FORM_SOURCE = SN_DTYPE_COUNT };

/* "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", ..., "source"; SN_ERR_USAGE for anything else. */
sn_status sn_export_form(const char *text, int *form);

typedef struct sn_export_report {
    uint64_t tensors, elements, bytes; /* bits per weight: 8.0 * bytes / elements */
    uint64_t fallbacks;                /* tensors whose rows do not fit the form asked for */
    uint64_t adapted;                  /* tensors that an adapter was added to */
} sn_export_report;

/* Writes a Hugging Face folder of a run's model: config.json, model.safetensors (shards above 5 GB), generation_config.json,
 * and the tokenizer: its files copied when the model is a folder, made from a GGUF's keys otherwise. form: f32, f16, bf16,
 * or SN_FORM_SOURCE, where a quantised tensor becomes f32. SN_ERR_USAGE when out_dir is the model's own folder. */
sn_status sn_export_hf(const sn_session *s, const char *out_dir, int form, sn_export_report *report);

/* Writes a GGUF of a run's model; metadata copied from the model's GGUF, or made from its config and tokenizer. Norms,
 * biases and positions are f32 in every form. With a form of less than 8 bits the embedding that is the output matrix, or
 * the output matrix, is q8_0. A tensor whose rows are no whole number of blocks becomes f16; a tensor that changed and
 * whose source form has no encoder becomes q8_0 (or f16). Both are counted, named in one warning, and reported. */
sn_status sn_export_gguf(const sn_session *s, const char *path, int form, sn_export_report *report);

/* The same of a model without a run, with a PEFT adapter added (adapter NULL: a conversion). `out` is a GGUF when `gguf`,
 * else a folder. threads >= 1. report may be NULL here and above. */
sn_status sn_merge_adapter(const sn_model *model, const char *adapter, const char *out, bool gguf, int form, int threads,
                           sn_export_report *report);

#endif
