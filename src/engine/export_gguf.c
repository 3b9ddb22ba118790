/* GGUF files. Names and layout: io/model_names.h; which tensors stay f32: as llama.cpp's converter. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/export_write.h"
#include "io/gguf_config.h"
#include "io/tokenizer_export.h"

/* general.file_type of llama.cpp; -1: it has none for this form. */
static int file_type(int form) {
    static const struct {
        sn_dtype form;
        int type;
    } types[] = {{SN_F32, 0}, {SN_F16, 1}, {SN_Q4_0, 2}, {SN_Q4_1, 3}, {SN_Q8_0, 7}, {SN_Q5_0, 8}, {SN_Q5_1, 9}, {SN_BF16, 32}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (form != SN_FORM_SOURCE && types[i].form == (sn_dtype)form) return types[i].type;
    return -1;
}

static bool fits(sn_dtype form, const sn_export_item *item) {
    size_t bytes;
    return sn_dtype_row_bytes(form, item->name.shape.d[item->flipped ? 0 : item->name.shape.rank - 1], &bytes);
}

static sn_dtype wanted_form(const sn_export *v, const sn_export_item *item, int form) {
    sn_dtype source = sn_export_source_form(v, item);
    bool output =
        !strcmp(item->name.gguf, "output.weight") || (v->config.tie_word_embeddings && !strcmp(item->name.gguf, "token_embd.weight"));
    if (item->name.shape.rank == 1) return SN_F32;
    if (form == SN_FORM_SOURCE) return source;
    if (!strcmp(item->name.gguf, "position_embd.weight")) return SN_F32;
    if (output && sn_dtype_is_quantised((sn_dtype)form)) return SN_Q8_0;
    return (sn_dtype)form;
}

/* Sets every item's form; what cannot have the form asked for is named in one warning. */
static void choose_forms(sn_export *v, int form, sn_export_report *report) {
    sn_str names = {0};
    for (size_t i = 0; i < v->count; i++) {
        sn_export_item *item = &v->items[i];
        item->flipped = item->name.transposed;
        sn_dtype wanted = item->form = wanted_form(v, item, form);
        if (!sn_export_is_verbatim(v, item)) {
            if (!sn_export_can_encode(item->form)) item->form = SN_Q8_0;
            if (!fits(item->form, item)) item->form = SN_F16;
        }
        if (item->form == wanted) continue;
        if (report->fallbacks++ < 8) sn_str_printf(&names, "%s%s (%s)", names.size ? ", " : "", item->name.gguf, sn_dtype_name(item->form));
    }
    if (report->fallbacks)
        sn_warn("%llu tensors cannot have form %s, and keep another: %s%s", (unsigned long long)report->fallbacks,
                form == SN_FORM_SOURCE ? "of their source" : sn_dtype_name((sn_dtype)form), names.data ? names.data : "",
                report->fallbacks > 8 ? ", ..." : "");
    sn_str_free(&names);
}

/* Keys that this file states for itself. */
static bool is_own_key(const char *key, bool keeps_type) {
    if (!strncmp(key, "split.", 6) || !strcmp(key, "general.alignment")) return true;
    if (!strcmp(key, "general.quantization_version")) return true;
    return !keeps_type && !strcmp(key, "general.file_type");
}

static sn_status copy_metadata(const sn_export *v, int form, sn_gguf_writer *w) {
    const sn_gguf *g = &v->model->files.gguf;
    for (size_t i = 0; i < g->kv_count; i++)
        if (!is_own_key(g->kv[i].key, form == SN_FORM_SOURCE)) SN_TRY(sn_gguf_add_copy(w, g, &g->kv[i]));
    return SN_OK;
}

static sn_status read_part(const char *dir, const char *name, char **text, size_t *size) {
    enum { MOST = 256 << 20 };
    char *path = sn_path_join(dir, name);
    *text = NULL;
    sn_status s = path ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    if (s == SN_OK && sn_path_exists(path)) s = sn_file_read_all(path, MOST, text, size);
    sn_free(path);
    return s;
}

/* Readers then know that there is none; the model's own ids stay. */
static sn_status add_no_tokenizer(const sn_model_config *c, sn_gguf_writer *w) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    SN_TRY(sn_gguf_add_string(w, "tokenizer.ggml.model", "none", 4));
    if (c->arch == SN_ARCH_GPT2) SN_TRY(sn_gguf_add_u32(w, "gpt2.vocab_size", (uint32_t)c->vocab_size));
    if (c->bos_id >= 0) SN_TRY(sn_gguf_add_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)c->bos_id));
    if (c->pad_id >= 0) SN_TRY(sn_gguf_add_u32(w, "tokenizer.ggml.padding_token_id", (uint32_t)c->pad_id));
    for (int i = 0; i < 2 && i < c->eos_count; i++) SN_TRY(sn_gguf_add_u32(w, ends[i], (uint32_t)c->eos_ids[i]));
    return SN_OK;
}

static sn_status add_folder_tokenizer(const sn_export *v, sn_gguf_writer *w) {
    const sn_model *m = v->model;
    char *json = NULL, *config = NULL;
    sn_tokenizer_files files = {
        .name = m->path, .eos_ids = v->config.eos_ids, .eos_count = v->config.eos_count, .vocab_size = v->config.vocab_size};
    sn_status s = m->tokenizer ? read_part(m->path, "tokenizer.json", &json, &files.json_size) : SN_OK;
    if (s == SN_OK && json) s = read_part(m->path, "tokenizer_config.json", &config, &files.config_size);
    files.json = json;
    files.config = config;
    if (s == SN_OK) s = json ? sn_gguf_add_tokenizer(w, &files) : add_no_tokenizer(&v->config, w);
    if (s == SN_OK && m->chat_template) s = sn_gguf_add_string(w, "tokenizer.chat_template", m->chat_template, strlen(m->chat_template));
    sn_free(json);
    sn_free(config);
    return s;
}

