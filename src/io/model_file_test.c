#include "support/support.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/gguf_config.h"
#include "io/hf_config.h"
#include "io/model_file.h"
#include "io/model_names.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/model_files/"

static char folder[512], gguf_path[600];

static void *read_whole(const sn_model_files *m, const sn_model_tensor *t) {
    void *data = sn_alloc((size_t)t->bytes);
    assert_ok(sn_model_files_read(m, t, 0, t->shape.d[0], data, (size_t)t->bytes));
    return data;
}

/* Two views of one model: the same tensors, byte for byte in Hugging Face's order. */
static void assert_same_tensors(const sn_model_files *a, const sn_model_files *b) {
    assert_int_equal(a->tensor_count, b->tensor_count);
    for (size_t i = 0; i < a->tensor_count; i++) {
        const sn_model_tensor *x = &a->tensors[i], *y = sn_model_files_find(b, x->name);
        if (!y) fail_msg("no %s", x->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_true(sn_shape_equal(&x->shape, &y->shape));
        char *p = read_whole(a, x), *q = read_whole(b, y), *rows = sn_alloc((size_t)y->bytes);
        assert_memory_equal(p, q, (size_t)x->bytes);
        size_t row_bytes = (size_t)(y->bytes / (uint64_t)y->shape.d[0]);
        for (int64_t r = 0; r < y->shape.d[0]; r += 3) { /* in parts, across heads */
            int64_t n = y->shape.d[0] - r < 3 ? y->shape.d[0] - r : 3;
            assert_ok(sn_model_files_read(b, y, r, n, rows + (size_t)r * row_bytes, (size_t)n * row_bytes));
        }
        assert_memory_equal(p, rows, (size_t)x->bytes);
        sn_free(p);
        sn_free(q);
        sn_free(rows);
    }
}

static void gguf_equals_folder(void **state) { /* llama: head_dim 8, not hidden 16 / 4 heads; gpt2: transposed */
    (void)state;
    static const char *const names[] = {"llama", "gpt2"};
    for (int i = 0; i < 2; i++) {
        sn_model_files hf, gguf;
        char path[600];
        snprintf(path, sizeof path, GOLDEN "%s", names[i]);
        assert_ok(sn_model_files_open(path, &hf));
        snprintf(path, sizeof path, GOLDEN "%s.gguf", names[i]);
        assert_ok(sn_model_files_open(path, &gguf));
        assert_true(gguf.is_gguf && !hf.is_gguf);
        assert_true(gguf.config.tie_word_embeddings && hf.config.tie_word_embeddings);
        assert_int_equal(gguf.lm_head_beside_tied, i == 1); /* the GPT-2 file has the head twice, and equal: still tied */
        if (i == 0) {
            assert_same_tensors(&hf, &gguf);
            assert_int_equal(sn_model_files_find(&gguf, "model.layers.1.self_attn.k_proj.weight")->row_heads, 2);
            assert_int_equal(sn_model_files_find(&gguf, "model.layers.1.self_attn.v_proj.weight")->row_heads, 0);
            assert_int_equal(sn_model_files_find(&hf, "model.layers.1.self_attn.k_proj.weight")->row_heads, 0);
            assert_string_equal(sn_model_files_find(&gguf, "model.norm.weight")->file_name, "output_norm.weight");
        } else {
            assert_non_null(sn_model_files_find(&gguf, "lm_head.weight"));
            gguf.tensor_count--; /* lm_head.weight is last */
            assert_same_tensors(&hf, &gguf);
            gguf.tensor_count++;
            assert_true(sn_model_files_find(&gguf, "transformer.h.0.attn.c_attn.weight")->transposed);
            assert_false(sn_model_files_find(&hf, "transformer.h.0.attn.c_attn.weight")->transposed);
        }
        sn_model_files_close(&hf);
        sn_model_files_close(&gguf);
    }
}

/* Makes a folder whose tensors hold pseudo-random bytes. extra: added after the model's own; without: left out. */
static void make_folder(const char *config, const char *without, const char *extra, bool bare) {
    sn_model_config c;
    sn_st_writer w;
    char path[600];
    uint32_t seed = 1;
    sn_shape one = sn_shape_of(1);
    assert_ok(sn_hf_config_parse("config.json", config, strlen(config), &c));
    snprintf(path, sizeof path, "%s/hf", folder);
    assert_ok(sn_remove_tree(path));
    assert_ok(sn_st_write_open_folder(path, "model", UINT64_MAX, &w));
    for (size_t i = 0; i < sn_model_name_count(&c); i++) {
        sn_model_name n;
        sn_model_name_at(&c, i, &n);
        if (n.optional || (without && !strcmp(n.hf, without))) continue;
        assert_ok(sn_st_add_tensor(&w, bare && !strncmp(n.hf, "transformer.", 12) ? n.hf + 12 : n.hf, SN_F16, &n.shape));
    }
    if (extra) assert_ok(sn_st_add_tensor(&w, extra, SN_F16, !strcmp(extra, "lm_head.weight") ? &w.tensors[0].shape : &one));
    assert_ok(sn_st_write_begin(&w));
    for (size_t i = 0; i < w.tensor_count; i++)
        for (uint64_t at = 0; at < w.tensors[i].bytes; at += 2) {
            seed = seed * 1664525 + 1013904223;
            assert_ok(sn_st_write(&w, i, at, (char *)&seed + 2, 2));
        }
    assert_ok(sn_st_write_finish(&w));
    sn_st_write_close(&w);
    snprintf(path, sizeof path, "%s/hf/config.json", folder);
    assert_ok(sn_hf_config_write(&c, path));
    sn_model_config_free(&c);
}

static sn_status open_made(sn_model_files *m) {
    char path[600];
    snprintf(path, sizeof path, "%s/hf", folder);
    return sn_model_files_open(path, m);
}

/* The folder as a GGUF, laid out as llama.cpp's converter does. */
static void export_gguf(const sn_model_files *hf) {
    sn_gguf_writer w;
    assert_ok(sn_gguf_write_open(gguf_path, 0, &w));
    assert_ok(sn_gguf_config_write(&hf->config, &w));
    for (size_t i = 0; i < hf->tensor_count; i++) {
        sn_model_name n;
        assert_true(sn_model_name_by_hf(&hf->config, hf->tensors[i].name, &n));
        sn_shape stored = n.transposed ? sn_shape_of(n.shape.d[1], n.shape.d[0]) : n.shape;
        assert_ok(sn_gguf_add_tensor(&w, n.gguf, hf->tensors[i].dtype, &stored));
    }
    assert_ok(sn_gguf_write_begin(&w));
    for (size_t i = 0; i < hf->tensor_count; i++) {
        const sn_model_tensor *t = &hf->tensors[i];
        sn_model_name n;
        sn_model_name_by_hf(&hf->config, t->name, &n);
        char *data = read_whole(hf, t), *stored = sn_alloc((size_t)t->bytes);
        size_t row_bytes = (size_t)(t->bytes / (uint64_t)t->shape.d[0]);
        memcpy(stored, data, (size_t)t->bytes);
        if (n.row_heads) sn_gguf_permute_rows(data, 0, t->shape.d[0], row_bytes, hf->config.head_dim, stored);
        if (n.transposed)
            for (int64_t r = 0; r < t->shape.d[0]; r++)
                for (int64_t o = 0; o < t->shape.d[1]; o++)
                    memcpy(stored + 2 * (o * t->shape.d[0] + r), data + 2 * (r * t->shape.d[1] + o), 2);
        assert_ok(sn_gguf_write(&w, i, 0, stored, (size_t)t->bytes));
        sn_free(data);
        sn_free(stored);
    }
    assert_ok(sn_gguf_write_finish(&w));
    sn_gguf_write_close(&w);
}

#define GQA                                                                                                          \
    "{\"model_type\":\"llama\",\"vocab_size\":5,\"hidden_size\":64,\"intermediate_size\":6,\"num_hidden_layers\":2," \
    "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"head_dim\":6,\"max_position_embeddings\":8"

static void permutation_round_trips(void **state) { /* llama.cpp#3364: 32 heads, 4 KV heads */
    (void)state;
    static const char *const configs[] = {
        GQA "}",
        GQA ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":5,\"n_embd\":8,\"n_layer\":2,\"n_head\":2,\"n_positions\":8,\"n_inner\":12}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        sn_model_files hf, gguf;
        make_folder(configs[i], NULL, NULL, i == 2);
        assert_ok(open_made(&hf));
        assert_int_equal(hf.tensor_count, i == 0 ? 3 + 2 * 9 : i == 1 ? 2 + 2 * 16 : 4 + 2 * 12);
        export_gguf(&hf);
        assert_ok(sn_model_files_open(gguf_path, &gguf));
        assert_same_tensors(&hf, &gguf);
        if (i < 2) { /* the permutation is no identity */
            const sn_model_tensor *t = sn_model_files_find(&gguf, "model.layers.0.self_attn.k_proj.weight");
            char *rows = read_whole(&gguf, t), *stored = sn_alloc((size_t)t->bytes);
            assert_ok(sn_model_files_read_stored(&gguf, t, 0, stored, (size_t)t->bytes));
            assert_memory_not_equal(rows, stored, (size_t)t->bytes);
            assert_memory_equal(rows + 3 * 128, stored + 128, 128); /* GGUF row 1 (j 0, h 1) is row head_dim / 2 */
            sn_free(rows);
            sn_free(stored);
        }
        sn_model_files_close(&hf);
        sn_model_files_close(&gguf);
    }
}

static int warnings;
static void count_warning(void *context, sn_log_level level, const char *text) {
    (void)context, (void)text;
    warnings += level == SN_LOG_WARN;
}

/* In the folder that was made. */
static void copy_embedding_to_head(void) {
    sn_st st;
    char path[600];
    snprintf(path, sizeof path, "%s/hf", folder);
    assert_ok(sn_st_open_folder(path, "model", &st));
    const sn_st_tensor *from = sn_st_find(&st, "model.embed_tokens.weight"), *to = sn_st_find(&st, "lm_head.weight");
    char *data = sn_alloc((size_t)from->bytes);
    assert_ok(sn_st_read(&st, from, 0, data, (size_t)from->bytes));
    int fd = open(st.files[to->file].path, O_WRONLY);
    assert_true(fd >= 0);
    assert_ok(sn_file_write_at(fd, path, to->offset, data, (size_t)from->bytes));
    close(fd);
    sn_free(data);
    sn_st_close(&st);
}

static void tied_and_untied_heads(void **state) {
    (void)state;
    sn_model_files m;
    make_folder(GQA ",\"tie_word_embeddings\":true}", NULL, NULL, false);
    assert_ok(open_made(&m));
    assert_null(sn_model_files_find(&m, "lm_head.weight"));
    assert_false(m.lm_head_beside_tied);
    sn_model_files_close(&m);
    make_folder(GQA ",\"tie_word_embeddings\":true}", NULL, "lm_head.weight", false); /* numbers of its own: no longer tied */
    sn_log_to(count_warning, NULL);
    assert_ok(open_made(&m));
    assert_false(m.config.tie_word_embeddings || m.lm_head_beside_tied);
    assert_non_null(sn_model_files_find(&m, "lm_head.weight"));
    assert_int_equal(warnings, 1);
    sn_model_files_close(&m);
    make_folder(GQA ",\"tie_word_embeddings\":true}", NULL, "lm_head.weight", false);
    copy_embedding_to_head();
    assert_ok(open_made(&m)); /* the same numbers twice */
    sn_log_to(NULL, NULL);
    assert_true(m.config.tie_word_embeddings && m.lm_head_beside_tied);
    assert_non_null(sn_model_files_find(&m, "lm_head.weight"));
    assert_int_equal(warnings, 1);
    sn_model_files_close(&m);
    make_folder(GQA "}", NULL, NULL, false);
    assert_ok(open_made(&m));
    assert_non_null(sn_model_files_find(&m, "lm_head.weight"));
    assert_false(m.lm_head_beside_tied);
    sn_model_files_close(&m);
    make_folder(GQA "}", "lm_head.weight", NULL, false);
    assert_int_equal(open_made(&m), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "no tensor lm_head.weight, and the embeddings are not tied"));
}

