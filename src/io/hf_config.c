#include "io/hf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/names.h"

enum { MAX_CONFIG = 16 << 20 };

typedef enum field_kind { INTEGER, REAL, BOOLEAN, ACT, EOS, DTYPE, MODEL_TYPE, ROPE, DROPPED } field_kind;

/* Keys of config.json that the struct holds. GPT-2's names stand beside Llama's: no name means two things.
 * family: 0 both, 1 llama, 2 gpt2: which file a key is written to, and -1: read only. DROPPED: replaced by another. */
#define AT(member) offsetof(sn_model_config, member)
static const struct field {
    const char *key;
    field_kind kind;
    size_t at;
    int family;
} fields[] = {
    {"model_type", MODEL_TYPE, 0, -1},
    {"vocab_size", INTEGER, AT(vocab_size), 0},
    {"hidden_size", INTEGER, AT(hidden_size), 1},
    {"intermediate_size", INTEGER, AT(intermediate_size), 1},
    {"num_hidden_layers", INTEGER, AT(num_layers), 1},
    {"num_attention_heads", INTEGER, AT(num_heads), 1},
    {"num_key_value_heads", INTEGER, AT(num_kv_heads), 1},
    {"head_dim", INTEGER, AT(head_dim), 1},
    {"max_position_embeddings", INTEGER, AT(max_position), 1},
    {"rms_norm_eps", REAL, AT(norm_eps), 1},
    {"hidden_act", ACT, AT(hidden_act), 1},
    {"attention_bias", BOOLEAN, AT(attention_bias), 1},
    {"mlp_bias", BOOLEAN, AT(mlp_bias), 1},
    {"n_embd", INTEGER, AT(hidden_size), 2},
    {"n_inner", INTEGER, AT(intermediate_size), 2},
    {"n_layer", INTEGER, AT(num_layers), 2},
    {"n_head", INTEGER, AT(num_heads), 2},
    {"n_positions", INTEGER, AT(max_position), 2},
    {"n_ctx", DROPPED, 0, -1},
    {"layer_norm_epsilon", REAL, AT(norm_eps), 2},
    {"activation_function", ACT, AT(hidden_act), 2},
    {"sliding_window", INTEGER, AT(sliding_window), -1},
    {"tie_word_embeddings", BOOLEAN, AT(tie_word_embeddings), 0},
    {"rope_theta", REAL, AT(rope.theta), -1},
    {"rope_scaling", ROPE, 0, -1},
    {"rope_parameters", ROPE, 0, -1},
    {"bos_token_id", INTEGER, AT(bos_id), -1},
    {"pad_token_id", INTEGER, AT(pad_id), -1},
    {"eos_token_id", EOS, 0, -1},
    {"dtype", DTYPE, 0, -1},
    {"torch_dtype", DTYPE, 0, -1},
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };

static const struct field *field_of(const char *key) {
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (!strcmp(fields[i].key, key)) return &fields[i];
    return NULL;
}

static sn_status read_act(sn_json *r, sn_hidden_act *act) {
    if (r->type != SN_JSON_STRING) return sn_json_fail(r, "the activation: wanted string, found %s", sn_json_type_name(r->type));
    if (sn_hidden_act_by_name(r->text, act)) return SN_OK;
    return sn_fail(SN_ERR_UNSUPPORTED, "%s: activation \"%.80s\" is not supported (silu, gelu, gelu_new, gelu_pytorch_tanh are)", r->name,
                   r->text);
}

sn_status sn_hf_read_ids(sn_json *r, int64_t ids[SN_MAX_EOS], int *count) {
    bool list = r->type == SN_JSON_ARRAY;
    *count = 0;
    for (;;) {
        if (list) SN_TRY(sn_json_next(r));
        if (list && r->type == SN_JSON_ARRAY_END) return SN_OK;
        if (*count == SN_MAX_EOS) return sn_fail(SN_ERR_UNSUPPORTED, "%s: eos_token_id lists more than %d ids", r->name, SN_MAX_EOS);
        SN_TRY(sn_json_i64(r, &ids[*count]));
        ++*count;
        if (!list) return SN_OK;
    }
}

static sn_status read_dtype(sn_json *r, sn_model_config *c) {
    static const struct {
        const char *name;
        sn_dtype dtype;
    } names[] = {{"float32", SN_F32}, {"float16", SN_F16}, {"bfloat16", SN_BF16}};
    if (r->type != SN_JSON_STRING) return sn_json_fail(r, "dtype: wanted string, found %s", sn_json_type_name(r->type));
    if (!strcmp(r->text, "auto")) return SN_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(r->text, names[i].name)) continue;
        c->dtype = names[i].dtype;
        c->has_dtype = true;
        return SN_OK;
    }
    return sn_fail(SN_ERR_UNSUPPORTED, "%s: dtype \"%.80s\" is not supported (float32, float16, bfloat16 are)", r->name, r->text);
}

