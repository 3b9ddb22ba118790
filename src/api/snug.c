/* What belongs to no verb: version, errors, memory. */
#include "api/api.h"
#include "base/mem.h"
#include "base/system.h"

/* snug.h repeats sn_status, so that a program needs no header of the inside. */
#define X(name, text) _Static_assert((int)SNUG_##name == (int)SN_##name, "snug_status differs from sn_status at " #name);
SN_STATUS_LIST(X)
#undef X

const char *snug_version(void) { return SNUG_VERSION; }
const char *snug_error(void) { return sn_error_text(); }
const char *snug_status_name(snug_status status) { return sn_status_name((sn_status)status); }
void snug_free(void *p) { sn_free(p); }
uint64_t snug_peak_memory(void) { return sn_peak_rss_bytes(); }

sn_status sn_hand_out(sn_str *s, char **out) {
    if (!s->failed && !s->data) sn_str_append(s, "", 0);
    char *text = s->failed ? NULL : s->data ? s->data : sn_strdup("");
    if (!text) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a text");
    *s = (sn_str){0};
    *out = text;
    return SN_OK;
}
