/* What the tests of engine/export share: runs of small models, adapters, and comparing what was written. */
#ifndef SN_TESTS_EXPORT_CASE_H
#define SN_TESTS_EXPORT_CASE_H

#include "engine/export.h"
#include "support/support.h"

#define FILES SNUG_SOURCE_DIR "/tests/golden/model_files/"

/* A test program's own folder: group setup and teardown; a path in it, valid until the program's end. */
int make_root(void **state);
int remove_root(void **state);
const char *in_root(const char *name);

sn_options *recipe_of(const char *text); /* "lora=on lora_rank=4" */

/* A run of a model, for training or evaluation. */
void open_session(sn_session *s, sn_model *model, const sn_options *recipe, bool train);

/* LoRA values of the job; numbers in every one (B is zero at first), and in its master. */
bool is_factor(const sn_persistent *e);
void fill_factors(const sn_session *s);

/* sn_merge_adapter without an adapter. */
void convert(const char *from, const char *to, bool gguf, int form);

/* A tensor whole, in Hugging Face's order, as the file has it; sn_free it. */
char *read_whole(const sn_model_files *m, const sn_model_tensor *t);

/* Every tensor of a is in b with the same bytes, and the configs agree. */
void assert_same_models(const char *a, const char *b);

/* test_error of the logits of eight tokens. Adapters may be NULL. */
double logits_error(const char *model_a, const char *adapter_a, const char *model_b, const char *adapter_b);

/* A model from its shape alone (the text of a config.json), with every value random, exported from its run. */
void export_shape(const char *config, const char *dir);

#define SHAPE_32_4                                                                                                                        \
    "{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 64, \"intermediate_size\": 172, \"num_hidden_layers\": 2, "         \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 4, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, " \
    "\"tie_word_embeddings\": false, \"attention_bias\": true}"

/* The adapter of a run with random factors; the run's own merged folder is written to in_root("of-run"). */
void make_adapter(const char *model_path, const char *options, const char *dir);

/* A PEFT folder with lora_A [rank, in] and lora_B [out, rank] of one module. */
void write_adapter(const char *dir, const char *config, const char *module, int64_t in, int64_t out, int64_t rank, const float *a,
                   const float *b);

#endif
