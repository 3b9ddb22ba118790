#include "io/model_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void sn_model_config_init(sn_model_config *c, sn_model_arch arch) {
    *c = (sn_model_config){.arch = arch, .bos_id = -1, .pad_id = -1, .rope = {.theta = 10000}};
    snprintf(c->architecture, sizeof c->architecture, "%s", arch == SN_ARCH_GPT2 ? "gpt2" : "llama");
    c->hidden_act = arch == SN_ARCH_GPT2 ? SN_ACT_GELU_TANH : SN_ACT_SILU;
    c->tie_word_embeddings = arch == SN_ARCH_GPT2;
    c->norm_eps = arch == SN_ARCH_GPT2 ? 1e-5 : 1e-6;
    c->attention_bias = c->mlp_bias = arch == SN_ARCH_GPT2;
}

void sn_model_config_free(sn_model_config *c) {
    sn_pool_free(&c->pool);
    *c = (sn_model_config){0};
}

static sn_status check_extent(const char *name, const char *key, int64_t value, int64_t most) {
    if (value >= 1 && value <= most) return SN_OK;
    if (!value) return sn_fail(SN_ERR_FORMAT, "%s: %s is missing or 0", name, key);
    return sn_fail(SN_ERR_FORMAT, "%s: %s is %" PRId64 ", wanted 1 to %" PRId64, name, key, value, most);
}

static sn_status check_heads(sn_model_config *c, const char *name) {
    SN_TRY(check_extent(name, "num_attention_heads", c->num_heads, 1 << 20));
    if (!c->num_kv_heads) c->num_kv_heads = c->num_heads;
    SN_TRY(check_extent(name, "num_key_value_heads", c->num_kv_heads, c->num_heads));
    if (c->num_heads % c->num_kv_heads)
        return sn_fail(SN_ERR_FORMAT, "%s: num_attention_heads %" PRId64 " is no multiple of num_key_value_heads %" PRId64, name,
                       c->num_heads, c->num_kv_heads);
    if (!c->head_dim) {
        if (c->hidden_size % c->num_heads)
            return sn_fail(SN_ERR_FORMAT, "%s: no head_dim, and hidden_size %" PRId64 " is no multiple of num_attention_heads %" PRId64,
                           name, c->hidden_size, c->num_heads);
        c->head_dim = c->hidden_size / c->num_heads;
    }
    SN_TRY(check_extent(name, "head_dim", c->head_dim, 1 << 20));
    if (c->arch == SN_ARCH_LLAMA && c->head_dim % 2) /* rotary pairs */
        return sn_fail(SN_ERR_FORMAT, "%s: head_dim %" PRId64 " is odd", name, c->head_dim);
    if (c->arch == SN_ARCH_GPT2 && (c->head_dim * c->num_heads != c->hidden_size || c->num_kv_heads != c->num_heads))
        return sn_fail(SN_ERR_UNSUPPORTED,
                       "%s: gpt2 with hidden_size %" PRId64 ", %" PRId64 " heads of %" PRId64 " and %" PRId64 " KV heads", name,
                       c->hidden_size, c->num_heads, c->head_dim, c->num_kv_heads);
    return SN_OK;
}

static sn_status check_rope(const sn_model_config *c, const char *name) {
    const sn_rope *r = &c->rope;
    if (!(r->theta > 0) || !isfinite(r->theta)) return sn_fail(SN_ERR_FORMAT, "%s: rope_theta is %g", name, r->theta);
    if ((r->type == SN_ROPE_LINEAR || r->type == SN_ROPE_LLAMA3) && !(r->factor >= 1 && isfinite(r->factor)))
        return sn_fail(SN_ERR_FORMAT, "%s: rope scaling's factor is %g, wanted a number >= 1", name, r->factor);
    if (r->type != SN_ROPE_LLAMA3) return SN_OK;
    if (!(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor && isfinite(r->high_freq_factor)))
        return sn_fail(SN_ERR_FORMAT, "%s: llama3 rope scaling: low_freq_factor %g and high_freq_factor %g, wanted 0 < low < high", name,
                       r->low_freq_factor, r->high_freq_factor);
    return check_extent(name, "llama3 rope scaling: original_max_position_embeddings", r->original_max_position, INT32_MAX);
}

