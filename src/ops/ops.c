/* The table of all ops, and the choice of a kernel. */
#include "graph/op.h"

#define SN_OP(id) extern const sn_op sn_op_##id;
#include "graph/ops.def"
#undef SN_OP

const sn_op *const sn_ops[SN_OP_COUNT] = {
#define SN_OP(id) [SN_OP_##id] = &sn_op_##id,
#include "graph/ops.def"
#undef SN_OP
};

static bool runs_on(const sn_kernel *k, sn_device_kind device, uint32_t features) {
    if (k->device != device) return false;
    return device == SN_DEVICE_CPU ? (k->needs & ~features) == 0 : k->needs <= features;
}

const sn_kernel *sn_kernel_find(const sn_op *op, sn_device_kind device, uint32_t features, const sn_call *c) {
    for (size_t t = 0; t < sizeof op->kernels / sizeof op->kernels[0] && op->kernels[t]; t++)
        for (const sn_kernel *k = op->kernels[t]; k->name; k++)
            if (runs_on(k, device, features) && (!k->takes || k->takes(c))) return k;
    return NULL;
}
