#include "engine/export.h"

#include <string.h>

#include "engine/export_write.h"

sn_status sn_export_form(const char *text, int *form) {
    sn_dtype t;
    if (!strcmp(text, "source")) return *form = SN_FORM_SOURCE, SN_OK;
    if (!sn_dtype_by_name(text, &t) || !sn_export_can_encode(t))
        return sn_fail(SN_ERR_USAGE, "'%s' is no form that models can be written in", text);
    *form = t;
    return SN_OK;
}

static sn_status write(const sn_model *model, const sn_session *session, const char *adapter, const char *out, bool gguf, int form,
                       int threads, sn_export_report *report) {
    sn_export v;
    SN_TRY(sn_export_open(&v, model, session, adapter, threads));
    sn_status s = gguf ? sn_export_write_gguf(&v, out, form, report) : sn_export_write_hf(&v, out, form, report);
    sn_export_close(&v);
    return s;
}

sn_status sn_export_hf(const sn_session *s, const char *out_dir, int form, sn_export_report *report) {
    return write(s->model, s, NULL, out_dir, false, form, 1, report);
}

sn_status sn_export_gguf(const sn_session *s, const char *path, int form, sn_export_report *report) {
    return write(s->model, s, NULL, path, true, form, 1, report);
}

sn_status sn_merge_adapter(const sn_model *model, const char *adapter, const char *out, bool gguf, int form, int threads,
                           sn_export_report *report) {
    return write(model, NULL, adapter, out, gguf, form, threads, report);
}
