#include "engine/adapter.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

/* What must be absent, null, false or empty, because snug has no code for it. */
static const char *const unsupported[] = {"use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform", "exclude_modules"};

static bool is_empty(const json_t *v) {
    return !v || json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

static sn_status set_number(sn_options *o, const char *key, const json_t *v, const char *path) {
    char text[40];
    if (!json_is_number(v)) return sn_fail(SN_ERR_FORMAT, "%s: %s is no number", path, key);
    if (json_is_integer(v)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    else snprintf(text, sizeof text, "%.17g", json_real_value(v));
    return sn_options_set(o, key, text, SN_FROM_COMMAND_LINE, path);
}

static sn_status set_targets(sn_options *o, const json_t *v, const char *path) {
    sn_str text = {0};
    sn_status s = SN_OK;
    if (json_is_string(v)) {
        if (strcmp(json_string_value(v), "all-linear")) s = sn_fail(SN_ERR_UNSUPPORTED, "%s: target_modules as a regular expression", path);
        else sn_str_add(&text, "all-linear");
    } else if (!json_is_array(v) || !json_array_size(v)) {
        s = sn_fail(SN_ERR_FORMAT, "%s: target_modules is no list of names", path);
    }
    for (size_t i = 0; s == SN_OK && json_is_array(v) && i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name) s = sn_fail(SN_ERR_FORMAT, "%s: target_modules[%zu] is no text", path, i);
        else sn_str_printf(&text, "%s%s", i ? "," : "", name);
    }
    if (s == SN_OK && text.failed) s = sn_fail(SN_ERR_NO_MEMORY, "cannot keep the targets of %s", path);
    if (s == SN_OK) s = sn_options_set(o, "lora_target", text.data, SN_FROM_COMMAND_LINE, path);
    sn_str_free(&text);
    return s;
}

static sn_status read_config(const json_t *root, const char *path, sn_options *o) {
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
        if (!is_empty(json_object_get(root, unsupported[i]))) return sn_fail(SN_ERR_UNSUPPORTED, "%s: snug has no code for %s", path, unsupported[i]);
    const char *type = json_string_value(json_object_get(root, "peft_type")), *bias = json_string_value(json_object_get(root, "bias"));
    if (!type || strcmp(type, "LORA")) return sn_fail(SN_ERR_UNSUPPORTED, "%s: peft_type is %s, wanted LORA", path, type ? type : "missing");
    if (bias && strcmp(bias, "none")) return sn_fail(SN_ERR_UNSUPPORTED, "%s: bias is '%s', wanted none", path, bias);
    SN_TRY(set_number(o, "lora_rank", json_object_get(root, "r"), path));
    SN_TRY(set_number(o, "lora_alpha", json_object_get(root, "lora_alpha"), path));
    SN_TRY(set_targets(o, json_object_get(root, "target_modules"), path));
    SN_TRY(sn_options_set(o, "use_rslora", json_is_true(json_object_get(root, "use_rslora")) ? "true" : "false", SN_FROM_COMMAND_LINE, path));
    return sn_options_bool(o, "qlora") ? SN_OK : sn_options_set(o, "lora", "true", SN_FROM_COMMAND_LINE, path);
}

sn_status sn_adapter_recipe(const char *dir, const sn_options *recipe, sn_options **out) {
    json_error_t error;
    *out = NULL;
    char *path = sn_path_join(dir, "adapter_config.json");
    if (!path) return sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    sn_status s = root ? sn_options_copy(recipe, out) : sn_fail(SN_ERR_FORMAT, "%s:%d: %s", path, error.line, error.text);
    if (s == SN_OK) s = read_config(root, path, *out);
    if (s != SN_OK) {
        sn_options_close(*out);
        *out = NULL;
    }
    json_decref(root);
    sn_free(path);
    return s;
}

sn_status sn_hf_chat_template(const char *name, const char *text, size_t size, char **out) {
    json_error_t error;
    *out = NULL;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root) return sn_fail(SN_ERR_FORMAT, "%s/tokenizer_config.json:%d: %s", name, error.line, error.text);
    const json_t *v = json_object_get(root, "chat_template"), *item;
    size_t i;
    const char *found = json_string_value(v);
    if (json_is_array(v)) json_array_foreach(v, i, item) {
            const char *which = json_string_value(json_object_get(item, "name"));
            if (which && !strcmp(which, "default")) found = json_string_value(json_object_get(item, "template"));
        }
    if (found) *out = sn_strdup(found);
    sn_status s = found && !*out ? sn_fail(SN_ERR_NO_MEMORY, "cannot copy the chat template") : SN_OK;
    json_decref(root);
    return s;
}
