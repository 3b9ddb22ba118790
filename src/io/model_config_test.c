#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/gguf_config.h"
#include "io/hf_config.h"

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/model_files/"
#define LLAMA                                                                                                          \
    "\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2," \
    "\"num_attention_heads\":4,\"max_position_embeddings\":131072"

static char file_path[600];

static sn_status parse(const char *text, sn_model_config *c) { return sn_hf_config_parse("config.json", text, strlen(text), c); }

static void refused(const char *text, sn_status code, const char *wanted) {
    sn_model_config c;
    sn_status s = parse(text, &c);
    if (s != code || !strstr(sn_error_text(), wanted))
        fail_msg("%s\nwanted \"%s\", found %s: %s", text, wanted, sn_status_name(s), s ? sn_error_text() : "");
}

static void reads_llama_of_transformers(void **state) {
    (void)state;
    sn_model_config c;
    assert_ok(sn_hf_config_read(GOLDEN "llama/config.json", &c));
    assert_int_equal(c.arch, SN_ARCH_LLAMA);
    assert_string_equal(c.architecture, "llama");
    assert_int_equal(c.vocab_size, 24);
    assert_int_equal(c.hidden_size, 16);
    assert_int_equal(c.intermediate_size, 12);
    assert_int_equal(c.num_layers, 2);
    assert_int_equal(c.num_heads, 4);
    assert_int_equal(c.num_kv_heads, 2);
    assert_int_equal(c.head_dim, 8); /* not 16 / 4 */
    assert_int_equal(c.max_position, 64);
    assert_true(c.norm_eps == 1e-5);
    assert_true(c.rope.theta == 50000);
    assert_int_equal(c.rope.type, SN_ROPE_DEFAULT);
    assert_true(c.tie_word_embeddings);
    assert_false(c.attention_bias);
    assert_int_equal(c.hidden_act, SN_ACT_SILU);
    assert_int_equal(c.bos_id, 1);
    assert_int_equal(c.eos_count, 1);
    assert_int_equal(c.eos_ids[0], 2);
    assert_int_equal(c.pad_id, -1);
    assert_true(c.has_dtype);
    assert_int_equal(c.dtype, SN_F32);
    assert_non_null(strstr(c.raw, "initializer_range"));
    sn_model_config_free(&c);
}

static void reads_gpt2_of_transformers(void **state) {
    (void)state;
    sn_model_config c;
    assert_ok(sn_hf_config_read(GOLDEN "gpt2/config.json", &c));
    assert_int_equal(c.arch, SN_ARCH_GPT2);
    assert_int_equal(c.hidden_size, 16);
    assert_int_equal(c.intermediate_size, 64); /* n_inner null: 4 * n_embd */
    assert_int_equal(c.num_heads, 2);
    assert_int_equal(c.num_kv_heads, 2);
    assert_int_equal(c.head_dim, 8);
    assert_int_equal(c.max_position, 32);
    assert_int_equal(c.hidden_act, SN_ACT_GELU_TANH);
    assert_true(c.tie_word_embeddings);
    sn_model_config_free(&c);
}

static void defaults_and_spellings(void **state) {
    (void)state;
    sn_model_config c;
    assert_ok(parse("{" LLAMA "}", &c));
    assert_int_equal(c.num_kv_heads, 4);
    assert_int_equal(c.head_dim, 16);
    assert_true(c.rope.theta == 10000);
    assert_true(c.norm_eps == 1e-6);
    assert_false(c.tie_word_embeddings);
    assert_int_equal(c.eos_count, 0);
    assert_false(c.has_dtype);
    sn_model_config_free(&c);
    assert_ok(parse("{" LLAMA
                    ",\"head_dim\":32,\"eos_token_id\":[7,8,9],\"torch_dtype\":\"bfloat16\",\"attention_bias\":true,\"mlp_bias\":true,"
                    "\"sliding_window\":4096,\"hidden_act\":\"gelu_pytorch_tanh\",\"rope_theta\":500000}",
                    &c));
    assert_int_equal(c.head_dim, 32); /* llama.cpp#8922: hidden 64, 4 heads */
    assert_int_equal(c.eos_count, 3);
    assert_int_equal(c.eos_ids[2], 9);
    assert_int_equal(c.dtype, SN_BF16);
    assert_true(c.attention_bias && c.mlp_bias);
    assert_int_equal(c.sliding_window, 4096);
    assert_int_equal(c.hidden_act, SN_ACT_GELU_TANH);
    assert_true(c.rope.theta == 500000);
    sn_model_config_free(&c);
    assert_ok(parse("{" LLAMA ",\"sliding_window\":4096,\"use_sliding_window\":false}", &c));
    assert_int_equal(c.sliding_window, 0);
    sn_model_config_free(&c);
}

