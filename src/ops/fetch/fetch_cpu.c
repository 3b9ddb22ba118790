#include "ops/fetch/fetch.h"
#include "program/files.h"

static void run(const sn_call *c) {
    *c->status = sn_disk_start(&c->files->disk, false, c->disk_offset, c->out[0].data, c->disk_bytes, c->ticket);
}

const sn_kernel sn_fetch_cpu[] = {{"reference", SN_DEVICE_CPU, 0, NULL, NULL, run}, {0}};
