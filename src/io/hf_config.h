/* config.json and generation_config.json of Hugging Face folders (transformers 4 and 5 spellings). */
#ifndef SN_IO_HF_CONFIG_H
#define SN_IO_HF_CONFIG_H

#include "base/str.h"
#include "io/json.h"
#include "io/model_config.h"

/* Reads a config.json. SN_ERR_UNSUPPORTED names a model_type, rope type or activation that snug does not have;
 * SN_ERR_FORMAT a missing, duplicate or malformed key. On success sn_model_config_free it. */
sn_status sn_hf_config_read(const char *path, sn_model_config *c);
sn_status sn_hf_config_parse(const char *name, const char *text, size_t size, sn_model_config *c);

/* Appends the config as JSON that transformers 4 and 5 read. Keys of c->raw that the struct does not hold are kept.
 * SN_ERR_UNSUPPORTED for SN_ROPE_FACTORS, which config.json cannot say. */
sn_status sn_hf_config_text(const sn_model_config *c, sn_str *out);
sn_status sn_hf_config_write(const sn_model_config *c, const char *path);

/* What generation_config.json asks for; absent numbers are -1. */
typedef struct sn_generation_config {
    int64_t bos_id, pad_id, eos_ids[SN_MAX_EOS];
    int eos_count;
    bool do_sample;
    double temperature, top_p;
    int64_t top_k;
} sn_generation_config;

sn_status sn_generation_config_read(const char *path, sn_generation_config *g);
sn_status sn_generation_config_parse(const char *name, const char *text, size_t size, sn_generation_config *g);

/* The reader's current value, an id or a list of ids (eos_token_id). */
sn_status sn_hf_read_ids(sn_json *r, int64_t ids[SN_MAX_EOS], int *count);

#endif
