/* Writing PEFT adapters. Format: peft's LoraConfig (adapter_config.json) and save_pretrained (adapter_model.safetensors). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/peft.h"
#include "engine/session.h"
#include "io/model_names.h"
#include "io/safetensors.h"
#include "tensor/convert.h"

/* Writes one factor as f32, in pieces when it has to be converted. */
static sn_status write_factor(const sn_session *s, sn_st_writer *w, size_t index, sn_pid p) {
    enum { CHUNK = 1024 };
    const sn_persistent *e = &s->job->persistent[p];
    sn_pid master = sn_job_master(s->job, p), from = master == SN_NONE ? p : master;
    sn_dtype form = s->job->persistent[from].rest.form;
    const void *whole;
    SN_TRY(sn_session_whole(s, from, &whole));
    const char *data = whole;
    int64_t n = e->shape.d[0] * e->shape.d[1];
    float values[CHUNK];
    if (!data) return sn_fail(SN_ERR_USAGE, "%s: the device has no memory to export from", e->name);
    if (form == SN_F32) return sn_st_write(w, index, 0, data, (size_t)n * sizeof(float));
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;
        sn_to_f32(form, data + (size_t)at * (size_t)sn_dtypes[form].bytes, m, values);
        SN_TRY(sn_st_write(w, index, (uint64_t)at * sizeof(float), values, (size_t)m * sizeof(float)));
    }
    return SN_OK;
}

static sn_status write_tensors(const sn_session *s, sn_st_writer *w) {
    const sn_job *job = s->job;
    size_t index = 0;
    SN_TRY(sn_st_add_metadata(w, "format", "pt"));
    for (size_t p = 0; p < job->n_persistent; p++) {
        const sn_persistent *e = &job->persistent[p];
        char name[SN_ADAPTER_NAME];
        if (e->adapter_of == SN_NONE) continue;
        if (!sn_adapter_tensor_name(job->persistent[e->adapter_of].name, e->adapter_part, name))
            return sn_fail(SN_ERR_UNSUPPORTED, "%s: PEFT has no name for it", e->name);
        SN_TRY(sn_st_add_tensor(w, name, SN_F32, &e->shape));
    }
    if (!w->tensor_count) return sn_fail(SN_ERR_USAGE, "the run has no adapters to export: was it opened with --lora or --qlora?");
    SN_TRY(sn_st_write_begin(w));
    for (size_t p = 0; p < job->n_persistent; p++)
        if (job->persistent[p].adapter_of != SN_NONE) SN_TRY(write_factor(s, w, index++, (sn_pid)p));
    return sn_st_write_finish(w);
}

/* "q_proj" of "model.layers.0.self_attn.q_proj". */
static const char *leaf_of(const char *module) {
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* The module that a tensor's name (with `end` behind it) belongs to; false when it has another end. */
static bool module_of(const char *name, const char *end, char module[256]) {
    size_t n = strlen(name), m = strlen(end);
    if (n < m || n - m >= 256 || strcmp(name + n - m, end)) return false;
    memcpy(module, name, n - m);
    module[n - m] = 0;
    return true;
}

/* How many linear modules of the model's blocks have this leaf name. */
static size_t modules_of_leaf(const sn_model_config *c, const char *leaf) {
    size_t count = 0;
    for (size_t i = 0; i < sn_model_name_count(c); i++) {
        sn_model_name n;
        char module[256];
        sn_model_name_at(c, i, &n);
        if (strncmp(n.gguf, "blk.", 4) || n.shape.rank != 2 || !module_of(n.hf, ".weight", module)) continue;
        count += !strcmp(leaf_of(module), leaf);
    }
    return count;
}

/* The module of the weight that entry p is the first part of an adapter of. */
static bool adapted_module(const sn_job *job, size_t p, char module[256]) {
    const sn_persistent *e = &job->persistent[p];
    return e->adapter_of != SN_NONE && e->adapter_part == SN_ADAPTER_DOWN &&
           module_of(job->persistent[e->adapter_of].name, ".weight", module);
}

/* Appends target_modules: the leaf where all of its modules are adapted, else each module by its whole name. */
static sn_status add_targets(const sn_session *s, sn_str *text) {
    const sn_job *job = s->job;
    sn_names listed = {0};
    sn_status status = SN_OK;
    size_t first = text->size;
    for (size_t p = 0; status == SN_OK && p < job->n_persistent; p++) {
        char module[256], other[256];
        size_t adapted = 0, index;
        bool added;
        if (!adapted_module(job, p, module)) continue;
        for (size_t q = 0; q < job->n_persistent; q++)
            if (adapted_module(job, q, other)) adapted += !strcmp(leaf_of(other), leaf_of(module));
        const char *target = adapted == modules_of_leaf(s->model->config, leaf_of(module)) ? leaf_of(module) : module;
        status = sn_names_add(&listed, target, strlen(target), &index, &added);
        if (status != SN_OK || !added) continue;
        if (text->size > first) sn_str_add(text, ", ");
        sn_str_json(text, target, strlen(target));
    }
    sn_names_free(&listed);
    return status;
}

/* The shortest decimal that reads as the same number. */
static void add_number(sn_str *text, double x) {
    char digits[32];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, x);
        if (strtod(digits, NULL) == x) break;
    }
    sn_str_add(text, digits);
}

static sn_status config_text(const sn_session *s, const sn_options *recipe, const char *base, sn_str *text) {
    sn_str_add(text, "{\n  \"base_model_name_or_path\": ");
    sn_str_json(text, base, strlen(base));
    sn_str_printf(text,
                  ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n  "
                  "\"lora_alpha\": ",
                  s->model->config->arch == SN_ARCH_GPT2 ? "true" : "false");
    add_number(text, sn_options_float(recipe, "lora_alpha"));
    sn_str_add(text, ",\n  \"lora_dropout\": ");
    add_number(text, sn_options_float(recipe, "lora_dropout"));
    sn_str_printf(
        text, ",\n  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n  \"revision\": null,\n  \"target_modules\": [",
        (long long)sn_options_int(recipe, "lora_rank"));
    SN_TRY(add_targets(s, text));
    sn_str_printf(text, "],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n  \"use_rslora\": %s\n}\n",
                  sn_options_bool(recipe, "use_rslora") ? "true" : "false");
    return text->failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate adapter_config.json") : SN_OK;
}

sn_status sn_export_adapter(const sn_session *s, const sn_options *recipe, const char *base, const char *out_dir) {
    sn_st_writer w = {0};
    sn_str text = {0};
    char *tensors = sn_path_join(out_dir, "adapter_model.safetensors"), *config = sn_path_join(out_dir, "adapter_config.json");
    sn_status status = tensors && config ? sn_make_dirs(out_dir) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    if (status == SN_OK) status = config_text(s, recipe, base, &text);
    if (status == SN_OK) status = sn_st_write_open(tensors, &w);
    if (status == SN_OK) status = write_tensors(s, &w);
    sn_st_write_close(&w);
    if (status == SN_OK) status = sn_file_replace(config, text.data, text.size);
    sn_str_free(&text);
    sn_free(tensors);
    sn_free(config);
    return status;
}
