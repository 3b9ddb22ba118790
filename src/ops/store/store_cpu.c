#include "ops/store/store.h"
#include "program/files.h"

static void run(const sn_call *c) {
    *c->status = sn_disk_start(&c->files->disk, true, c->disk_offset, c->in[0].data, c->disk_bytes, c->ticket);
}

const sn_kernel sn_store_cpu[] = {{"reference", SN_DEVICE_CPU, 0, NULL, NULL, run}, {0}};
