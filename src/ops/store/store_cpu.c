#include "ops/store/store.h"
#include "program/files.h"

static void run(const sn_call *c) {
    *c->status = sn_disk_write(&c->files->disk, c->disk_offset, c->in[0].data, sn_tensor_bytes(&c->in[0]));
}

const sn_kernel sn_store_cpu[] = {{"reference", SN_DEVICE_CPU, 0, NULL, NULL, run}, {0}};