sn_status sn_model_config_check(sn_model_config *c, const char *name) {
    SN_TRY(check_extent(name, "vocab_size", c->vocab_size, INT32_MAX));
    SN_TRY(check_extent(name, "hidden_size", c->hidden_size, INT32_MAX));
    SN_TRY(check_extent(name, "num_hidden_layers", c->num_layers, 1 << 14));
    SN_TRY(check_extent(name, "max_position_embeddings", c->max_position, INT32_MAX));
    if (c->arch == SN_ARCH_GPT2 && !c->intermediate_size) c->intermediate_size = 4 * c->hidden_size;
    SN_TRY(check_extent(name, "intermediate_size", c->intermediate_size, INT32_MAX));
    SN_TRY(check_heads(c, name));
    if (c->sliding_window < 0) return sn_fail(SN_ERR_FORMAT, "%s: sliding_window is %" PRId64, name, c->sliding_window);
    if (!(c->norm_eps >= 0 && c->norm_eps < 1)) return sn_fail(SN_ERR_FORMAT, "%s: the norm's epsilon is %g", name, c->norm_eps);
    return c->arch == SN_ARCH_LLAMA ? check_rope(c, name) : SN_OK;
}

static double llama3_divisor(const sn_rope *r, int64_t head_dim, int64_t pair) {
    double wavelength = 2 * M_PI * pow(r->theta, 2.0 * (double)pair / (double)head_dim), length = (double)r->original_max_position;
    if (wavelength < length / r->high_freq_factor) return 1;
    if (wavelength > length / r->low_freq_factor) return r->factor;
    double smooth = (length / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return 1 / ((1 - smooth) / r->factor + smooth);
}

void sn_rope_divisors(const sn_model_config *c, float *out) {
    for (int64_t i = 0; i < c->head_dim / 2; i++) {
        switch (c->rope.type) {
        case SN_ROPE_DEFAULT: out[i] = 1; break;
        case SN_ROPE_LINEAR: out[i] = (float)c->rope.factor; break;
        case SN_ROPE_LLAMA3: out[i] = (float)llama3_divisor(&c->rope, c->head_dim, i); break;
        case SN_ROPE_FACTORS: out[i] = c->rope.factors[i]; break;
        }
    }
}

sn_status sn_rope_from_divisors(sn_model_config *c, const char *name, const float *divisors) {
    int64_t pairs = c->head_dim / 2;
    bool equal = true, llama3 = true;
    for (int64_t i = 0; i < pairs; i++) {
        if (!(divisors[i] > 0) || !isfinite(divisors[i]))
            return sn_fail(SN_ERR_FORMAT, "%s: tensor rope_freqs.weight: divisor %" PRId64 " is %g", name, i, (double)divisors[i]);
        equal &= divisors[i] == divisors[0];
    }
    double last = (double)divisors[pairs - 1]; /* the lowest frequency gets the whole factor */
    if (equal) {
        c->rope.type = last == 1 ? SN_ROPE_DEFAULT : SN_ROPE_LINEAR;
        c->rope.factor = last;
        return SN_OK;
    }
    sn_rope guess = {SN_ROPE_LLAMA3, c->rope.theta, last, 1, 4, 8192, NULL};
    for (int64_t i = 0; i < pairs; i++) {
        double want = llama3_divisor(&guess, c->head_dim, i);
        llama3 &= fabs((double)divisors[i] - want) <= 1e-4 * want;
    }
    if (llama3) {
        c->rope = guess;
        return SN_OK;
    }
    float *copy = sn_pool_alloc(&c->pool, (size_t)pairs * sizeof *copy);
    if (!copy) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate %" PRId64 " rope divisors", name, pairs);
    memcpy(copy, divisors, (size_t)pairs * sizeof *copy);
    c->rope.type = SN_ROPE_FACTORS;
    c->rope.factors = copy;
    return SN_OK;
}

const char *sn_hidden_act_name(sn_hidden_act act) { return act == SN_ACT_SILU ? "silu" : act == SN_ACT_GELU ? "gelu" : "gelu_new"; }

bool sn_hidden_act_by_name(const char *name, sn_hidden_act *out) {
    static const struct {
        const char *name;
        sn_hidden_act act;
    } names[] = {{"silu", SN_ACT_SILU},
                 {"swish", SN_ACT_SILU},
                 {"gelu", SN_ACT_GELU},
                 {"gelu_new", SN_ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", SN_ACT_GELU_TANH}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i].name)) return *out = names[i].act, true;
    return false;
}

bool sn_model_config_add_eos(sn_model_config *c, int64_t id) {
    for (int i = 0; i < c->eos_count; i++)
        if (c->eos_ids[i] == id) return true;
    if (c->eos_count == SN_MAX_EOS) return false;
    c->eos_ids[c->eos_count++] = id;
    return true;
}