static void faults_named(void **state) {
    (void)state;
    sn_model_files m;
    char path[600], text[1024];
    make_folder(GQA "}", "model.layers.1.mlp.up_proj.weight", NULL, false);
    assert_int_equal(open_made(&m), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "no tensor model.layers.1.mlp.up_proj.weight"));
    make_folder(GQA "}", NULL, "model.layers.2.mlp.up_proj.weight", false);
    assert_int_equal(open_made(&m), SN_ERR_UNSUPPORTED);
    assert_non_null(strstr(sn_error_text(), "tensor model.layers.2.mlp.up_proj.weight is no part of a llama model"));
    make_folder(GQA "}", NULL, "model.layers.0.self_attn.q_proj.bias", false);
    assert_int_equal(open_made(&m), SN_ERR_UNSUPPORTED); /* attention_bias is false */
    make_folder(GQA "}", NULL, "model.layers.0.self_attn.rotary_emb.inv_freq", false);
    assert_ok(open_made(&m)); /* a buffer */
    assert_null(sn_model_files_find(&m, "model.layers.0.self_attn.rotary_emb.inv_freq"));
    sn_model_files_close(&m);

    make_folder(GQA "}", NULL, NULL, false);
    snprintf(path, sizeof path, "%s/hf/config.json", folder);
    snprintf(text, sizeof text, GQA ",\"intermediate_size\":7}");
    char *six = strstr(text, "\"intermediate_size\":6,");
    memmove(six, six + 22, strlen(six + 22) + 1);
    assert_ok(sn_file_replace(path, text, strlen(text)));
    assert_int_equal(open_made(&m), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "tensor model.layers.0.mlp.gate_proj.weight: wanted shape [7,64], found [6,64]"));
    assert_int_equal(sn_model_files_open(GOLDEN "types.safetensors", &m), SN_ERR_FORMAT);
    assert_int_equal(sn_model_files_open(GOLDEN "none", &m), SN_ERR_FILE);
}