static void rope_scaling_spellings(void **state) {
    (void)state;
    static const char *const spellings[] = {
        "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",",
        "\"rope_theta\":500000.0,\"rope_scaling\":{\"type\":\"llama3\",",
        "\"rope_theta\":500000.0,\"rope_scaling\":{\"type\":\"yarn\",\"rope_type\":\"llama3\",", /* the newer name wins */
        "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"type\":\"yarn\",",
        "\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\",",
    };
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        char text[1024];
        sn_model_config c;
        snprintf(text, sizeof text,
                 "{" LLAMA
                 ",%s\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
                 spellings[i]);
        assert_ok(parse(text, &c));
        assert_int_equal(c.rope.type, SN_ROPE_LLAMA3);
        assert_true(c.rope.theta == 500000 && c.rope.factor == 32 && c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
        assert_int_equal(c.rope.original_max_position, 8192);
        sn_model_config_free(&c);
    }
    sn_model_config c;
    assert_ok(parse("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", &c));
    assert_int_equal(c.rope.type, SN_ROPE_LINEAR);
    assert_true(c.rope.factor == 2);
    sn_model_config_free(&c);
}

static void unsupported_named(void **state) {
    (void)state;
    refused("{\"model_type\":\"mamba\"}", SN_ERR_UNSUPPORTED, "model_type \"mamba\" is not supported");
    refused("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}}", SN_ERR_UNSUPPORTED,
            "rope type \"yarn\" is not supported");
    refused("{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}}", SN_ERR_UNSUPPORTED, "rope type \"dynamic\"");
    refused("{" LLAMA ",\"hidden_act\":\"relu2\"}", SN_ERR_UNSUPPORTED, "activation \"relu2\" is not supported");
    refused("{" LLAMA ",\"torch_dtype\":\"float8_e4m3fn\"}", SN_ERR_UNSUPPORTED, "dtype \"float8_e4m3fn\"");
    refused("{" LLAMA ",\"partial_rotary_factor\":0.5}", SN_ERR_UNSUPPORTED, "partial_rotary_factor 0.5");
    refused("{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}", SN_ERR_UNSUPPORTED,
            "scale_attn_by_inverse_layer_idx true");
    refused("{\"model_type\":\"gpt2\",\"scale_attn_weights\":false}", SN_ERR_UNSUPPORTED, "scale_attn_weights false");
}

