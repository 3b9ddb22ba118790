/* Which values an export writes, and where each comes from. */
#include <math.h>
#include <string.h>

#include <stdio.h>

#include "base/file.h"
#include "base/log.h"
#include "engine/adapter.h"
#include "engine/export_values.h"
#include "io/safetensors.h"

static bool factor_exists(const sn_export *v, const char *hf, const char *which) {
    char name[320];
    size_t n = strlen(hf), end = strlen(".weight");
    if (n < end || strcmp(hf + n - end, ".weight")) return false;
    snprintf(name, sizeof name, "base_model.model.%.*s.lora_%s.weight", (int)(n - end), hf, which);
    if (v->has_adapter) return sn_st_find(&v->adapter, name) != NULL;
    return v->session && sn_job_find(v->session->job, name) != SN_NONE;
}

static float lora_scale(const sn_options *recipe) {
    double alpha = sn_options_float(recipe, "lora_alpha"), rank = (double)sn_options_int(recipe, "lora_rank");
    return (float)(sn_options_bool(recipe, "use_rslora") ? alpha / sqrt(rank) : alpha / rank);
}

static sn_status open_adapter(sn_export *v, const char *dir) {
    sn_options *plain;
    SN_TRY(sn_recipe_new(&plain));
    sn_status s = sn_adapter_recipe(dir, plain, &v->own_recipe);
    sn_options_close(plain);
    SN_TRY(s);
    v->recipe = v->own_recipe;
    char *path = sn_path_join(dir, "adapter_model.safetensors");
    s = path ? sn_st_open(path, &v->adapter) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_free(path);
    v->has_adapter = s == SN_OK;
    return s;
}

/* Where the item's values come from; false when the model has no such tensor of its own. */
static bool find_source(const sn_export *v, sn_export_item *item) {
    const sn_model *m = v->model;
    item->run = SN_NONE;
    item->file = m->has_weights ? sn_model_files_find(&m->files, item->name.hf) : NULL;
    sn_pid p = v->session ? sn_job_find(v->session->job, item->name.hf) : SN_NONE;
    if (p != SN_NONE && (v->session->job->persistent[p].trainable || !item->file)) {
        item->run = p;
        item->file = NULL;
    }
    return item->file || item->run != SN_NONE;
}

/* The adapter's first tensor that is no factor of a module of this model. */
static sn_status name_unmatched(const sn_export *v) {
    for (size_t i = 0; i < v->adapter.tensor_count; i++) {
        bool matched = false;
        for (size_t k = 0; k < v->count && !matched; k++) {
            const char *hf = v->items[k].name.hf;
            char a[320], b[320];
            int n = (int)(strlen(hf) - strlen(".weight"));
            if (!v->items[k].adapted) continue;
            snprintf(a, sizeof a, "base_model.model.%.*s.lora_A.weight", n, hf);
            snprintf(b, sizeof b, "base_model.model.%.*s.lora_B.weight", n, hf);
            matched = !strcmp(v->adapter.tensors[i].name, a) || !strcmp(v->adapter.tensors[i].name, b);
        }
        if (!matched)
            return sn_fail(SN_ERR_FORMAT, "the adapter's tensor %s matches no module of %s", v->adapter.tensors[i].name, v->model->path);
    }
    return sn_fail(SN_ERR_INTERNAL, "the adapter's tensors are counted wrongly");
}

static sn_status list_items(sn_export *v) {
    size_t count = sn_model_name_count(&v->config), used = 0;
    if (!(v->items = sn_alloc_zero(count, sizeof *v->items)))
        return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate the list of tensors", v->model->path);
    for (size_t i = 0; i < count; i++) {
        sn_export_item *item = &v->items[v->count];
        sn_model_name_at(v->model->config, i, &item->name);
        bool a = factor_exists(v, item->name.hf, "A"), b = factor_exists(v, item->name.hf, "B");
        if (a != b) return sn_fail(SN_ERR_FORMAT, "%s: the adapter has one factor only", item->name.hf);
        item->adapted = a;
        if (a && item->name.shape.rank != 2) return sn_fail(SN_ERR_UNSUPPORTED, "%s: an adapter on a vector", item->name.hf);
        used += a;
        if (item->name.optional) { /* lm_head of tied embeddings: a tensor of its own once an adapter changes it */
            if (!a) continue;
            sn_model_name_at(v->model->config, 0, &v->items[v->count].name);
            find_source(v, item);
            sn_model_name_at(v->model->config, i, &item->name);
            v->config.tie_word_embeddings = false;
        } else if (!find_source(v, item)) {
            return sn_fail(SN_ERR_FORMAT, "%s: tensor %s is missing", v->model->path, item->name.hf);
        }
        item->form = sn_export_source_form(v, item);
        v->count++;
    }
    return v->has_adapter && 2 * used != v->adapter.tensor_count ? name_unmatched(v) : SN_OK;
}

static sn_status open_staging(sn_export *v, int threads) {
    if (v->session) {
        uint64_t bytes;
        v->team = sn_run_team(v->session->run);
        v->stage = sn_run_transient(v->session->run, &bytes);
        v->stage_bytes = bytes < SN_STAGING_BYTES ? (size_t)bytes : SN_STAGING_BYTES;
        return v->stage ? SN_OK : sn_fail(SN_ERR_USAGE, "the device has no memory to export from");
    }
    v->stage_bytes = SN_STAGING_BYTES;
    if (!(v->stage = v->own_stage = sn_alloc(v->stage_bytes))) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a staging area");
    SN_TRY(sn_team_open(threads, NULL, &v->own_team));
    v->team = v->own_team;
    return SN_OK;
}

/* States which base an adapter is merged into. */
static void tell_base(const sn_export *v) {
    size_t by_form[SN_DTYPE_COUNT] = {0};
    sn_str text = {0};
    for (size_t i = 0; i < v->count; i++)
        if (v->items[i].adapted) by_form[sn_export_source_form(v, &v->items[i])]++;
    for (int f = 0; f < SN_DTYPE_COUNT; f++)
        if (by_form[f])
            sn_str_printf(&text, "%s%zu tensors %s%s", text.size ? ", " : "", by_form[f],
                          sn_dtype_is_quantised((sn_dtype)f) ? "dequantised from " : "in ", sn_dtype_name((sn_dtype)f));
    if (text.size) sn_info("merging the adapter in f32 into the base of %s: %s", v->model->path, text.data);
    sn_str_free(&text);
}

sn_status sn_export_open(sn_export *v, const sn_model *model, const sn_session *session, const sn_options *recipe, const char *adapter,
                         int threads) {
    *v = (sn_export){.model = model, .session = session, .recipe = recipe, .config = *model->config};
    sn_status s = adapter ? open_adapter(v, adapter) : SN_OK;
    if (s == SN_OK && !session && !model->has_weights) s = sn_fail(SN_ERR_USAGE, "%s has no weights to export", model->path);
    if (s == SN_OK && v->recipe) v->scale = lora_scale(v->recipe);
    if (s == SN_OK) s = list_items(v);
    if (s == SN_OK) s = open_staging(v, threads);
    if (s == SN_OK) tell_base(v);
    else sn_export_close(v);
    return s;
}

void sn_export_close(sn_export *v) {
    for (size_t i = 0; i < 3; i++) sn_free(v->delta.owned[i]);
    sn_team_close(v->own_team);
    sn_free(v->own_stage);
    sn_free(v->items);
    sn_st_close(&v->adapter);
    sn_options_close(v->own_recipe);
    *v = (sn_export){0};
}
