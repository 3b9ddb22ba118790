/* libFuzzer target: any bytes through the JSON reader, with every conversion of every token. */
#include "io/json.h"

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sn_json r;
    sn_json_start(&r, "fuzz", (const char *)data, size);
    while (sn_json_next(&r) == SN_OK && r.type != SN_JSON_EOF) {
        int64_t i;
        uint64_t u;
        double f;
        char *text = NULL;
        sn_json_i64(&r, &i);
        sn_json_u64(&r, &u);
        sn_json_f64(&r, &f);
        if (sn_json_string(&r, &text) == SN_OK) sn_free(text);
    }
    sn_json_end(&r);
    return 0;
}
