#include "engine/probe_file.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/hub_store.h"

int sn_probe_threads(int threads) { return threads > 0 ? threads : sn_cpu_count(); }

bool sn_probe_folder(const char *folder, char out[256]) {
    char real[PATH_MAX];
    return realpath(folder, real) && strlen(real) < 256 && strcpy(out, real);
}

const sn_probe_disk *sn_probe_find_disk(const sn_probe *p, const char *folder) {
    char real[256];
    if (!folder || !*folder || !sn_probe_folder(folder, real)) return NULL;
    for (int i = 0; i < p->n_disks; i++)
        if (!strcmp(p->disks[i].folder, real)) return &p->disks[i];
    return NULL;
}

static sn_status cache_path(char **out) {
    char *models;
    SN_TRY(sn_store_models(&models));
    char *slash = strrchr(models, '/'); /* the store is the folder around models/ */
    if (slash) *slash = 0;
    *out = sn_path_join(models, "probe.json");
    sn_free(models);
    return *out ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
}

static bool read_points(const json_t *list, sn_profile *p) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *key;
        if (p->n == SN_PROFILE_MOST) return false;
        sn_profile_point *at = &p->points[p->n++];
        if (json_unpack(item, "[s, F, F, F]", &key, &at->work, &at->intensity, &at->factor) || strlen(key) >= sizeof at->key) return false;
        if (!(at->work > 0 && at->intensity > 0 && at->factor > 0)) return false;
        strcpy(at->key, key);
    }
    return true;
}

static bool read_disks(const json_t *list, sn_probe *p) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        const char *folder;
        if (p->n_disks == sizeof p->disks / sizeof *p->disks) return true;
        sn_probe_disk *d = &p->disks[p->n_disks++];
        if (json_unpack(item, "[s, F, F]", &folder, &d->read_bytes, &d->write_bytes) || strlen(folder) >= sizeof d->folder) return false;
        if (!(d->read_bytes > 0 && d->write_bytes > 0)) return false;
        strcpy(d->folder, folder);
    }
    return true;
}

sn_status sn_probe_cached(int threads, sn_probe *out, bool *found) {
    char *path, *text = NULL;
    size_t size = 0;
    const char *features = NULL;
    json_t *points = NULL, *disks = NULL;
    *found = false;
    SN_TRY(cache_path(&path));
    sn_status s = sn_path_exists(path) ? sn_file_read_all(path, 1 << 20, &text, &size) : SN_OK;
    sn_free(path);
    SN_TRY(s);
    json_t *j = text ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : NULL; /* a damaged cache is measured again */
    sn_probe *p = j ? sn_alloc_zero(1, sizeof *p) : NULL;
    if (p &&
        !json_unpack(j, "{s:s, s:i, s:F, s:F, s:F, s:F, s:o, s:o}", "features", &features, "threads", &p->threads, "f32_flops",
                     &p->f32_flops, "bf16_flops", &p->bf16_flops, "int8_ops", &p->int8_ops, "read_bytes_per_s", &p->read_bytes, "kernels",
                     &points, "disks", &disks) &&
        !strcmp(features, sn_cpu_text()) && p->threads == sn_probe_threads(threads) && read_points(points, &p->profile) &&
        read_disks(disks, p)) {
        snprintf(p->features, sizeof p->features, "%s", features);
        *out = *p;
        *found = true;
    }
    s = j && !p ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a profile") : SN_OK;
    sn_free(p);
    json_decref(j);
    sn_free(text);
    return s;
}

static void write_text(const sn_probe *p, sn_str *text) {
    sn_str_printf(text,
                  "{\"features\": \"%s\", \"threads\": %d, \"f32_flops\": %.6e, \"bf16_flops\": %.6e, \"int8_ops\": %.6e, "
                  "\"read_bytes_per_s\": %.6e,\n\"disks\": [",
                  p->features, p->threads, p->f32_flops, p->bf16_flops, p->int8_ops, p->read_bytes);
    for (int i = 0; i < p->n_disks; i++) {
        sn_str_add(text, i ? ", [" : "[");
        sn_str_json(text, p->disks[i].folder, strlen(p->disks[i].folder));
        sn_str_printf(text, ", %.6e, %.6e]", p->disks[i].read_bytes, p->disks[i].write_bytes);
    }
    sn_str_add(text, "],\n\"kernels\": [");
    for (size_t i = 0; i < p->profile.n; i++) {
        const sn_profile_point *at = &p->profile.points[i];
        sn_str_add(text, i ? ",\n[" : "\n[");
        sn_str_json(text, at->key, strlen(at->key));
        sn_str_printf(text, ", %.6e, %.6e, %.6e]", at->work, at->intensity, at->factor);
    }
    sn_str_add(text, "]}\n");
}

sn_status sn_probe_keep(const sn_probe *p) {
    char *path;
    sn_str text = {0};
    SN_TRY(cache_path(&path));
    write_text(p, &text);
    sn_status s = text.failed ? sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a text") : SN_OK;
    char *slash = strrchr(path, '/');
    if (s == SN_OK) {
        *slash = 0;
        s = sn_make_dirs(path);
        *slash = '/';
    }
    if (s == SN_OK) s = sn_file_replace(path, text.data, text.size);
    sn_str_free(&text);
    sn_free(path);
    return s;
}