static sn_status make_metadata(const sn_export *v, sn_gguf_writer *w) {
    SN_TRY(sn_gguf_config_write(&v->config, w));
    return add_folder_tokenizer(v, w);
}

static sn_status add_metadata(const sn_export *v, int form, sn_gguf_writer *w) {
    bool from_gguf = v->model->has_weights && v->model->files.is_gguf, quantised = false;
    for (size_t i = 0; i < v->count; i++) quantised |= sn_dtype_is_quantised(v->items[i].form);
    SN_TRY(from_gguf ? copy_metadata(v, form, w) : make_metadata(v, w));
    if (file_type(form) >= 0) SN_TRY(sn_gguf_add_u32(w, "general.file_type", (uint32_t)file_type(form)));
    return quantised ? sn_gguf_add_u32(w, "general.quantization_version", 2) : SN_OK;
}

static sn_status add_tensors(sn_export *v, sn_gguf_writer *w, sn_export_report *report) {
    for (size_t i = 0; i < v->count; i++) {
        const sn_export_item *item = &v->items[i];
        sn_shape shape = item->name.shape;
        if (item->flipped) shape = sn_shape_of(item->name.shape.d[1], item->name.shape.d[0]);
        sn_export_count(item, report);
        SN_TRY(sn_gguf_add_tensor(w, item->name.gguf, item->form, &shape));
    }
    sn_shape divisors = sn_shape_of(v->config.head_dim / 2);
    return sn_gguf_config_has_rope_freqs(&v->config) ? sn_gguf_add_tensor(w, "rope_freqs.weight", SN_F32, &divisors) : SN_OK;
}

static sn_status copy_tensor(sn_export *v, sn_gguf_writer *w, size_t index) {
    const sn_model_tensor *t = v->items[index].file;
    for (uint64_t at = 0; at < t->bytes; at += v->stage_bytes) {
        size_t n = t->bytes - at < v->stage_bytes ? (size_t)(t->bytes - at) : v->stage_bytes;
        SN_TRY(sn_model_files_read_stored(&v->model->files, t, at, v->stage, n));
        SN_TRY(sn_gguf_write(w, index, at, v->stage, n));
    }
    return SN_OK;
}

/* Rows of a permuted tensor go one by one to their places; a vector's elements are its rows. */
static sn_status write_permuted(const sn_export_item *item, sn_gguf_writer *w, size_t index, int64_t row0, int64_t n, size_t row_bytes,
                                const char *rows) {
    int64_t head_dim = item->name.shape.d[0] / item->name.row_heads;
    for (int64_t r = 0; r < n; r++)
        SN_TRY(sn_gguf_write(w, index, (uint64_t)sn_gguf_row(row0 + r, head_dim) * row_bytes, rows + (size_t)r * row_bytes, row_bytes));
    return SN_OK;
}

static sn_status write_tensor(sn_export *v, sn_gguf_writer *w, size_t index) {
    const sn_export_item *item = &v->items[index];
    size_t row_bytes;
    if (sn_export_is_verbatim(v, item)) return copy_tensor(v, w, index);
    SN_TRY(sn_export_begin(v, index));
    if (!sn_dtype_row_bytes(item->form, v->columns, &row_bytes)) return sn_fail(SN_ERR_SHAPE, "%s does not fit its form", item->name.gguf);
    for (int64_t row = 0, n; row < v->rows; row += n) {
        const char *rows;
        SN_TRY(sn_export_tile(v, row, &n, &rows));
        bool vector = item->name.shape.rank == 1;
        if (item->name.row_heads)
            SN_TRY(write_permuted(item, w, index, row, vector ? v->columns : n, vector ? sizeof(float) : row_bytes, rows));
        else SN_TRY(sn_gguf_write(w, index, (uint64_t)row * row_bytes, rows, (size_t)n * row_bytes));
    }
    return SN_OK;
}

static sn_status write_divisors(sn_export *v, sn_gguf_writer *w) {
    if (!sn_gguf_config_has_rope_freqs(&v->config)) return SN_OK;
    size_t bytes = (size_t)(v->config.head_dim / 2) * sizeof(float);
    sn_rope_divisors(&v->config, (float *)(void *)v->stage);
    return sn_gguf_write(w, v->count, 0, v->stage, bytes);
}

sn_status sn_export_write_gguf(sn_export *v, const char *path, int form, sn_export_report *report) {
    sn_export_report own = {0};
    sn_gguf_writer w;
    char size[24];
    if (!report) report = &own;
    *report = (sn_export_report){0};
    if (sn_export_same_file(v->model->path, path)) return sn_fail(SN_ERR_USAGE, "%s is the model's own file", path);
    choose_forms(v, form, report);
    SN_TRY(sn_gguf_write_open(path, 0, &w));
    sn_status s = add_metadata(v, form, &w);
    if (s == SN_OK) s = add_tensors(v, &w, report);
    if (s == SN_OK) s = sn_gguf_write_begin(&w);
    for (size_t i = 0; s == SN_OK && i < v->count; i++) s = write_tensor(v, &w, i);
    if (s == SN_OK) s = write_divisors(v, &w);
    if (s == SN_OK) s = sn_gguf_write_finish(&w);
    sn_gguf_write_close(&w);
    if (s == SN_OK)
        sn_info("%s: %llu tensors, %s, %.3f bits per weight", path, (unsigned long long)report->tensors, sn_bytes_text(report->bytes, size),
                8.0 * (double)report->bytes / (double)report->elements);
    return s;
}
