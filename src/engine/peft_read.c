/* Reading PEFT adapters. Format: peft's LoraConfig (adapter_config.json) and save_pretrained (adapter_model.safetensors). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/job.h"
#include "engine/peft.h"
#include "tensor/convert.h"

/* What must be absent, null, false or empty, because snug has no code for it. */
static const char *const unsupported[] = {"use_dora",      "modules_to_save",     "rank_pattern",
                                          "alpha_pattern", "layers_to_transform", "exclude_modules"};

static bool is_empty(const json_t *v) {
    return !v || json_is_null(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
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
        if (!is_empty(json_object_get(root, unsupported[i])))
            return sn_fail(SN_ERR_UNSUPPORTED, "%s: snug has no code for %s", path, unsupported[i]);
    const char *type = json_string_value(json_object_get(root, "peft_type")), *bias = json_string_value(json_object_get(root, "bias"));
    if (!type || strcmp(type, "LORA"))
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: peft_type is %s, wanted LORA", path, type ? type : "missing");
    if (bias && strcmp(bias, "none")) return sn_fail(SN_ERR_UNSUPPORTED, "%s: bias is '%s', wanted none", path, bias);
    SN_TRY(set_number(o, "lora_rank", json_object_get(root, "r"), path));
    SN_TRY(set_number(o, "lora_alpha", json_object_get(root, "lora_alpha"), path));
    SN_TRY(set_targets(o, json_object_get(root, "target_modules"), path));
    SN_TRY(
        sn_options_set(o, "use_rslora", json_is_true(json_object_get(root, "use_rslora")) ? "true" : "false", SN_FROM_COMMAND_LINE, path));
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

/* ---- Tensors ---- */

#define PREFIX "base_model.model."
static const char *const ends[] = {[SN_ADAPTER_DOWN] = ".lora_A.weight", [SN_ADAPTER_UP] = ".lora_B.weight"};

bool sn_adapter_tensor_name(const char *weight, sn_adapter_part part, char name[SN_ADAPTER_NAME]) {
    size_t n = strlen(weight), end = strlen(".weight");
    if (n < end || strcmp(weight + n - end, ".weight")) return false;
    return snprintf(name, SN_ADAPTER_NAME, PREFIX "%.*s%s", (int)(n - end), weight, ends[part]) < SN_ADAPTER_NAME;
}

/* The part of the job's adapters that a tensor of this name holds. */
static sn_pid part_of_name(const sn_job *job, const char *name) {
    char weight[SN_ADAPTER_NAME];
    size_t n = strlen(name), prefix = strlen(PREFIX);
    if (strncmp(name, PREFIX, prefix)) return SN_NONE;
    for (int part = SN_ADAPTER_DOWN; part <= SN_ADAPTER_UP; part++) {
        size_t end = strlen(ends[part]);
        if (n < prefix + end || strcmp(name + n - end, ends[part])) continue;
        if (snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - prefix - end), name + prefix) >= (int)sizeof weight) return SN_NONE;
        return sn_job_adapter(job, sn_job_find(job, weight), (sn_adapter_part)part);
    }
    return SN_NONE;
}

/* This rank's part of the values. */
static sn_status put(sn_run *run, const sn_job *job, sn_pid p, const float *values) {
    enum { CHUNK = 1024 };
    float buffer[CHUNK];
    const sn_placed *at = sn_run_placed(run, p);
    sn_dtype form = job->persistent[p].rest.form;
    int64_t where, n;
    for (int64_t k = 0; k < at->count; k += n) {
        n = sn_placed_run(at, &job->persistent[p].shape, k, &where);
        if (n > CHUNK) n = CHUNK;
        SN_TRY(sn_from_f32(form, values + where, n, buffer));
        SN_TRY(sn_run_write(run, p, (uint64_t)k * (uint64_t)sn_dtypes[form].bytes, buffer, (size_t)n * (size_t)sn_dtypes[form].bytes));
    }
    return SN_OK;
}

static sn_status load_tensor(sn_run *run, const sn_job *job, const sn_st *st, size_t index, const char *dir) {
    const sn_st_tensor *t = &st->tensors[index];
    char wanted[96], found[96];
    sn_pid p = part_of_name(job, t->name);
    if (p == SN_NONE) return sn_fail(SN_ERR_FORMAT, "%s: tensor %s matches no module of this model and recipe", dir, t->name);
    const sn_persistent *e = &job->persistent[p];
    if (!sn_shape_equal(&t->shape, &e->shape))
        return sn_fail(SN_ERR_SHAPE, "%s: tensor %s is %s, wanted %s (is --lora-rank the adapter's?)", dir, t->name,
                       sn_shape_text(&t->shape, found), sn_shape_text(&e->shape, wanted));
    int64_t n = e->shape.d[0] * e->shape.d[1];
    char *raw = sn_alloc((size_t)t->bytes);
    float *values = sn_alloc((size_t)n * sizeof *values);
    sn_status s =
        raw && values ? sn_st_read(st, t, 0, raw, (size_t)t->bytes) : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a tensor of %s", dir);
    if (s == SN_OK) {
        sn_to_f32(t->dtype, raw, n, values);
        s = put(run, job, p, values);
    }
    sn_pid master = sn_job_master(job, p);
    if (s == SN_OK && master != SN_NONE) s = put(run, job, master, values);
    sn_free(raw);
    sn_free(values);
    return s;
}

static sn_status open_tensors(const char *dir, sn_st *st) {
    char *path = sn_path_join(dir, "adapter_model.safetensors");
    sn_status s = path ? sn_st_open(path, st) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_free(path);
    return s;
}

sn_status sn_adapter_load(sn_run *run, const sn_job *job, const char *dir) {
    sn_st st;
    SN_TRY(open_tensors(dir, &st));
    size_t wanted = 0;
    sn_status s = SN_OK;
    for (size_t p = 0; p < job->n_persistent; p++) wanted += job->persistent[p].adapter_of != SN_NONE;
    for (size_t i = 0; s == SN_OK && i < st.tensor_count; i++) s = load_tensor(run, job, &st, i, dir);
    if (s == SN_OK && st.tensor_count != wanted)
        s = sn_fail(SN_ERR_FORMAT, "%s holds %zu tensors, this recipe's adapters have %zu (check --lora-target)", dir, st.tensor_count,
                    wanted);
    sn_st_close(&st);
    return s;
}

sn_status sn_adapter_open(const char *dir, sn_adapter *out) {
    sn_options *plain, *recipe;
    *out = (sn_adapter){0};
    SN_TRY(sn_recipe_new(&plain));
    sn_status s = sn_adapter_recipe(dir, plain, &recipe);
    sn_options_close(plain);
    SN_TRY(s);
    double alpha = sn_options_float(recipe, "lora_alpha"), rank = (double)sn_options_int(recipe, "lora_rank");
    out->scale = (float)(sn_options_bool(recipe, "use_rslora") ? alpha / sqrt(rank) : alpha / rank);
    sn_options_close(recipe);
    s = open_tensors(dir, &out->tensors);
    if (s != SN_OK) *out = (sn_adapter){0};
    return s;
}

void sn_adapter_close(sn_adapter *a) { sn_st_close(&a->tensors); }

const sn_st_tensor *sn_adapter_find(const sn_adapter *a, const char *weight, sn_adapter_part part) {
    char name[SN_ADAPTER_NAME];
    return sn_adapter_tensor_name(weight, part, name) ? sn_st_find(&a->tensors, name) : NULL;
}