static sn_status set_rope_type(sn_json *r, sn_model_config *c, const char *type) {
    static const char *const names[] = {"default", "linear", "llama3"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(type, names[i])) continue;
        c->rope.type = (sn_rope_type)i;
        return SN_OK;
    }
    return sn_fail(SN_ERR_UNSUPPORTED, "%s: rope type \"%.80s\" is not supported (default, linear, llama3 are)", r->name, type);
}

/* rope_scaling (transformers 4: `type` or `rope_type`) and rope_parameters (transformers 5, with rope_theta inside). */
static sn_status read_rope(sn_json *r, sn_model_config *c) {
    char type[81] = "default";
    bool named = false;
    if (r->type != SN_JSON_OBJECT) return sn_json_fail(r, "rope parameters: wanted object, found %s", sn_json_type_name(r->type));
    for (;;) {
        double partial = 1;
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        if (sn_json_is(r, "rope_type") || sn_json_is(r, "type")) {
            bool newer = sn_json_is(r, "rope_type");
            SN_TRY(sn_json_want(r, SN_JSON_STRING));
            if (newer || !named) snprintf(type, sizeof type, "%s", r->text);
            named |= newer;
        } else if (sn_json_is(r, "rope_theta")) {
            SN_TRY(sn_json_read_f64(r, &c->rope.theta));
        } else if (sn_json_is(r, "factor")) {
            SN_TRY(sn_json_read_f64(r, &c->rope.factor));
        } else if (sn_json_is(r, "low_freq_factor")) {
            SN_TRY(sn_json_read_f64(r, &c->rope.low_freq_factor));
        } else if (sn_json_is(r, "high_freq_factor")) {
            SN_TRY(sn_json_read_f64(r, &c->rope.high_freq_factor));
        } else if (sn_json_is(r, "original_max_position_embeddings")) {
            SN_TRY(sn_json_read_i64(r, &c->rope.original_max_position));
        } else if (sn_json_is(r, "partial_rotary_factor")) {
            SN_TRY(sn_json_read_f64(r, &partial));
        } else if (sn_json_is(r, "full_attention") || sn_json_is(r, "sliding_attention")) {
            return sn_fail(SN_ERR_UNSUPPORTED, "%s: rope parameters by kind of layer (%s)", r->name, r->text);
        } else {
            SN_TRY(sn_json_skip(r));
        }
        if (partial != 1) return sn_fail(SN_ERR_UNSUPPORTED, "%s: partial_rotary_factor %g", r->name, partial);
    }
    return set_rope_type(r, c, type);
}

static sn_status read_field(sn_json *r, const struct field *f, sn_model_config *c) {
    void *member = (char *)c + f->at;
    SN_TRY(sn_json_next(r));
    if (r->type == SN_JSON_NULL) return SN_OK;
    switch (f->kind) {
    case INTEGER: return sn_json_i64(r, member);
    case REAL: return sn_json_f64(r, member);
    case BOOLEAN: return sn_json_bool(r, member);
    case ACT: return read_act(r, member);
    case EOS: return sn_hf_read_ids(r, c->eos_ids, &c->eos_count);
    case DTYPE: return read_dtype(r, c);
    case ROPE: return read_rope(r, c);
    case MODEL_TYPE:
    case DROPPED: break;
    }
    return sn_json_skip(r);
}

