#include "io/model_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "io/gguf_config.h"
#include "io/hf_config.h"
#include "io/model_names.h"

static sn_status no_memory(const char *path) { return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate the list of tensors", path); }

/* Adds a tensor that the file has under `found` names; its stored shape must be the expected one. */
static sn_status add(sn_model_files *m, const sn_model_name *n, sn_model_tensor t) {
    char wanted[96], found[96];
    size_t index;
    bool added;
    sn_shape stored = n->shape;
    if (m->is_gguf && n->transposed) stored = sn_shape_of(n->shape.d[1], n->shape.d[0]);
    if (!sn_shape_equal(&stored, &t.shape))
        return sn_fail(SN_ERR_FORMAT, "%s: tensor %s: wanted shape %s, found %s", t.path, t.file_name, sn_shape_text(&stored, wanted),
                       sn_shape_text(&t.shape, found));
    SN_TRY(sn_names_add(&m->names, n->hf, strlen(n->hf), &index, &added));
    t.name = m->names.items[index].text;
    t.shape = n->shape;
    if (m->is_gguf) {
        t.row_heads = n->row_heads;
        t.transposed = n->transposed;
    }
    m->tensors[m->tensor_count++] = t;
    return SN_OK;
}

static bool find_in_gguf(const sn_model_files *m, const sn_model_name *n, sn_model_tensor *out) {
    const sn_gguf_tensor *t = sn_gguf_find_tensor(&m->gguf, n->gguf);
    if (!t) return false;
    *out = (sn_model_tensor){.file_name = t->name,
                             .dtype = t->dtype,
                             .shape = t->shape,
                             .fd = m->gguf.fd,
                             .path = m->gguf.path,
                             .offset = t->offset,
                             .bytes = t->bytes};
    return true;
}

/* GPT-2 folders saved from the bare model have no "transformer." in front. */
static bool find_in_folder(const sn_model_files *m, const sn_model_name *n, sn_model_tensor *out) {
    const char *bare = "transformer.";
    const sn_st_tensor *t = sn_st_find(&m->st, n->hf);
    if (!t && !strncmp(n->hf, bare, strlen(bare))) t = sn_st_find(&m->st, n->hf + strlen(bare));
    if (!t) return false;
    const sn_st_file *f = &m->st.files[t->file];
    *out = (sn_model_tensor){
        .file_name = t->name, .dtype = t->dtype, .shape = t->shape, .fd = f->fd, .path = f->path, .offset = t->offset, .bytes = t->bytes};
    return true;
}

/* Buffers, not weights: older transformers saved them, and the rope divisors of a GGUF are in the config already. */
static bool is_buffer(const char *name) {
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n >= strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i])) return true;
    return !strcmp(name, "rope_freqs.weight");
}

static const char *file_tensor_name(const sn_model_files *m, size_t i) {
    return m->is_gguf ? m->gguf.tensors[i].name : m->st.tensors[i].name;
}

/* Every tensor of the file must have found its place in the list. */
static sn_status refuse_others(const sn_model_files *m, const char *path) {
    size_t count = m->is_gguf ? m->gguf.tensor_count : m->st.tensor_count;
    for (size_t i = 0; i < count; i++) {
        const char *name = file_tensor_name(m, i);
        char full[160];
        size_t index;
        sn_model_name n;
        bool known = is_buffer(name);
        if (!known && m->is_gguf) known = sn_model_name_by_gguf(&m->config, name, &n);
        if (!known && !m->is_gguf) {
            snprintf(full, sizeof full, "transformer.%s", name);
            known = sn_names_find(&m->names, name, strlen(name), &index) ||
                    (strlen(name) < 128 && sn_names_find(&m->names, full, strlen(full), &index) && !sn_st_find(&m->st, full));
        }
        if (!known) return sn_fail(SN_ERR_UNSUPPORTED, "%s: tensor %.200s is no part of a %s model", path, name, m->config.architecture);
    }
    return SN_OK;
}

static sn_status list_tensors(sn_model_files *m, const char *path) {
    size_t count = sn_model_name_count(&m->config), in_file = m->is_gguf ? m->gguf.tensor_count : m->st.tensor_count;
    size_t bytes;
    if (count > in_file + 1) /* also keeps a config's layer count from asking for much memory; the missing one is named below */
        count = in_file + 1;
    if (!sn_mul(count, sizeof *m->tensors, &bytes) || !(m->tensors = sn_alloc(bytes))) return no_memory(path);
    for (size_t i = 0; i < sn_model_name_count(&m->config); i++) {
        sn_model_name n;
        sn_model_tensor t;
        sn_model_name_at(&m->config, i, &n);
        if (m->is_gguf ? find_in_gguf(m, &n, &t) : find_in_folder(m, &n, &t)) {
            m->lm_head_beside_tied |= n.optional;
            SN_TRY(add(m, &n, t));
        } else if (!n.optional) {
            bool head = !strcmp(n.hf, "lm_head.weight");
            return sn_fail(SN_ERR_FORMAT, "%s: no tensor %s%s", path, m->is_gguf ? n.gguf : n.hf,
                           head ? ", and the embeddings are not tied" : "");
        }
    }
    return refuse_others(m, path);
}

