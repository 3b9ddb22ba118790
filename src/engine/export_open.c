/* Which values an export writes, and where each comes from. */
#include <string.h>

#include "base/log.h"
#include "engine/export_values.h"

static bool has_part(const sn_export *v, const char *weight, sn_adapter_part part) {
    if (v->has_adapter) return sn_adapter_find(&v->adapter, weight, part) != NULL;
    return v->session && sn_job_adapter(v->session->job, sn_job_find(v->session->job, weight), part) != SN_NONE;
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

/* Names the adapter's first tensor that is no factor of a module of this model. */
static sn_status name_unmatched(const sn_export *v) {
    for (size_t i = 0; i < v->adapter.tensors.tensor_count; i++) {
        const sn_st_tensor *t = &v->adapter.tensors.tensors[i];
        bool matched = false;
        for (size_t k = 0; k < v->count && !matched; k++) {
            const char *weight = v->items[k].name.hf;
            matched = v->items[k].adapted && (sn_adapter_find(&v->adapter, weight, SN_ADAPTER_DOWN) == t ||
                                              sn_adapter_find(&v->adapter, weight, SN_ADAPTER_UP) == t);
        }
        if (!matched) return sn_fail(SN_ERR_FORMAT, "the adapter's tensor %s matches no module of %s", t->name, v->model->path);
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
        bool a = has_part(v, item->name.hf, SN_ADAPTER_DOWN), b = has_part(v, item->name.hf, SN_ADAPTER_UP);
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
    return v->has_adapter && 2 * used != v->adapter.tensors.tensor_count ? name_unmatched(v) : SN_OK;
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

sn_status sn_export_open(sn_export *v, const sn_model *model, const sn_session *session, const char *adapter, int threads) {
    *v = (sn_export){.model = model, .session = session, .config = *model->config};
    sn_status s = adapter ? sn_adapter_open(adapter, &v->adapter) : SN_OK;
    v->has_adapter = adapter && s == SN_OK;
    if (s == SN_OK && !session && !model->has_weights) s = sn_fail(SN_ERR_USAGE, "%s has no weights to export", model->path);
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
    sn_adapter_close(&v->adapter);
    *v = (sn_export){0};
}
