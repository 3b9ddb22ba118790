/* libFuzzer target: any bytes as tokenizer.json; one that opens must encode and decode without fault. */
#include <stddef.h>
#include <stdint.h>

#include "io/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "ab  12\n<s>e\xCC\x81\xFF \xF0\x9F\x98\x80(a=";
    sn_tokenizer *t;
    if (sn_tokenizer_from_json("fuzz", (const char *)data, size, NULL, 0, &t) != SN_OK) return 0;
    sn_ids ids = {0};
    sn_str out = {0};
    if (sn_tokenizer_encode(t, text, sizeof text, SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL, &ids) == SN_OK)
        sn_tokenizer_decode(t, ids.data, ids.size, SN_TOKENIZER_SKIP_SPECIAL, &out);
    /* The input itself, end first: whatever it is, it is a text too. */
    ids.size = 0;
    if (sn_tokenizer_encode(t, (const char *)data + size - (size < 64 ? size : 64), size < 64 ? size : 64, 0, &ids) == SN_OK)
        sn_tokenizer_decode(t, ids.data, ids.size, 0, &out);
    sn_ids_free(&ids);
    sn_str_free(&out);
    sn_tokenizer_close(t);
    return 0;
}