static sn_status same_bytes(const sn_model_tensor *a, const sn_model_tensor *b, bool *equal) {
    enum { PART = 1 << 16 };
    *equal = a->dtype == b->dtype && a->bytes == b->bytes;
    if (!*equal) return SN_OK;
    char *parts = sn_alloc(2 * PART);
    if (!parts) return no_memory(a->path);
    sn_status s = SN_OK;
    for (uint64_t at = 0; at < a->bytes && *equal && s == SN_OK; at += PART) {
        size_t n = a->bytes - at < PART ? (size_t)(a->bytes - at) : PART;
        s = sn_file_read_at(a->fd, a->path, a->offset + at, parts, n);
        if (s == SN_OK) s = sn_file_read_at(b->fd, b->path, b->offset + at, parts + PART, n);
        *equal = s == SN_OK && !memcmp(parts, parts + PART, n);
    }
    sn_free(parts);
    return s;
}

/* A head beside the embeddings. llama.cpp's converter has written GPT-2's tied head a second time: equal bytes mean tied. A
 * folder whose config says tied although the two differ is untied, as transformers 5 has it. */
static sn_status compare_head(sn_model_files *m, const char *path) {
    sn_model_config probe = m->config;
    sn_model_name embedding, head;
    sn_model_tensor a, b;
    bool equal;
    probe.tie_word_embeddings = true; /* lists the head, as an optional one */
    sn_model_name_at(&probe, 0, &embedding);
    sn_model_name_at(&probe, sn_model_name_count(&probe) - 1, &head);
    if (!head.optional) return SN_OK;
    bool both = m->is_gguf ? find_in_gguf(m, &embedding, &a) && find_in_gguf(m, &head, &b)
                           : find_in_folder(m, &embedding, &a) && find_in_folder(m, &head, &b);
    if (!both) return SN_OK;
    SN_TRY(same_bytes(&a, &b, &equal));
    if (m->is_gguf && m->config.arch == SN_ARCH_GPT2) m->config.tie_word_embeddings |= equal;
    if (m->is_gguf || equal || !m->config.tie_word_embeddings) return SN_OK;
    sn_warn("%s: config.json ties the embeddings, but %s and %s differ: they are not tied", path, a.file_name, b.file_name);
    m->config.tie_word_embeddings = false;
    return SN_OK;
}

static sn_status open_gguf(const char *path, sn_model_files *m) {
    m->is_gguf = true;
    SN_TRY(sn_gguf_open(path, &m->gguf));
    return sn_gguf_config_read(&m->gguf, &m->config);
}

static sn_status open_folder(const char *path, sn_model_files *m) {
    char *config = sn_path_join(path, "config.json");
    if (!config) return no_memory(path);
    sn_status s = sn_hf_config_read(config, &m->config);
    sn_free(config);
    return s == SN_OK ? sn_st_open_folder(path, "model", &m->st) : s;
}

sn_status sn_model_files_open(const char *path, sn_model_files *m) {
    *m = (sn_model_files){.gguf.fd = -1};
    sn_status s = sn_path_is_dir(path) ? open_folder(path, m) : open_gguf(path, m);
    if (s == SN_OK && (m->config.tie_word_embeddings || m->is_gguf)) s = compare_head(m, path);
    if (s == SN_OK) s = list_tensors(m, path);
    if (s != SN_OK) sn_model_files_close(m);
    return s;
}

void sn_model_files_close(sn_model_files *m) {
    sn_free(m->tensors);
    sn_names_free(&m->names);
    if (m->is_gguf) sn_gguf_close(&m->gguf);
    sn_st_close(&m->st);
    sn_model_config_free(&m->config);
    *m = (sn_model_files){.gguf.fd = -1};
}

const sn_model_tensor *sn_model_files_find(const sn_model_files *m, const char *hf_name) {
    size_t index;
    return sn_names_find(&m->names, hf_name, strlen(hf_name), &index) && index < m->tensor_count ? &m->tensors[index] : NULL;
}

