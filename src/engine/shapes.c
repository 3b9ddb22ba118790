/* Published configurations of well-known models, for planning without their files. Sources: their config.json on the
 * Hugging Face Hub; zero-7.5b is the 7.5-billion-parameter model of the ZeRO paper's Figure 1 (arXiv 1910.02054), here as
 * a GPT-2 shape of 7,459,729,408 parameters. */
#include <string.h>

#include "engine/model.h"

typedef struct shape {
    const char *name;
    sn_model_arch arch;
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, context;
    bool tied;
    double theta;
} shape;

static const shape shapes[] = {
    {"smollm2-135m", SN_ARCH_LLAMA, 49152, 576, 1536, 30, 9, 3, 64, 8192, true, 1e5},
    {"smollm2-360m", SN_ARCH_LLAMA, 49152, 960, 2560, 32, 15, 5, 64, 8192, true, 1e5},
    {"smollm2-1.7b", SN_ARCH_LLAMA, 49152, 2048, 8192, 24, 32, 32, 64, 8192, true, 1.3e5},
    {"llama-2-7b", SN_ARCH_LLAMA, 32000, 4096, 11008, 32, 32, 32, 128, 4096, false, 1e4},
    {"llama-2-13b", SN_ARCH_LLAMA, 32000, 5120, 13824, 40, 40, 40, 128, 4096, false, 1e4},
    {"llama-2-70b", SN_ARCH_LLAMA, 32000, 8192, 28672, 80, 64, 8, 128, 4096, false, 1e4},
    {"llama-3-8b", SN_ARCH_LLAMA, 128256, 4096, 14336, 32, 32, 8, 128, 8192, false, 5e5},
    {"llama-3-70b", SN_ARCH_LLAMA, 128256, 8192, 28672, 80, 64, 8, 128, 8192, false, 5e5},
    {"llama-3.1-405b", SN_ARCH_LLAMA, 128256, 16384, 53248, 126, 128, 8, 128, 131072, false, 5e5},
    {"llama-3.2-1b", SN_ARCH_LLAMA, 128256, 2048, 8192, 16, 32, 8, 64, 131072, true, 5e5},
    {"llama-3.2-3b", SN_ARCH_LLAMA, 128256, 3072, 8192, 28, 24, 8, 128, 131072, true, 5e5},
    {"mistral-7b", SN_ARCH_LLAMA, 32000, 4096, 14336, 32, 32, 8, 128, 32768, false, 1e4},
    {"gpt2", SN_ARCH_GPT2, 50257, 768, 3072, 12, 12, 12, 64, 1024, true, 0},
    {"gpt2-medium", SN_ARCH_GPT2, 50257, 1024, 4096, 24, 16, 16, 64, 1024, true, 0},
    {"gpt2-large", SN_ARCH_GPT2, 50257, 1280, 5120, 36, 20, 20, 64, 1024, true, 0},
    {"gpt2-xl", SN_ARCH_GPT2, 50257, 1600, 6400, 48, 25, 25, 64, 1024, true, 0},
    {"zero-7.5b", SN_ARCH_GPT2, 50257, 4096, 16384, 36, 32, 32, 128, 1024, true, 0},
};

bool sn_named_shape(const char *name, sn_model_config *c) {
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *s = &shapes[i];
        if (strcmp(s->name, name)) continue;
        sn_model_config_init(c, s->arch);
        c->vocab_size = s->vocab;
        c->hidden_size = s->hidden;
        c->intermediate_size = s->ffn;
        c->num_layers = s->layers;
        c->num_heads = s->heads;
        c->num_kv_heads = s->kv_heads;
        c->head_dim = s->head_dim;
        c->max_position = s->context;
        c->norm_eps = 1e-5;
        c->tie_word_embeddings = s->tied;
        if (s->arch == SN_ARCH_LLAMA) c->rope.theta = s->theta;
        if (!strncmp(name, "llama-3.", 8)) {
            c->rope.type = SN_ROPE_LLAMA3;
            c->rope.factor = !strncmp(name, "llama-3.2", 9) ? 32 : 8;
            c->rope.low_freq_factor = 1;
            c->rope.high_freq_factor = 4;
            c->rope.original_max_position = 8192;
        }
        return true;
    }
    return false;
}

const char *sn_named_shapes(void) {
    static char text[512];
    if (!text[0])
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            if (i) strcat(text, ", ");
            strcat(text, shapes[i].name);
        }
    return text;
}