static void reads_are_checked(void **state) {
    (void)state;
    sn_model_files m;
    float buffer[64];
    assert_ok(sn_model_files_open(GOLDEN "llama.gguf", &m));
    const sn_model_tensor *t = sn_model_files_find(&m, "model.layers.0.self_attn.q_proj.weight");
    assert_int_equal(sn_model_files_read(&m, t, 31, 2, buffer, 128), SN_ERR_USAGE);
    assert_int_equal(sn_model_files_read(&m, t, -1, 1, buffer, 64), SN_ERR_USAGE);
    assert_int_equal(sn_model_files_read(&m, t, 0, 1, buffer, 60), SN_ERR_USAGE);
    assert_int_equal(sn_model_files_read_stored(&m, t, t->bytes - 4, buffer, 8), SN_ERR_USAGE);
    assert_ok(sn_model_files_read(&m, t, 32, 0, buffer, 0));
    sn_model_files_close(&m);
}

static void names_both_ways(void **state) {
    (void)state;
    static const char *const paths[] = {GOLDEN "llama/config.json", GOLDEN "gpt2/config.json"};
    for (int k = 0; k < 2; k++) {
        sn_model_config c;
        assert_ok(sn_hf_config_read(paths[k], &c));
        for (size_t i = 0; i < sn_model_name_count(&c); i++) {
            sn_model_name a, b;
            sn_model_name_at(&c, i, &a);
            assert_true(sn_model_name_by_hf(&c, a.hf, &b));
            assert_memory_equal(&a, &b, sizeof a);
            assert_true(sn_model_name_by_gguf(&c, a.gguf, &b));
            assert_memory_equal(&a, &b, sizeof a);
        }
        static const char *const none[] = {"",
                                           "blk.0",
                                           "blk.0.",
                                           "blk.2.attn_norm.weight",
                                           "blk.00.attn_norm.weight",
                                           "blk.-1.attn_norm.weight",
                                           "blk.99999999999999999999.attn_norm.weight",
                                           "attn_norm.weight",
                                           "blk.0.token_embd.weight",
                                           "blk.0.attn_q.bias"};
        sn_model_name n;
        for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_false(sn_model_name_by_gguf(&c, none[i], &n));
        sn_model_config_free(&c);
    }
}