static void malformed_named(void **state) {
    (void)state;
    refused("{}", SN_ERR_FORMAT, "no model_type");
    refused("{\"model_type\":\"llama\"}", SN_ERR_FORMAT, "vocab_size is missing or 0");
    refused("{" LLAMA ",\"vocab_size\":100}", SN_ERR_FORMAT, "duplicate key \"vocab_size\"");
    refused("{" LLAMA ",\"head_dim\":-2}", SN_ERR_FORMAT, "head_dim is -2");
    refused("{" LLAMA ",\"head_dim\":15}", SN_ERR_FORMAT, "head_dim 15 is odd");
    refused("{" LLAMA ",\"head_dim\":4611686018427387904}", SN_ERR_FORMAT, "head_dim is 4611686018427387904");
    refused("{" LLAMA ",\"num_key_value_heads\":3}", SN_ERR_FORMAT, "num_attention_heads 4 is no multiple of num_key_value_heads 3");
    refused("{" LLAMA ",\"num_key_value_heads\":\"4\"}", SN_ERR_FORMAT, "num_key_value_heads: config.json:1:");
    refused("{" LLAMA ",\"eos_token_id\":[1,\"x\"]}", SN_ERR_FORMAT, "eos_token_id: ");
    refused("{" LLAMA ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", SN_ERR_UNSUPPORTED, "more than 8 ids");
    refused("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\"}}", SN_ERR_FORMAT, "factor is 0");
    refused("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", SN_ERR_FORMAT, "low_freq_factor 0");
    refused("{" LLAMA ",\"rms_norm_eps\":-1e-5}", SN_ERR_FORMAT, "epsilon is -1e-05");
    refused("{" LLAMA "} x", SN_ERR_FORMAT, "wanted the end of the text");
    refused("{\"model_type\":\"llama\",\"vocab_size\":100,\"hidden_size\":65,\"intermediate_size\":96,\"num_hidden_layers\":2,"
            "\"num_attention_heads\":4,\"max_position_embeddings\":64}",
            SN_ERR_FORMAT, "hidden_size 65 is no multiple of num_attention_heads 4");
}

static void assert_near(float found, double wanted) {
    if (!(fabs((double)found - wanted) <= 2e-6 * wanted)) fail_msg("found %.7g, wanted %.7g", (double)found, wanted);
}

static void llama3_divisors(void **state) { /* llama.cpp#8650 */
    (void)state;
    sn_model_config c;
    float d[64];
    sn_model_config_init(&c, SN_ARCH_LLAMA);
    c.head_dim = 64;
    c.rope = (sn_rope){SN_ROPE_LLAMA3, 5e5, 32, 1, 4, 8192, NULL};
    sn_rope_divisors(&c, d);
    static const double middle[] = {1.651329, 3.292262, 9.666729};
    for (int i = 0; i < 15; i++) assert_near(d[i], 1);
    for (int i = 0; i < 3; i++) assert_near(d[15 + i], middle[i]);
    for (int i = 18; i < 32; i++) assert_near(d[i], 32);
    c.head_dim = 128;
    c.rope.factor = 8;
    sn_rope_divisors(&c, d);
    static const double wider[] = {1.207484, 1.553415, 2.026313, 2.694530, 3.684253, 5.257327};
    for (int i = 0; i < 29; i++) assert_near(d[i], 1);
    for (int i = 0; i < 6; i++) assert_near(d[29 + i], wider[i]);
    for (int i = 35; i < 64; i++) assert_near(d[i], 8);

    sn_rope saved = c.rope; /* and back from a GGUF's tensor */
    c.rope = (sn_rope){.theta = 5e5};
    assert_ok(sn_rope_from_divisors(&c, "x", d));
    assert_int_equal(c.rope.type, SN_ROPE_LLAMA3);
    assert_true(c.rope.factor == saved.factor && c.rope.original_max_position == 8192);
    d[30] = 7;
    assert_ok(sn_rope_from_divisors(&c, "x", d));
    assert_int_equal(c.rope.type, SN_ROPE_FACTORS);
    float again[64];
    sn_rope_divisors(&c, again);
    assert_memory_equal(again, d, sizeof d);
    sn_str text = {0};
    assert_int_equal(sn_hf_config_text(&c, &text), SN_ERR_UNSUPPORTED);
    sn_str_free(&text);
    d[3] = 0;
    assert_int_equal(sn_rope_from_divisors(&c, "x", d), SN_ERR_FORMAT);
    sn_model_config_free(&c);
}

static void assert_same(const sn_model_config *a, const sn_model_config *b) {
    assert_string_equal(a->architecture, b->architecture);
    assert_int_equal(a->vocab_size, b->vocab_size);
    assert_int_equal(a->hidden_size, b->hidden_size);
    assert_int_equal(a->intermediate_size, b->intermediate_size);
    assert_int_equal(a->num_layers, b->num_layers);
    assert_int_equal(a->num_heads, b->num_heads);
    assert_int_equal(a->num_kv_heads, b->num_kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->max_position, b->max_position);
    assert_true(a->norm_eps == b->norm_eps);
    assert_int_equal(a->hidden_act, b->hidden_act);
    assert_int_equal(a->sliding_window, b->sliding_window);
    if (a->arch == SN_ARCH_GPT2) return;
    assert_int_equal(a->rope.type, b->rope.type);
    assert_true(a->rope.theta == b->rope.theta);
    assert_true(a->rope.factor == b->rope.factor);
    assert_int_equal(a->rope.original_max_position, b->rope.original_max_position);
}

static void config_json_round_trip(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{" LLAMA ",\"head_dim\":32,\"rms_norm_eps\":1e-05,\"eos_token_id\":[7,8],\"bos_token_id\":0,\"torch_dtype\":\"bfloat16\","
        "\"rope_theta\":1000000.0,\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":8192},\"initializer_range\":0.02,\"auto_map\":{\"a\": [1, {\"b\":null}]},"
        "\"architectures\":[\"MyLlama\"],\"rope_parameters\":null}",
        "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5},\"tie_word_embeddings\":true,\"sliding_window\":17}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_embd\":768,\"n_layer\":12,\"n_head\":12,\"n_positions\":1024,\"n_ctx\":1024}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sn_model_config a, b;
        sn_str out = {0};
        assert_ok(parse(texts[i], &a));
        assert_ok(sn_hf_config_text(&a, &out));
        sn_status s = parse(out.data, &b);
        if (s != SN_OK) fail_msg("%s\n%s", out.data, sn_error_text());
        assert_same(&a, &b);
        assert_int_equal(a.bos_id, b.bos_id);
        assert_int_equal(a.eos_count, b.eos_count);
        assert_memory_equal(a.eos_ids, b.eos_ids, sizeof a.eos_ids);
        assert_int_equal(a.tie_word_embeddings, b.tie_word_embeddings);
        assert_int_equal(a.has_dtype, b.has_dtype);
        assert_int_equal(a.dtype, b.dtype);
        if (i == 0) {
            assert_non_null(strstr(out.data, "\"auto_map\": {\"a\": [1, {\"b\":null}]}"));
            assert_non_null(strstr(out.data, "\"architectures\": [\"MyLlama\"]"));
            assert_non_null(strstr(out.data, "\"rms_norm_eps\": 1e-05"));
            assert_non_null(strstr(out.data, "\"rope_theta\": 1000000.0,"));
            assert_null(strstr(out.data, "LlamaForCausalLM"));
        } else {
            assert_non_null(strstr(out.data, i == 1 ? "[\"LlamaForCausalLM\"]" : "[\"GPT2LMHeadModel\"]"));
        }
        sn_str_free(&out);
        sn_model_config_free(&a);
        sn_model_config_free(&b);
    }
}

