/* What a model's files say about its architecture, in Hugging Face terms whatever the file format. */
#ifndef SN_IO_MODEL_CONFIG_H
#define SN_IO_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "tensor/dtype.h"

typedef enum sn_model_arch {
    SN_ARCH_LLAMA, /* model_type llama and mistral: RMSNorm, rotary positions, gated MLP */
    SN_ARCH_GPT2   /* model_type gpt2: LayerNorm, learned positions, Conv1D weights [in,out] */
} sn_model_arch;

typedef enum sn_hidden_act {
    SN_ACT_SILU,
    SN_ACT_GELU,     /* erf form: "gelu" */
    SN_ACT_GELU_TANH /* "gelu_new", "gelu_pytorch_tanh" */
} sn_hidden_act;

typedef enum sn_rope_type {
    SN_ROPE_DEFAULT,
    SN_ROPE_LINEAR, /* positions divided by factor */
    SN_ROPE_LLAMA3, /* Llama 3.1: low frequencies divided by factor, a smooth passage, high frequencies kept */
    SN_ROPE_FACTORS /* a GGUF's rope_freqs.weight that fits none of the above: a divisor for every pair */
} sn_rope_type;

typedef struct sn_rope {
    sn_rope_type type;
    double theta;
    double factor, low_freq_factor, high_freq_factor; /* factor: linear and llama3; the others: llama3 */
    int64_t original_max_position;                    /* llama3 */
    const float *factors;                             /* SN_ROPE_FACTORS: [head_dim / 2], owned by the config */
} sn_rope;

enum { SN_MAX_EOS = 8 };

typedef struct sn_model_config {
    sn_model_arch arch;
    char architecture[32]; /* model_type: "llama", "mistral", "gpt2" */
    int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads;
    int64_t head_dim; /* need not be hidden_size / num_heads */
    int64_t max_position;
    double norm_eps; /* rms_norm_eps (llama) or layer_norm_epsilon (gpt2) */
    sn_rope rope;    /* llama only */
    bool tie_word_embeddings, attention_bias, mlp_bias;
    sn_hidden_act hidden_act;
    int64_t sliding_window; /* 0: none */
    int64_t bos_id, pad_id; /* -1: none */
    int64_t eos_ids[SN_MAX_EOS];
    int eos_count;
    bool has_dtype;
    sn_dtype dtype;  /* in which the weights were trained */
    const char *raw; /* the config.json that was read, NUL-terminated; NULL from a GGUF. Owned by the config */
    size_t raw_size;
    sn_pool pool;
} sn_model_config;

/* Everything unset: absent ids, rope of theta 10000, no eos. */
void sn_model_config_init(sn_model_config *c, sn_model_arch arch);
void sn_model_config_free(sn_model_config *c);

/* Fills what may be left out (num_kv_heads, head_dim, GPT-2's intermediate_size) and checks that every extent is there and
 * fits; SN_ERR_FORMAT "NAME: num_attention_heads ...". name: the file, for messages. */
sn_status sn_model_config_check(sn_model_config *c, const char *name);

/* Divisors of the rotary frequencies: inv_freq[i] = theta^(-2i / head_dim) / out[i], out: [head_dim / 2].
 * llama3: as transformers' ROPE_INIT_FUNCTIONS["llama3"]. */
void sn_rope_divisors(const sn_model_config *c, float *out);

/* Sets c->rope from a GGUF's divisors [head_dim / 2]: all 1, all equal (linear), Llama 3.1's with its usual bounds 1, 4 and
 * 8192, or SN_ROPE_FACTORS. SN_ERR_FORMAT when one is not finite or not positive. */
sn_status sn_rope_from_divisors(sn_model_config *c, const char *name, const float *divisors);

const char *sn_hidden_act_name(sn_hidden_act act); /* Hugging Face's: "silu", "gelu", "gelu_new" */
bool sn_hidden_act_by_name(const char *name, sn_hidden_act *out);

/* Adds an end-of-sequence id; one that is there already is passed over. False when there are SN_MAX_EOS others. */
bool sn_model_config_add_eos(sn_model_config *c, int64_t id);

#endif
