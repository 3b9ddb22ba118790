/* tokenizer.ggml.* keys of a tokenizer.json.
 * Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#ggml */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/names.h"
#include "io/tokenizer_export.h"
#include "io/tokenizer_spec.h"

static sn_status no_memory(const sn_tokenizer_spec *s) { return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a vocabulary", s->name); }

static bool is_byte_token(const char *text, size_t n) { return n == 6 && !memcmp(text, "<0x", 3) && text[5] == '>'; }

static sn_status check_id(const sn_tokenizer_spec *s, int32_t id, int64_t vocab_size) {
    if (id < vocab_size) return SN_OK;
    return sn_fail(SN_ERR_UNSUPPORTED, "%s: token id %d is beyond the embedding's %" PRId64 " rows", s->name, id, vocab_size);
}

/* By id: text and ggml type of every row of the embedding. `unused` backs the texts of rows without a token. */
static sn_status list_tokens(const sn_tokenizer_spec *s, int64_t vocab_size, sn_gguf_string *texts, int32_t *types, sn_pool *unused) {
    for (size_t i = 0; i < s->token_count; i++) {
        const sn_token_spec *t = &s->tokens[i];
        SN_TRY(check_id(s, t->id, vocab_size));
        texts[t->id] = (sn_gguf_string){s->text.data + t->at, t->size};
        types[t->id] = s->byte_fallback && is_byte_token(texts[t->id].text, t->size) ? SN_GGML_TOKEN_BYTE : SN_GGML_TOKEN_NORMAL;
    }
    for (size_t i = 0; i < s->added_count; i++) {
        const sn_added_token *a = &s->added[i];
        SN_TRY(check_id(s, a->id, vocab_size));
        texts[a->id] = (sn_gguf_string){s->text.data + a->at, a->size};
        types[a->id] = a->special ? SN_GGML_TOKEN_CONTROL : SN_GGML_TOKEN_USER_DEFINED;
    }
    if (s->space_mark && s->model_unk >= 0) types[s->model_unk] = SN_GGML_TOKEN_UNKNOWN;
    for (int64_t id = 0; id < vocab_size; id++) {
        if (types[id]) continue;
        char *text = sn_pool_printf(unused, "[PAD%" PRId64 "]", id);
        if (!text) return no_memory(s);
        texts[id] = (sn_gguf_string){text, strlen(text)};
        types[id] = SN_GGML_TOKEN_UNUSED;
    }
    return SN_OK;
}

static sn_status add_merges(const sn_tokenizer_spec *s, sn_gguf_writer *w) {
    sn_str text = {0};
    sn_gguf_string *merges = sn_alloc(s->merge_count * sizeof *merges + 1);
    size_t at = 0;
    for (size_t i = 0; i < s->merge_count; i++) {
        const sn_merge_spec *m = &s->merges[i];
        sn_str_append(&text, s->text.data + m->at, m->left);
        sn_str_char(&text, ' ');
        sn_str_append(&text, s->text.data + m->at + m->left, m->right);
    }
    sn_status status = merges && !text.failed ? SN_OK : no_memory(s);
    for (size_t i = 0; status == SN_OK && i < s->merge_count; i++) {
        merges[i] = (sn_gguf_string){text.data + at, (size_t)s->merges[i].left + 1 + s->merges[i].right};
        at += merges[i].size;
    }
    if (status == SN_OK) status = sn_gguf_add_strings(w, "tokenizer.ggml.merges", merges, s->merge_count);
    sn_free(merges);
    sn_str_free(&text);
    return status;
}

/* GGUF's "llama" tokenizers merge by score. Of a list of merges, a token's score is minus the rank of the first merge that
 * forms it: pairs then merge in the list's order. */
static sn_status add_scores(const sn_tokenizer_spec *s, int64_t vocab_size, const sn_gguf_string *texts, sn_gguf_writer *w) {
    sn_names names = {0};
    float *scores = sn_alloc((size_t)vocab_size * sizeof *scores);
    bool added;
    size_t index;
    sn_status status = scores ? SN_OK : no_memory(s);
    for (int64_t id = 0; status == SN_OK && id < vocab_size; id++) {
        scores[id] = -1e9f;
        status = sn_names_add(&names, texts[id].text, texts[id].size, &index, &added);
        if (status == SN_OK && !added) status = sn_fail(SN_ERR_UNSUPPORTED, "%s: two tokens have the text of id %" PRId64, s->name, id);
    }
    for (size_t i = s->merge_count; status == SN_OK && i-- > 0;) /* halves lie side by side: the text is there */
        if (sn_names_find(&names, s->text.data + s->merges[i].at, (size_t)s->merges[i].left + s->merges[i].right, &index))
            scores[index] = -(float)i;
    if (status == SN_OK) status = sn_gguf_add_f32s(w, "tokenizer.ggml.scores", scores, (size_t)vocab_size);
    sn_names_free(&names);
    sn_free(scores);
    return status;
}

static sn_status add_id(sn_gguf_writer *w, const char *key, int32_t id) { return id >= 0 ? sn_gguf_add_u32(w, key, (uint32_t)id) : SN_OK; }

static sn_status add_ids(const sn_tokenizer_spec *s, sn_gguf_writer *w) {
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    bool bos = s->prefix_count == 1 && s->prefix[0] == s->bos, eos = s->suffix_count == 1 && s->eos_count && s->suffix[0] == s->eos[0];
    if ((s->prefix_count && !bos) || (s->suffix_count && !eos))
        return sn_fail(SN_ERR_UNSUPPORTED, "%s: GGUF cannot say that other tokens than BOS and EOS stand around a text", s->name);
    SN_TRY(add_id(w, "tokenizer.ggml.bos_token_id", s->bos));
    for (size_t i = 0; i < 3 && i < s->eos_count; i++) SN_TRY(add_id(w, ends[i], s->eos[i]));
    SN_TRY(add_id(w, "tokenizer.ggml.padding_token_id", s->pad));
    SN_TRY(add_id(w, "tokenizer.ggml.unknown_token_id", s->unk));
    SN_TRY(sn_gguf_add_bool(w, "tokenizer.ggml.add_bos_token", bos));
    return sn_gguf_add_bool(w, "tokenizer.ggml.add_eos_token", eos);
}

static sn_status add_model(const sn_tokenizer_spec *s, sn_gguf_writer *w) {
    char pre[64];
    if (s->space_mark) {
        bool prefix = false;
        for (size_t i = 0; i < s->normalize_count; i++) prefix |= s->normalize[i].kind == SN_NORMALIZE_PREPEND;
        for (size_t i = 0; i < s->split_count; i++) prefix |= s->split[i].kind >= SN_SPLIT_PREFIX_SPACE;
        SN_TRY(sn_gguf_add_string(w, "tokenizer.ggml.model", "llama", 5));
        SN_TRY(sn_gguf_add_string(w, "tokenizer.ggml.pre", "default", 7));
        return sn_gguf_add_bool(w, "tokenizer.ggml.add_space_prefix", prefix);
    }
    if (!sn_gguf_pre_of(s, pre)) return sn_fail(SN_ERR_UNSUPPORTED, "%s: GGUF has no name for this pre-tokenizer", s->name);
    SN_TRY(sn_gguf_add_string(w, "tokenizer.ggml.model", "gpt2", 4));
    return sn_gguf_add_string(w, "tokenizer.ggml.pre", pre, strlen(pre));
}

static sn_status add_keys(const sn_tokenizer_spec *s, int64_t vocab_size, sn_gguf_writer *w) {
    sn_pool unused = {0};
    sn_gguf_string *texts = sn_alloc_zero((size_t)vocab_size, sizeof *texts);
    int32_t *types = sn_alloc_zero((size_t)vocab_size, sizeof *types);
    sn_status status = texts && types ? list_tokens(s, vocab_size, texts, types, &unused) : no_memory(s);
    if (status == SN_OK) status = add_model(s, w);
    if (status == SN_OK) status = sn_gguf_add_strings(w, "tokenizer.ggml.tokens", texts, (size_t)vocab_size);
    if (status == SN_OK) status = sn_gguf_add_i32s(w, "tokenizer.ggml.token_type", types, (size_t)vocab_size);
    if (status == SN_OK && s->space_mark) status = add_scores(s, vocab_size, texts, w);
    if (status == SN_OK && !s->space_mark) status = add_merges(s, w);
    if (status == SN_OK) status = add_ids(s, w);
    sn_free(texts);
    sn_free(types);
    sn_pool_free(&unused);
    return status;
}

sn_status sn_gguf_add_tokenizer(sn_gguf_writer *w, const sn_tokenizer_files *files) {
    sn_pool pool = {0};
    sn_tokenizer_spec spec;
    sn_tokenizer_spec_start(&spec, files->name, &pool);
    sn_status s = sn_tokenizer_spec_from_json(files->json, files->json_size, files->config, files->config_size, &spec);
    for (int i = 0; s == SN_OK && i < files->eos_count; i++) {
        bool known = false;
        for (size_t k = 0; k < spec.eos_count; k++) known |= spec.eos[k] == files->eos_ids[i];
        if (!known && spec.eos_count < SN_TOKENIZER_MAX_EOS) spec.eos[spec.eos_count++] = (int32_t)files->eos_ids[i];
    }
    if (s == SN_OK) s = add_keys(&spec, files->vocab_size, w);
    sn_tokenizer_spec_free(&spec);
    sn_pool_free(&pool);
    return s;
}