static void survives_failed_allocations(void **state) {
    (void)state;
    static const char *const paths[] = {GOLDEN "llama", GOLDEN "gpt2.gguf"};
    for (int k = 0; k < 2; k++) {
        sn_model_files m;
        sn_alloc_fail_at(-1);
        assert_ok(sn_model_files_open(paths[k], &m));
        sn_model_files_close(&m);
        long n = sn_alloc_fail_at(-1);
        assert_true(n > 20);
        for (long i = 0; i < n; i++) {
            sn_alloc_fail_at(i);
            sn_status s = sn_model_files_open(paths[k], &m);
            sn_alloc_fail_at(-1);
            assert_int_equal(s, SN_ERR_NO_MEMORY);
        }
    }
}

static double half(const uint8_t *p) { /* a normal number */
    int bits = p[0] | p[1] << 8, exponent = bits >> 10 & 31;
    assert_true(exponent > 0 && exponent < 31);
    return ldexp(1 + (bits & 1023) / 1024.0, exponent - 15) * (bits & 0x8000 ? -1 : 1);
}

/* First four values and the sum of a Q4_1 row of 576: blocks of f16 scale, f16 minimum, 16 bytes of nibbles. */
static void decode_q4_1(const uint8_t *row, double out[5]) {
    out[4] = 0;
    for (int i = 0; i < 576; i++) {
        const uint8_t *block = row + i / 32 * 20;
        int code = i % 32 < 16 ? block[4 + i % 16] & 15 : block[4 + i % 16] >> 4;
        double value = half(block) * code + half(block + 2);
        if (i < 4) out[i] = value;
        out[4] += value;
    }
}

