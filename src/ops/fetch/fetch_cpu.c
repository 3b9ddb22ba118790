#include "ops/fetch/fetch.h"
#include "program/files.h"

static void run(const sn_call *c) {
    *c->status = sn_disk_read(&c->files->disk, c->disk_offset, c->out[0].data, sn_tensor_bytes(&c->out[0]));
}

const sn_kernel sn_fetch_cpu[] = {{"reference", SN_DEVICE_CPU, 0, NULL, NULL, run}, {0}};
