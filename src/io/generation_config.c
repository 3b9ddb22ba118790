#include <string.h>

#include "base/file.h"
#include "io/hf_config.h"
#include "io/names.h"

enum { MAX_CONFIG = 16 << 20 };

static sn_status read_value(sn_json *r, const char *key, sn_generation_config *g) {
    if (r->type == SN_JSON_NULL) return SN_OK;
    if (!strcmp(key, "bos_token_id")) return sn_json_i64(r, &g->bos_id);
    if (!strcmp(key, "pad_token_id")) return sn_json_i64(r, &g->pad_id);
    if (!strcmp(key, "eos_token_id")) return sn_hf_read_ids(r, g->eos_ids, &g->eos_count);
    if (!strcmp(key, "do_sample")) return sn_json_bool(r, &g->do_sample);
    if (!strcmp(key, "temperature")) return sn_json_f64(r, &g->temperature);
    if (!strcmp(key, "top_p")) return sn_json_f64(r, &g->top_p);
    if (!strcmp(key, "top_k")) return sn_json_i64(r, &g->top_k);
    return sn_json_skip(r);
}

static sn_status read_all(sn_json *r, sn_names *seen, sn_generation_config *g) {
    size_t index;
    bool added;
    SN_TRY(sn_json_want(r, SN_JSON_OBJECT));
    for (;;) {
        SN_TRY(sn_json_next(r));
        if (r->type == SN_JSON_OBJECT_END) break;
        SN_TRY(sn_names_add(seen, r->text, r->size, &index, &added));
        if (!added) return sn_json_fail(r, "duplicate key \"%.80s\"", r->text);
        SN_TRY(sn_json_next(r));
        sn_status s = read_value(r, seen->items[index].text, g);
        if (s != SN_OK) return sn_fail_in(s, "%s", seen->items[index].text);
    }
    return sn_json_want(r, SN_JSON_EOF);
}

sn_status sn_generation_config_parse(const char *name, const char *text, size_t size, sn_generation_config *g) {
    sn_names seen = {0};
    sn_json r;
    *g = (sn_generation_config){.bos_id = -1, .pad_id = -1, .temperature = -1, .top_p = -1, .top_k = -1};
    sn_json_start(&r, name, text, size);
    sn_status s = read_all(&r, &seen, g);
    sn_json_end(&r);
    sn_names_free(&seen);
    return s;
}

sn_status sn_generation_config_read(const char *path, sn_generation_config *g) {
    char *text;
    size_t size;
    SN_TRY(sn_file_read_all(path, MAX_CONFIG, &text, &size));
    sn_status s = sn_generation_config_parse(path, text, size, g);
    sn_free(text);
    return s;
}
