/* Rows of ready-made ids as programs write them, {"input_ids": [1, 2], "labels": [-100, 2], ...}: read in one pass, without a tree.
 * Whatever is not exactly that is left to the JSON reader, whose errors it gets. */
#include <string.h>

#include "io/dataset_impl.h"

typedef struct scan {
    const char *at, *end;
} scan;

static bool skip(scan *c) { /* false at the end */
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
    return c->at < c->end;
}

static bool take(scan *c, char wanted) {
    if (!skip(c) || *c->at != wanted) return false;
    c->at++;
    return true;
}

/* "-0", leading zeros and more than nine digits are left to the reader, as are fractions (by what has to follow). */
static bool take_number(scan *c, int32_t *out) {
    bool minus = take(c, '-');
    if (minus ? c->at == c->end : !skip(c)) return false;
    const char *begin = c->at;
    int32_t value = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - begin < 9) value = value * 10 + (*c->at++ - '0');
    size_t digits = (size_t)(c->at - begin);
    if (!digits || (*begin == '0' && (digits > 1 || minus))) return false;
    *out = minus ? -value : value;
    return true;
}

/* Ids into `out`; of another key's list (out is NULL) the numbers are passed over. */
static bool take_list(scan *c, sn_ids *out, bool labels, sn_status *status) {
    if (!take(c, '[')) return false;
    if (take(c, ']')) return true;
    do {
        int32_t value;
        if (!take_number(c, &value)) return false;
        if (!out) continue;
        if (value < 0 && !(labels && value == SN_IGNORE_LABEL)) return false;
        if ((*status = sn_ids_push(out, value)) != SN_OK) return true;
    } while (take(c, ','));
    return take(c, ']');
}

/* A key of letters and underscores, which no escape can spell otherwise. */
static bool take_key(scan *c, const char **key, size_t *size) {
    if (!take(c, '"')) return false;
    for (*key = c->at; c->at < c->end && ((*c->at >= 'a' && *c->at <= 'z') || *c->at == '_');) c->at++;
    *size = (size_t)(c->at - *key);
    return take(c, '"') && (size_t)(c->at - 1 - *key) == *size && take(c, ':');
}

static bool is(const char *key, size_t size, const char *wanted) { return size == strlen(wanted) && !memcmp(key, wanted, size); }

sn_status sn_sample_ready_made(const char *json, size_t size, sn_sample *s, bool *done, bool *has_labels) {
    scan c = {json, json + size};
    bool has_ids = false, whole;
    sn_status status = SN_OK;
    *done = *has_labels = false;
    s->ids.size = s->labels.size = 0;
    if (!take(&c, '{')) return SN_OK;
    do {
        const char *key;
        size_t n;
        if (!take_key(&c, &key, &n)) return SN_OK;
        bool ids = is(key, n, "input_ids"), labels = is(key, n, "labels");
        if ((ids && has_ids) || (labels && *has_labels)) return SN_OK;
        has_ids |= ids;
        *has_labels |= labels;
        whole = take_list(&c, ids ? &s->ids : labels ? &s->labels : NULL, labels, &status);
        if (status != SN_OK) return status;
    } while (whole && take(&c, ','));
    *done = whole && take(&c, '}') && !skip(&c) && has_ids && (!*has_labels || s->ids.size == s->labels.size);
    return SN_OK;
}