/* Writes the config as a GGUF with the one tensor that reading needs, and reads it back. */
static void through_gguf(const sn_model_config *c, sn_model_config *out) {
    sn_gguf_writer w;
    sn_gguf g;
    float divisors[64] = {0};
    size_t n = 1;
    assert_ok(sn_gguf_write_open(file_path, 0, &w));
    assert_ok(sn_gguf_config_write(c, &w));
    sn_shape embedding = sn_shape_of(c->vocab_size, 1), freqs = sn_shape_of(c->head_dim / 2);
    assert_ok(sn_gguf_add_tensor(&w, "token_embd.weight", SN_I8, &embedding));
    if (sn_gguf_config_has_rope_freqs(c)) {
        sn_rope_divisors(c, divisors);
        assert_ok(sn_gguf_add_tensor(&w, "rope_freqs.weight", SN_F32, &freqs));
        n = 2;
    }
    assert_ok(sn_gguf_write_begin(&w));
    for (int64_t i = 0; i < c->vocab_size; i++) assert_ok(sn_gguf_write(&w, 0, (uint64_t)i, "x", 1));
    if (n == 2) assert_ok(sn_gguf_write(&w, 1, 0, divisors, (size_t)c->head_dim / 2 * 4));
    assert_ok(sn_gguf_write_finish(&w));
    sn_gguf_write_close(&w);
    assert_ok(sn_gguf_open(file_path, &g));
    assert_ok(sn_gguf_config_read(&g, out));
    sn_gguf_close(&g);
}

