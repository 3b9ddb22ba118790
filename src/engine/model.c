#include "engine/model.h"

#include <string.h>

#include "base/file.h"
#include "io/chat_template.h"
#include "io/hf_config.h"
#include "io/hub.h"

enum { TOKENIZER_MAX = 256 << 20 };

static sn_status read_part(const char *dir, const char *name, char **text, size_t *size) {
    *text = NULL;
    char *path = sn_path_join(dir, name);
    if (!path) return sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_status s = sn_path_exists(path) ? sn_file_read_all(path, TOKENIZER_MAX, text, size) : SN_OK;
    sn_free(path);
    return s;
}

static sn_status open_folder_tokenizer(sn_model *m) {
    char *json, *config = NULL, *template = NULL;
    size_t json_size = 0, config_size = 0, template_size = 0;
    SN_TRY(read_part(m->path, "tokenizer.json", &json, &json_size));
    if (!json) return SN_OK;
    sn_status s = read_part(m->path, "tokenizer_config.json", &config, &config_size);
    if (s == SN_OK) s = sn_tokenizer_from_json(m->path, json, json_size, config, config_size, &m->tokenizer);
    if (s == SN_OK) s = read_part(m->path, "chat_template.jinja", &template, &template_size);
    if (s == SN_OK && template) m->chat_template = template;
    else if (s == SN_OK && config) s = sn_hf_chat_template(m->path, config, config_size, &m->chat_template);
    sn_generation_config g;
    char *path = sn_path_join(m->path, "generation_config.json");
    if (s == SN_OK && path && sn_path_exists(path) && (s = sn_generation_config_read(path, &g)) == SN_OK)
        for (int i = 0; s == SN_OK && i < g.eos_count; i++) s = sn_tokenizer_add_eos(m->tokenizer, (int32_t)g.eos_ids[i]);
    sn_free(path);
    sn_free(json);
    sn_free(config);
    return s;
}

static sn_status open_gguf_tokenizer(sn_model *m) {
    const char *template, *kind;
    if (!sn_gguf_find(&m->files.gguf, "tokenizer.ggml.model")) return SN_OK;
    SN_TRY(sn_gguf_get_string(&m->files.gguf, "tokenizer.ggml.model", &kind));
    if (!strcmp(kind, "none") || !strcmp(kind, "no_vocab")) return SN_OK;
    SN_TRY(sn_tokenizer_from_gguf(&m->files.gguf, &m->tokenizer));
    if (!sn_gguf_find(&m->files.gguf, "tokenizer.chat_template")) return SN_OK;
    SN_TRY(sn_gguf_get_string(&m->files.gguf, "tokenizer.chat_template", &template));
    m->chat_template = sn_strdup(template);
    return m->chat_template ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot copy the chat template");
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static sn_status open_weights(sn_model *m) {
    SN_TRY(sn_model_files_open(m->path, &m->files));
    m->has_weights = true;
    m->config = &m->files.config;
    return m->files.is_gguf ? open_gguf_tokenizer(m) : open_folder_tokenizer(m);
}

sn_status sn_model_open(const char *name, sn_model *m) {
    *m = (sn_model){0};
    if (!sn_path_exists(name) && sn_named_shape(name, &m->shape)) {
        m->config = &m->shape;
        m->path = sn_strdup(name);
        return m->path ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot copy a name");
    }
    sn_status s = sn_hub_resolve(name, &m->path);
    if (s == SN_OK && ends_with(m->path, ".json")) {
        s = sn_hf_config_read(m->path, &m->shape);
        m->config = &m->shape;
    } else if (s == SN_OK && sn_path_is_dir(m->path)) {
        char *index = sn_path_join(m->path, "model.safetensors.index.json"), *one = sn_path_join(m->path, "model.safetensors");
        char *config = sn_path_join(m->path, "config.json");
        if (!index || !one || !config) s = sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
        else if (sn_path_exists(index) || sn_path_exists(one)) s = open_weights(m);
        else if ((s = sn_hf_config_read(config, &m->shape)) == SN_OK) m->config = &m->shape;
        sn_free(index);
        sn_free(one);
        sn_free(config);
    } else if (s == SN_OK) {
        s = open_weights(m);
    }
    if (s != SN_OK) sn_model_close(m);
    return s;
}

void sn_model_close(sn_model *m) {
    if (m->has_weights) sn_model_files_close(&m->files);
    else if (m->config) sn_model_config_free(&m->shape);
    sn_tokenizer_close(m->tokenizer);
    sn_free(m->chat_template);
    sn_free(m->path);
    *m = (sn_model){0};
}

static sn_status find_parameter(void *state, const char *name, const sn_shape *shape, sn_source *source, const char **path) {
    const sn_model *m = state;
    const sn_model_tensor *t = sn_model_files_find(&m->files, name);
    char wanted[96], found[96];
    if (!t) return sn_fail(SN_ERR_FORMAT, "%s: tensor %s is missing", m->path, name);
    if (!sn_shape_equal(&t->shape, shape))
        return sn_fail(SN_ERR_SHAPE, "%s: tensor %s is %s, the configuration wants %s", m->path, name, sn_shape_text(&t->shape, found),
                       sn_shape_text(shape, wanted));
    source->form = t->dtype;
    source->offset = t->offset;
    source->row_heads = (int32_t)t->row_heads;
    source->transposed = t->transposed;
    *path = t->path;
    return SN_OK;
}

sn_parameters sn_model_parameters(sn_model *m) { return (sn_parameters){.find = m->has_weights ? find_parameter : NULL, .state = m}; }