sn_status sn_model_files_read_stored(const sn_model_files *m, const sn_model_tensor *t, uint64_t from, void *buffer, size_t bytes) {
    (void)m;
    if (from > t->bytes || bytes > t->bytes - from)
        return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %zu bytes at %" PRIu64 " of %" PRIu64, t->path, t->name, bytes, from, t->bytes);
    return sn_file_read_at(t->fd, t->path, t->offset + from, buffer, bytes);
}

/* Rows of a permuted tensor: whole heads in one read each, parts of a head row by row. */
static sn_status read_permuted(const sn_model_files *m, const sn_model_tensor *t, int64_t row0, int64_t n_rows, size_t row_bytes,
                               char *out) {
    int64_t head_dim = t->shape.d[0] / t->row_heads;
    char *head = sn_alloc((size_t)head_dim * row_bytes);
    if (!head) return sn_fail(SN_ERR_NO_MEMORY, "%s: tensor %s: cannot allocate a head", t->path, t->name);
    sn_status s = SN_OK;
    for (int64_t row = row0, end = row0 + n_rows; row < end && s == SN_OK;) {
        if (row % head_dim == 0 && end - row >= head_dim) {
            s = sn_model_files_read_stored(m, t, (uint64_t)row * row_bytes, head, (size_t)head_dim * row_bytes);
            for (int64_t i = 0; i < head_dim && s == SN_OK; i++, row++, out += row_bytes)
                memcpy(out, head + (size_t)sn_gguf_row(i, head_dim) * row_bytes, row_bytes);
        } else {
            s = sn_model_files_read_stored(m, t, (uint64_t)sn_gguf_row(row, head_dim) * row_bytes, out, row_bytes);
            row++;
            out += row_bytes;
        }
    }
    sn_free(head);
    return s;
}

/* Rows of [in,out] from the stored [out,in]: of each stored row the elements row0 .. row0 + n_rows. */
static sn_status read_transposed(const sn_model_files *m, const sn_model_tensor *t, int64_t row0, int64_t n_rows, char *out) {
    size_t size = (size_t)sn_dtypes[t->dtype].bytes, inputs = (size_t)t->shape.d[0], outputs = (size_t)t->shape.d[1];
    char *part = sn_alloc((size_t)n_rows * size);
    if (!part) return sn_fail(SN_ERR_NO_MEMORY, "%s: tensor %s: cannot allocate a row", t->path, t->name);
    sn_status s = SN_OK;
    for (size_t o = 0; o < outputs && s == SN_OK; o++) {
        s = sn_model_files_read_stored(m, t, (o * inputs + (size_t)row0) * size, part, (size_t)n_rows * size);
        for (size_t i = 0; i < (size_t)n_rows && s == SN_OK; i++) memcpy(out + (i * outputs + o) * size, part + i * size, size);
    }
    sn_free(part);
    return s;
}

sn_status sn_model_files_read(const sn_model_files *m, const sn_model_tensor *t, int64_t row0, int64_t n_rows, void *buffer, size_t bytes) {
    int64_t rows = t->shape.d[0];
    if (row0 < 0 || n_rows < 0 || row0 > rows || n_rows > rows - row0)
        return sn_fail(SN_ERR_USAGE, "%s: tensor %s: rows %" PRId64 " to %" PRId64 " of %" PRId64, t->path, t->name, row0, row0 + n_rows,
                       rows);
    if (t->shape.rank == 1 && sn_dtypes[t->dtype].block > 1 && n_rows != rows)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: tensor %s: part of a vector in %s", t->path, t->name, sn_dtype_name(t->dtype));
    if ((t->transposed || (t->row_heads && t->shape.rank == 1)) && sn_dtypes[t->dtype].block > 1)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: tensor %s: %s blocks cannot be transposed", t->path, t->name, sn_dtype_name(t->dtype));
    size_t row_bytes = rows ? (size_t)(t->bytes / (uint64_t)rows) : 0, want = (size_t)n_rows * row_bytes;
    if (n_rows == rows) want = (size_t)t->bytes;
    if (bytes != want)
        return sn_fail(SN_ERR_USAGE, "%s: tensor %s: %" PRId64 " rows take %zu bytes, the buffer has %zu", t->path, t->name, n_rows, want,
                       bytes);
    if (t->row_heads) return read_permuted(m, t, row0, n_rows, row_bytes, buffer);
    if (t->transposed) return read_transposed(m, t, row0, n_rows, buffer);
    return sn_model_files_read_stored(m, t, (uint64_t)row0 * row_bytes, buffer, want);
}