static void gguf_round_trip(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{" LLAMA ",\"head_dim\":64,\"rms_norm_eps\":1e-05,\"rope_theta\":500000.0,\"sliding_window\":64,"
        "\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8.0,"
        "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}",
        "{" LLAMA ",\"num_key_value_heads\":2,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":257,\"n_embd\":768,\"n_layer\":12,\"n_head\":12,\"n_positions\":1024,\"n_inner\":64}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sn_model_config a, b;
        assert_ok(parse(texts[i], &a));
        through_gguf(&a, &b);
        assert_same(&a, &b);
        sn_model_config_free(&a);
        sn_model_config_free(&b);
    }
    sn_model_config c;
    sn_gguf_writer w;
    assert_ok(parse("{" LLAMA ",\"hidden_act\":\"gelu\"}", &c));
    assert_ok(sn_gguf_write_open(file_path, 0, &w));
    assert_int_equal(sn_gguf_config_write(&c, &w), SN_ERR_UNSUPPORTED);
    sn_gguf_write_close(&w);
    sn_model_config_free(&c);
}

static void reads_gguf_of_python(void **state) {
    (void)state;
    sn_model_config folder, file;
    sn_gguf g;
    static const char *const names[] = {"llama", "gpt2"};
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof path, GOLDEN "%s/config.json", names[i]);
        assert_ok(sn_hf_config_read(path, &folder));
        snprintf(path, sizeof path, GOLDEN "%s.gguf", names[i]);
        assert_ok(sn_gguf_open(path, &g));
        assert_ok(sn_gguf_config_read(&g, &file));
        assert_same(&folder, &file);
        assert_int_equal(file.bos_id, 1);
        assert_int_equal(file.eos_ids[0], 2);
        sn_gguf_close(&g);
        sn_model_config_free(&folder);
        sn_model_config_free(&file);
    }
    assert_ok(sn_gguf_open(GOLDEN "types.gguf", &g));
    assert_int_equal(sn_gguf_config_read(&g, &file), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "no tensor token_embd.weight"));
    sn_gguf_close(&g);
}

static sn_status read_with(const char *architecture, const char *key, uint32_t value, const char *string) {
    sn_gguf_writer w;
    sn_gguf g;
    sn_model_config c;
    static const struct {
        const char *key;
        uint32_t value;
    } base[] = {{"llama.context_length", 8},
                {"llama.embedding_length", 16},
                {"llama.block_count", 1},
                {"llama.feed_forward_length", 8},
                {"llama.attention.head_count", 2}}; /* heads of 8 */
    assert_ok(sn_gguf_write_open(file_path, 0, &w));
    assert_ok(sn_gguf_add_string(&w, "general.architecture", architecture, strlen(architecture)));
    for (size_t i = 0; i < 5; i++)
        if (strcmp(base[i].key, key)) assert_ok(sn_gguf_add_u32(&w, base[i].key, base[i].value));
    if (string) assert_ok(sn_gguf_add_string(&w, key, string, strlen(string)));
    else if (value) assert_ok(sn_gguf_add_u32(&w, key, value));
    sn_shape one = sn_shape_of(1, 1);
    assert_ok(sn_gguf_add_tensor(&w, "token_embd.weight", SN_I8, &one));
    assert_ok(sn_gguf_write_begin(&w));
    assert_ok(sn_gguf_write(&w, 0, 0, "x", 1));
    assert_ok(sn_gguf_write_finish(&w));
    sn_gguf_write_close(&w);
    assert_ok(sn_gguf_open(file_path, &g));
    sn_status s = sn_gguf_config_read(&g, &c);
    sn_gguf_close(&g);
    if (s == SN_OK) sn_model_config_free(&c);
    return s;
}

