#include "program/files.h"

#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

sn_status sn_files_open(const sn_program_file *list, int count, sn_files *out) {
    *out = (sn_files){.list = list, .fds = sn_alloc((size_t)count * sizeof *out->fds)};
    if (!out->fds) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the list of files");
    for (; out->count < count; out->count++) {
        sn_status s = sn_file_open(list[out->count].path, &out->fds[out->count], NULL);
        if (s == SN_OK) continue;
        sn_files_close(out);
        return s;
    }
    return SN_OK;
}

void sn_files_close(sn_files *f) {
    sn_disk_close(&f->disk);
    for (int i = 0; i < f->count; i++) close(f->fds[i]);
    sn_free(f->fds);
    *f = (sn_files){0};
}