/* Switches that change the arithmetic and that snug has no code for. */
static sn_status read_switch(sn_json *r, bool *sliding) {
    static const struct {
        const char *key;
        bool supported;
    } switches[] = {{"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}};
    double partial;
    if (sn_json_is(r, "use_sliding_window")) return sn_json_read_bool(r, sliding);
    if (sn_json_is(r, "partial_rotary_factor")) {
        SN_TRY(sn_json_read_f64(r, &partial));
        return partial == 1 ? SN_OK : sn_fail(SN_ERR_UNSUPPORTED, "%s: partial_rotary_factor %g", r->name, partial);
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        bool value;
        if (!sn_json_is(r, switches[i].key)) continue;
        SN_TRY(sn_json_read_bool(r, &value));
        if (value == switches[i].supported) return SN_OK;
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: %s %s", r->name, switches[i].key, value ? "true" : "false");
    }
    return sn_json_skip(r);
}

/* model_type decides the defaults, so it is looked for first. */
static sn_status find_model_type(sn_json *r, sn_model_config *c) {
    static const struct {
        const char *model_type;
        sn_model_arch arch;
    } types[] = {{"llama", SN_ARCH_LLAMA}, {"mistral", SN_ARCH_LLAMA}, {"gpt2", SN_ARCH_GPT2}};
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) return sn_fail(SN_ERR_FORMAT, "%s: no model_type", r->name);
        if (sn_json_is(r, "model_type")) break;
        SN_TRY(sn_json_skip(r));
    }
    SN_TRY(sn_json_want(r, SN_JSON_STRING));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(r->text, types[i].model_type)) continue;
        sn_model_config_init(c, types[i].arch);
        snprintf(c->architecture, sizeof c->architecture, "%s", types[i].model_type);
        return SN_OK;
    }
    return sn_fail(SN_ERR_UNSUPPORTED, "%s: model_type \"%.80s\" is not supported (llama, mistral, gpt2 are)", r->name, r->text);
}

static sn_status read_fields(sn_json *r, sn_names *seen, sn_model_config *c) {
    bool sliding = true, added;
    size_t index;
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        SN_TRY(sn_names_add(seen, r->text, r->size, &index, &added));
        if (!added) return sn_json_fail(r, "duplicate key \"%.80s\"", r->text);
        const struct field *f = field_of(r->text);
        if (!f) {
            SN_TRY(read_switch(r, &sliding));
            continue;
        }
        sn_status s = read_field(r, f, c);
        if (s != SN_OK) return sn_fail_in(s, "%s", f->key);
    }
    SN_TRY(sn_json_want(r, SN_JSON_EOF));
    if (!sliding) c->sliding_window = 0;
    return sn_model_config_check(c, r->name);
}

sn_status sn_hf_config_parse(const char *name, const char *text, size_t size, sn_model_config *c) {
    sn_names seen = {0};
    sn_json r;
    *c = (sn_model_config){0};
    sn_json_start(&r, name, text, size);
    sn_status s = find_model_type(&r, c);
    sn_json_end(&r);
    sn_json_start(&r, name, text, size);
    if (s == SN_OK) s = read_fields(&r, &seen, c);
    sn_json_end(&r);
    sn_names_free(&seen);
    char *raw = s == SN_OK ? sn_pool_alloc(&c->pool, size + 1) : NULL;
    if (s == SN_OK && !raw) s = sn_fail(SN_ERR_NO_MEMORY, "%s: cannot keep its text", name);
    if (s != SN_OK) {
        sn_model_config_free(c);
        return s;
    }
    memcpy(raw, text, size);
    c->raw = raw;
    c->raw_size = size;
    return SN_OK;
}

sn_status sn_hf_config_read(const char *path, sn_model_config *c) {
    char *text;
    size_t size;
    *c = (sn_model_config){0};
    SN_TRY(sn_file_read_all(path, MAX_CONFIG, &text, &size));
    sn_status s = sn_hf_config_parse(path, text, size, c);
    sn_free(text);
    return s;
}

static void write_key(sn_str *out, const char *key) {
    sn_str_printf(out, "%s  \"%s\": ", out->data[out->size - 1] == '{' ? "\n" : ",\n", key);
}