static void smollm2_as_transformers_sees_it(void **state) { /* values: AutoModelForCausalLM.from_pretrained(gguf_file=...) */
    (void)state;
    const char *path = getenv("SNUG_TEST_GGUF");
    if (!path) skip();
    static const struct {
        const char *name;
        int64_t row;
        double wanted[5];
    } rows[] = {
        {"model.layers.3.self_attn.q_proj.weight", 5, {0.128234863, 0.357971191, 0.0133666992, 0.0133666992, 0.287353516}},
        {"model.layers.3.self_attn.q_proj.weight", 37, {0.275695801, 0.331939697, 0.163208008, -0.174255371, -1.83554077}},
        {"model.layers.29.self_attn.k_proj.weight", 100, {0.128189087, -0.0996246338, 0.0142822266, 0.173751831, 0.0132446289}},
        {"model.layers.29.self_attn.v_proj.weight", 100, {-0.121582031, 0.28527832, -0.26953125, 0.28527832, -4.2243042}},
    };
    sn_model_files m;
    assert_ok(sn_model_files_open(path, &m));
    assert_int_equal(m.tensor_count, 272);
    assert_true(m.config.tie_word_embeddings);
    assert_int_equal(m.config.hidden_size, 576);
    assert_int_equal(m.config.intermediate_size, 1536);
    assert_int_equal(m.config.num_layers, 30);
    assert_int_equal(m.config.num_heads, 9);
    assert_int_equal(m.config.num_kv_heads, 3);
    assert_int_equal(m.config.head_dim, 64);
    assert_int_equal(m.config.max_position, 8192);
    assert_true(m.config.norm_eps == 1e-5 && m.config.rope.theta == 100000);
    assert_int_equal(m.config.bos_id, 1);
    assert_int_equal(m.config.eos_ids[0], 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const sn_model_tensor *t = sn_model_files_find(&m, rows[i].name);
        double found[5];
        assert_int_equal(t->dtype, SN_Q4_1);
        uint8_t row[360];
        assert_ok(sn_model_files_read(&m, t, rows[i].row, 1, row, sizeof row));
        decode_q4_1(row, found);
        for (int k = 0; k < 5; k++)
            if (!(fabs(found[k] - rows[i].wanted[k]) < 1e-7))
                fail_msg("%s %d: %.9g, wanted %.9g", rows[i].name, k, found[k], rows[i].wanted[k]);
        uint8_t *whole = read_whole(&m, t);
        assert_memory_equal(whole + rows[i].row * 360, row, 360);
        sn_free(whole);
    }
    sn_model_files_close(&m);
}

int main(void) {
    snprintf(folder, sizeof folder, "%s", test_dir("model_file"));
    snprintf(gguf_path, sizeof gguf_path, "%s/x.gguf", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_equals_folder),          cmocka_unit_test(permutation_round_trips),
        cmocka_unit_test(tied_and_untied_heads),       cmocka_unit_test(faults_named),
        cmocka_unit_test(reads_are_checked),           cmocka_unit_test(names_both_ways),
        cmocka_unit_test(survives_failed_allocations), cmocka_unit_test(smollm2_as_transformers_sees_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
