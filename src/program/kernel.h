/* The kernel ABI: what a kernel is given, and how it is declared.
 *
 * Kernels see base/, tensor/ and program/ only. A kernel neither allocates nor fails: everything that can be refused
 * is refused by `takes` when the plan is made. What cannot be known then is how reading and writing files goes: a kernel of
 * the io queue, and only such a one, may set *status, with this thread's message naming the file and the place in it. An output element's
 * bits depend neither on its place in the call nor on the number of threads; reductions have a fixed order that is part of the op's
 * definition. */
#ifndef SN_PROGRAM_KERNEL_H
#define SN_PROGRAM_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/team.h"
#include "program/attrs.h"
#include "tensor/shape.h"

enum { SN_MAX_IN = 12, SN_MAX_OUT = 4 };

typedef enum sn_device_kind { SN_DEVICE_CPU, SN_DEVICE_CUDA } sn_device_kind;

struct sn_comm;
struct sn_files;

/* One call. An absent optional input has data == NULL and shape.rank == 0. An input that the op mutates is written
 * through its data pointer; an output that the planner placed on an input (alias) has the same data pointer. */
typedef struct sn_call {
    sn_tensor in[SN_MAX_IN];
    sn_tensor out[SN_MAX_OUT];
    int n_in, n_out;
    sn_attrs attrs;
    void *scratch; /* kernel->scratch bytes, aligned to 64 */
    sn_team *team;
    struct sn_comm *comm;         /* for collectives only */
    const struct sn_files *files; /* for the io queue only */
    uint64_t disk_offset;         /* of the argument that rests in the disk arena, whose data is NULL */
    uint64_t disk_bytes;          /* to be moved there: those of the argument, or whole blocks of the disk */
    unsigned ticket;              /* for a transfer that goes on when the kernel has returned */
    sn_status *status;            /* of the io queue: SN_OK, or why it failed */
} sn_call;

static inline bool sn_has(const sn_call *c, int input) { return input < c->n_in && c->in[input].shape.rank > 0; }

typedef struct sn_kernel {
    const char *name; /* "avx2 q4_1": shown by explain after the op's name */
    sn_device_kind device;
    uint32_t needs; /* SN_CPU_* bits, or the sm version for CUDA */
    /* Whether this kernel computes a call of these forms and shapes (data pointers are NULL here). */
    bool (*takes)(const sn_call *c);
    /* Bytes of scratch for these shapes and this number of threads; NULL: none. */
    size_t (*scratch)(const sn_call *c, int n_threads);
    void (*run)(const sn_call *c); /* NULL in a build without that device */
} sn_kernel;

#endif