static void write_real(sn_str *out, double value) { /* the fewest digits that read back equal, and a float for Python */
    char text[40];
    if (value == trunc(value) && fabs(value) < 1e15) { /* 50000.0, not 5e+04 */
        sn_str_printf(out, "%" PRId64 ".0", (int64_t)value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    for (char *p = text; *p; p++)
        if (*p == ',') *p = '.'; /* the host program's decimal point */
    sn_str_add(out, text);
    if (!strpbrk(text, ".e")) sn_str_add(out, ".0");
}

static void write_ids(sn_str *out, const char *key, const int64_t *ids, int count) {
    write_key(out, key);
    if (!count) sn_str_add(out, "null"); /* said, because transformers has defaults for absent ids */
    if (count > 1) sn_str_char(out, '[');
    for (int i = 0; i < count; i++) sn_str_printf(out, "%s%" PRId64, i ? ", " : "", ids[i]);
    if (count > 1) sn_str_char(out, ']');
}

static void write_rope(sn_str *out, const sn_rope *r) {
    static const char *const names[] = {"default", "linear", "llama3"};
    write_key(out, "rope_theta");
    write_real(out, r->theta);
    write_key(out, "rope_scaling");
    if (r->type == SN_ROPE_DEFAULT) {
        sn_str_add(out, "null");
        return;
    }
    sn_str_printf(out, "{\"rope_type\": \"%s\", \"factor\": ", names[r->type]);
    write_real(out, r->factor);
    if (r->type == SN_ROPE_LLAMA3) {
        sn_str_add(out, ", \"low_freq_factor\": ");
        write_real(out, r->low_freq_factor);
        sn_str_add(out, ", \"high_freq_factor\": ");
        write_real(out, r->high_freq_factor);
        sn_str_printf(out, ", \"original_max_position_embeddings\": %" PRId64, r->original_max_position);
    }
    sn_str_char(out, '}');
}

static void write_fields(sn_str *out, const sn_model_config *c) {
    int family = c->arch == SN_ARCH_LLAMA ? 1 : 2;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const struct field *f = &fields[i];
        const char *member = (const char *)c + f->at;
        if (f->family && f->family != family) continue;
        write_key(out, f->key);
        if (f->kind == INTEGER) sn_str_printf(out, "%" PRId64, *(const int64_t *)(const void *)member);
        else if (f->kind == REAL) write_real(out, *(const double *)(const void *)member);
        else if (f->kind == BOOLEAN) sn_str_add(out, *(const bool *)member ? "true" : "false");
        else sn_str_printf(out, "\"%s\"", sn_hidden_act_name(*(const sn_hidden_act *)(const void *)member));
    }
}

/* Keys of the text that was read and that the struct does not hold. */
static sn_status write_others(sn_str *out, const sn_model_config *c, bool *architectures) {
    sn_json r;
    sn_json_start(&r, "config.json", c->raw, c->raw_size);
    sn_status s = sn_json_want(&r, SN_JSON_OBJECT);
    while (s == SN_OK && (s = sn_json_next(&r)) == SN_OK && r.type != SN_JSON_OBJECT_END) {
        bool held = field_of(r.text) != NULL;
        *architectures |= sn_json_is(&r, "architectures");
        if (!held) {
            sn_str_add(out, ",\n  ");
            sn_str_json(out, r.text, r.size);
            sn_str_add(out, ": ");
        }
        s = sn_json_next(&r);
        size_t start = r.start;
        if (s == SN_OK) s = sn_json_skip(&r);
        if (s == SN_OK && !held) sn_str_append(out, c->raw + start, r.end - start);
    }
    sn_json_end(&r);
    return s;
}

sn_status sn_hf_config_text(const sn_model_config *c, sn_str *out) {
    static const char *const dtypes[] = {[SN_F32] = "float32", [SN_F16] = "float16", [SN_BF16] = "bfloat16"};
    bool architectures = false;
    if (c->rope.type == SN_ROPE_FACTORS) return sn_fail(SN_ERR_UNSUPPORTED, "config.json cannot hold these rope frequency factors");
    sn_str_char(out, '{');
    if (out->failed) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate config.json");
    write_key(out, "model_type");
    sn_str_json(out, c->architecture, strlen(c->architecture));
    write_fields(out, c);
    if (c->arch == SN_ARCH_LLAMA) write_rope(out, &c->rope);
    if (c->sliding_window) {
        write_key(out, "sliding_window");
        sn_str_printf(out, "%" PRId64, c->sliding_window);
    } else if (!strcmp(c->architecture, "mistral")) { /* transformers' default is 4096 */
        write_key(out, "sliding_window");
        sn_str_add(out, "null");
    }
    write_ids(out, "bos_token_id", &c->bos_id, c->bos_id >= 0);
    write_ids(out, "eos_token_id", c->eos_ids, c->eos_count);
    write_ids(out, "pad_token_id", &c->pad_id, c->pad_id >= 0);
    if (c->has_dtype) {
        write_key(out, "torch_dtype");
        sn_str_printf(out, "\"%s\"", dtypes[c->dtype]);
    }
    if (c->raw) SN_TRY(write_others(out, c, &architectures));
    if (!architectures) {
        bool mistral = !strcmp(c->architecture, "mistral");
        write_key(out, "architectures");
        sn_str_printf(out, "[\"%s\"]", c->arch == SN_ARCH_GPT2 ? "GPT2LMHeadModel" : mistral ? "MistralForCausalLM" : "LlamaForCausalLM");
    }
    sn_str_add(out, "\n}\n");
    return out->failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate config.json") : SN_OK;
}

sn_status sn_hf_config_write(const sn_model_config *c, const char *path) {
    sn_str text = {0};
    sn_status s = sn_hf_config_text(c, &text);
    if (s == SN_OK) s = sn_file_replace(path, text.data, text.size);
    sn_str_free(&text);
    return s;
}
