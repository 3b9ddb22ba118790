/* Hugging Face folders. Format: transformers' save_pretrained (config.json, model.safetensors, tokenizer files). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/export_write.h"
#include "io/commit.h"
#include "io/hf_config.h"
#include "io/safetensors.h"
#include "io/tokenizer_export.h"

enum { COPY_BYTES = 1 << 16 };
static const uint64_t shard_bytes = UINT64_C(5000000000);

static sn_status write_tensors(sn_export *v, const char *dir, sn_export_report *report) {
    sn_st_writer w;
    SN_TRY(sn_st_write_open_folder(dir, "model", shard_bytes, &w));
    sn_status s = sn_st_add_metadata(&w, "format", "pt");
    for (size_t i = 0; s == SN_OK && i < v->count; i++) {
        sn_export_count(&v->items[i], report);
        s = sn_st_add_tensor(&w, v->items[i].name.hf, v->items[i].form, &v->items[i].name.shape);
    }
    if (s == SN_OK) s = sn_st_write_begin(&w);
    for (size_t i = 0; s == SN_OK && i < v->count; i++) {
        s = sn_export_begin(v, i);
        size_t row_bytes = (size_t)v->columns * (size_t)sn_dtypes[v->items[i].form].bytes;
        for (int64_t row = 0, n = 0; s == SN_OK && row < v->rows; row += n) {
            const char *rows;
            s = sn_export_tile(v, row, &n, &rows);
            if (s == SN_OK) s = sn_st_write(&w, i, (uint64_t)row * row_bytes, rows, (size_t)n * row_bytes);
        }
    }
    if (s == SN_OK) s = sn_st_write_finish(&w);
    sn_st_write_close(&w);
    return s;
}

static sn_status replace_in(const char *dir, const char *name, const char *text, size_t size) {
    char *path = sn_path_join(dir, name);
    sn_status s = path ? sn_file_replace(path, text, size) : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    sn_free(path);
    return s;
}

static sn_status copy_bytes(int from, const char *from_path, uint64_t size, int to, const char *to_path) {
    char *buffer = sn_alloc(COPY_BYTES);
    sn_status s = buffer ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a buffer", from_path);
    for (uint64_t at = 0; s == SN_OK && at < size; at += COPY_BYTES) {
        size_t n = size - at < COPY_BYTES ? (size_t)(size - at) : COPY_BYTES;
        s = sn_file_read_at(from, from_path, at, buffer, n);
        if (s == SN_OK) s = sn_file_write_at(to, to_path, at, buffer, n);
    }
    sn_free(buffer);
    return s;
}

/* Copies a file of the model's folder; one that is not there is passed over. */
static sn_status copy_part(const char *from_dir, const char *to_dir, const char *name) {
    char *from = sn_path_join(from_dir, name), *to = sn_path_join(to_dir, name);
    sn_str temporary = {0};
    int in = -1, out = -1;
    uint64_t size;
    sn_str_printf(&temporary, "%s.tmp", to);
    sn_status s = from && to && !temporary.failed ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    if (s == SN_OK && sn_path_exists(from)) {
        s = sn_file_open(from, &in, &size);
        if (s == SN_OK && (out = open(temporary.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
            s = sn_fail(SN_ERR_FILE, "cannot create %s: %s", temporary.data, strerror(errno));
        if (s == SN_OK) s = copy_bytes(in, from, size, out, temporary.data);
        if (s == SN_OK) s = sn_file_commit(&out, temporary.data, to);
        if (out >= 0) {
            close(out);
            unlink(temporary.data);
        }
        if (in >= 0) close(in);
    }
    sn_str_free(&temporary);
    sn_free(from);
    sn_free(to);
    return s;
}

static sn_status write_gguf_tokenizer(const sn_export *v, const char *dir) {
    sn_str json = {0}, config = {0};
    sn_status s = sn_tokenizer_json_of_gguf(&v->model->files.gguf, v->config.max_position, &json, &config);
    if (s == SN_OK) s = replace_in(dir, "tokenizer.json", json.data, json.size);
    if (s == SN_OK) s = replace_in(dir, "tokenizer_config.json", config.data, config.size);
    if (s == SN_OK && v->model->chat_template)
        s = replace_in(dir, "chat_template.jinja", v->model->chat_template, strlen(v->model->chat_template));
    sn_str_free(&json);
    sn_str_free(&config);
    return s;
}

static void add_id(sn_str *text, const char *key, int64_t id) {
    if (id >= 0) sn_str_printf(text, "%s\n  \"%s\": %lld", text->size > 1 ? "," : "", key, (long long)id);
}

static sn_status write_generation_config(const sn_export *v, const char *dir) {
    const sn_model_config *c = &v->config;
    sn_str text = {0};
    sn_str_char(&text, '{');
    add_id(&text, "bos_token_id", c->bos_id);
    if (c->eos_count == 1) add_id(&text, "eos_token_id", c->eos_ids[0]);
    if (c->eos_count > 1) sn_str_printf(&text, "%s\n  \"eos_token_id\": [", text.size > 1 ? "," : "");
    for (int i = 0; c->eos_count > 1 && i < c->eos_count; i++) sn_str_printf(&text, "%s%lld", i ? ", " : "", (long long)c->eos_ids[i]);
    if (c->eos_count > 1) sn_str_char(&text, ']');
    add_id(&text, "pad_token_id", c->pad_id);
    sn_str_add(&text, "\n}\n");
    sn_status s = text.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate generation_config.json")
                              : replace_in(dir, "generation_config.json", text.data, text.size);
    sn_str_free(&text);
    return s;
}

static sn_status write_companions(const sn_export *v, const char *dir) {
    static const char *const parts[] = {"generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "chat_template.jinja",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "merges.txt"};
    if (sn_path_is_dir(v->model->path)) {
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) SN_TRY(copy_part(v->model->path, dir, parts[i]));
        return SN_OK;
    }
    if (v->model->tokenizer) SN_TRY(write_gguf_tokenizer(v, dir));
    return write_generation_config(v, dir);
}

static sn_status write_config(sn_export *v, const char *dir, int form) {
    sn_str text = {0};
    v->config.has_dtype = true;
    v->config.dtype = form == SN_FORM_SOURCE ? v->items[0].form : (sn_dtype)form;
    sn_status s = sn_hf_config_text(&v->config, &text);
    if (s == SN_OK) s = replace_in(dir, "config.json", text.data, text.size);
    sn_str_free(&text);
    return s;
}

bool sn_export_same_file(const char *a, const char *b) {
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

sn_status sn_export_write_hf(sn_export *v, const char *dir, int form, sn_export_report *report) {
    sn_export_report own = {0};
    char size[24];
    if (!report) report = &own;
    *report = (sn_export_report){0};
    if (form != SN_FORM_SOURCE && !sn_dtype_is_float((sn_dtype)form))
        return sn_fail(SN_ERR_USAGE, "a Hugging Face folder holds f32, f16 or bf16, not %s", sn_dtype_name((sn_dtype)form));
    SN_TRY(sn_make_dirs(dir));
    if (sn_export_same_file(v->model->path, dir)) return sn_fail(SN_ERR_USAGE, "%s is the model's own folder", dir);
    for (size_t i = 0; i < v->count; i++) {
        sn_dtype source = sn_export_source_form(v, &v->items[i]);
        v->items[i].form = form != SN_FORM_SOURCE ? (sn_dtype)form : sn_dtype_is_float(source) ? source : SN_F32;
    }
    SN_TRY(write_companions(v, dir));
    SN_TRY(write_tensors(v, dir, report));
    SN_TRY(write_config(v, dir, form));
    sn_info("%s: %llu tensors, %s", dir, (unsigned long long)report->tensors, sn_bytes_text(report->bytes, size));
    return SN_OK;
}
