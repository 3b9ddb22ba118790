/* The writers of an opened export. Only export*.c include this. */
#ifndef SN_ENGINE_EXPORT_WRITE_H
#define SN_ENGINE_EXPORT_WRITE_H

#include "engine/export_values.h"

/* See sn_export_hf and sn_export_gguf. report may be NULL. */
sn_status sn_export_write_hf(sn_export *v, const char *dir, int form, sn_export_report *report);
sn_status sn_export_write_gguf(sn_export *v, const char *path, int form, sn_export_report *report);

/* Whether two paths are one file or folder. */
bool sn_export_same_file(const char *a, const char *b);

#endif