static void gguf_faults_named(void **state) {
    (void)state;
    static const struct {
        const char *architecture, *key;
        uint32_t value;
        const char *string;
        sn_status code;
        const char *wanted;
    } cases[] = {
        {"llama", "llama.attention.sliding_window", 2, NULL, SN_OK, ""},
        {"qwen2moe", "llama.x", 1, NULL, SN_ERR_UNSUPPORTED, "general.architecture \"qwen2moe\" is not supported"},
        {"llama", "llama.block_count", 0, NULL, SN_ERR_FORMAT, "num_hidden_layers is missing"},
        {"llama", "llama.block_count", 0, "two", SN_ERR_FORMAT, "key llama.block_count: wanted i64, found string"},
        {"llama", "llama.rope.scaling.type", 0, "yarn", SN_ERR_UNSUPPORTED, "rope type \"yarn\" is not supported"},
        {"llama", "llama.expert_count", 8, NULL, SN_ERR_UNSUPPORTED, "mixture of 8 experts"},
        {"llama", "llama.vocab_size", 5, NULL, SN_ERR_FORMAT, "vocab_size is 5, but token_embd.weight has 1 rows"},
        {"llama", "llama.rope.dimension_count", 4, NULL, SN_ERR_UNSUPPORTED, "rope.dimension_count 4 differs"},
        {"llama", "llama.attention.key_length", 4, NULL, SN_OK, ""},
        {"llama", "llama.attention.value_length", 4, NULL, SN_ERR_UNSUPPORTED, "attention.value_length 4 differs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sn_status s = read_with(cases[i].architecture, cases[i].key, cases[i].value, cases[i].string);
        if (s != cases[i].code || (s != SN_OK && !strstr(sn_error_text(), cases[i].wanted)))
            fail_msg("%s: %s: %s", cases[i].key, sn_status_name(s), s ? sn_error_text() : "");
    }
}

static void generation_config(void **state) {
    (void)state;
    sn_generation_config g;
    const char *text =
        "{\"bos_token_id\":128000,\"do_sample\":true,\"eos_token_id\":[128001,128008,128009],\"temperature\":0.6,\"top_p\":0.9,"
        "\"top_k\":null,\"transformers_version\":\"4.45\",\"x\":{\"eos_token_id\":1}}";
    assert_ok(sn_generation_config_parse("g", text, strlen(text), &g));
    assert_int_equal(g.bos_id, 128000);
    assert_int_equal(g.eos_count, 3);
    assert_int_equal(g.eos_ids[2], 128009);
    assert_true(g.do_sample && g.temperature == 0.6 && g.top_p == 0.9);
    assert_int_equal(g.top_k, -1);
    assert_int_equal(g.pad_id, -1);
    text = "{\"top_k\":1,\"top_k\":2}";
    assert_int_equal(sn_generation_config_parse("g", text, strlen(text), &g), SN_ERR_FORMAT);
    text = "{\"temperature\":\"hot\"}";
    assert_int_equal(sn_generation_config_parse("g", text, strlen(text), &g), SN_ERR_FORMAT);
    assert_non_null(strstr(sn_error_text(), "temperature: g:1:16"));
    assert_ok(sn_generation_config_read(GOLDEN "llama/generation_config.json", &g));
    assert_int_equal(g.eos_ids[0], 2);
}

int main(void) {
    snprintf(file_path, sizeof file_path, "%s/x.gguf", test_dir("model_config"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_llama_of_transformers),
        cmocka_unit_test(reads_gpt2_of_transformers),
        cmocka_unit_test(defaults_and_spellings),
        cmocka_unit_test(rope_scaling_spellings),
        cmocka_unit_test(unsupported_named),
        cmocka_unit_test(malformed_named),
        cmocka_unit_test(llama3_divisors),
        cmocka_unit_test(config_json_round_trip),
        cmocka_unit_test(gguf_round_trip),
        cmocka_unit_test(reads_gguf_of_python),
        cmocka_unit_test(gguf_faults_named),
        cmocka_unit_test(generation_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
