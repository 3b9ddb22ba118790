/* libFuzzer target: any bytes as a recipe; what is read is dumped and has to read back to the same dump. */
#include "io/options.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const sn_option table[] = {
    {.key = "a", .kind = SN_OPTION_INT, .has_least = true},
    {.key = "b", .kind = SN_OPTION_FLOAT},
    {.key = "c", .kind = SN_OPTION_STRING},
    {.key = "d", .kind = SN_OPTION_LIST, .default_text = "x,y"},
    {.key = "e", .kind = SN_OPTION_BUDGET},
    {.key = "f", .kind = SN_OPTION_FLAG},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const sn_option_group group = SN_OPTION_GROUP("Fuzz", table), *const groups[] = {&group};
    sn_options *o, *again;
    sn_str text = {0};
    if (sn_options_open(groups, 1, &o) != SN_OK) return 0;
    if (sn_options_read_recipe_text(o, "fuzz", (const char *)data, size) == SN_OK) {
        sn_options_dump(o, &text);
        if (sn_options_open(groups, 1, &again) != SN_OK) abort();
        if (sn_options_read_recipe_text(again, "dump", text.data, text.size) != SN_OK) abort();
        for (size_t i = 0; i < group.count; i++) {
            const char *key = table[i].key;
            if (sn_options_has(o, key) != sn_options_has(again, key)) abort();
        }
        if (sn_options_string(o, "c") && strcmp(sn_options_string(o, "c"), sn_options_string(again, "c"))) abort();
        sn_options_close(again);
    }
    sn_str_free(&text);
    sn_options_close(o);
    return 0;
}
