/* Writing models: merged with an adapter, or in another form. */
#include <string.h>

#include "api/api.h"
#include "base/team.h"
#include "engine/export.h"

snug_status snug_merge(const snug_model *m, const snug_options *o, snug_merged *out) {
    const char *path = snug_options_text(o, "out");
    int64_t threads = snug_options_integer(o, "threads");
    sn_export_report r;
    int form;
    if (!path || !*path) return (snug_status)sn_fail(SN_ERR_USAGE, "out: no file or folder is named");
    if (threads < 0 || threads > 1024) return (snug_status)sn_fail(SN_ERR_USAGE, "threads is %lld, wanted 0 to 1024", (long long)threads);
    size_t n = strlen(path);
    bool gguf = n > 5 && !strcmp(path + n - 5, ".gguf");
    sn_status s = sn_need_weights(&m->model);
    if (s == SN_OK) s = sn_export_form(snug_options_text(o, "form"), &form);
    if (s == SN_OK) s = sn_merge_adapter(&m->model, sn_adapter_of(o), path, gguf, form, threads ? (int)threads : sn_cpu_count(), &r);
    if (s == SN_OK) *out = (snug_merged){r.tensors, r.elements, r.bytes, r.adapted, r.fallbacks};
    return (snug_status)s;
}
