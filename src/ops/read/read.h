/* read: bytes of a file of the program, on the io queue. into? ! [N] or [N,K] -> x [N] or [N,K] of form dtype, unless
 * `into` is given: then it takes the bytes, must have that form and shape, and there is no output.
 *
 * Plain: the bytes [offset, offset + bytes) as they lie. head_dim > 0: the same bytes, whose rows a GGUF file has permuted
 * within each head of head_dim rows (rotary pairs side by side: row 2j + h of the file is row h * head_dim / 2 + j of the
 * result); N is whole heads. stride > 0: the file holds the transpose; column o of the result is the N elements at
 * offset + o * stride.
 *
 * A rank that holds a shard of x reads that alone: rows from first_row and columns from first_column (at a block of the form) on; of
 * permuted rows whole heads.
 *
 * The one kernel that can fail when it runs: a file that cannot be read or ends early (program/kernel.h, status). */
#ifndef SN_OPS_READ_READ_H
#define SN_OPS_READ_READ_H

#include "program/kernel.h"

enum {
    SN_READ_FILE = 0,      /* i0: index in the program's files */
    SN_READ_OFFSET = 1,    /* i1: of the first byte in that file */
    SN_READ_BYTES = 2,     /* i2: of x */
    SN_READ_DTYPE = 3,     /* i3: form of x */
    SN_READ_COLUMNS = 4,   /* i4: K; 0: x is a vector */
    SN_READ_HEAD_DIM = 5,  /* i5: rows of a permuted head; 0: rows as they lie */
    SN_READ_STRIDE = 6,    /* i6: bytes from one stored row of the transpose to the next; 0: not transposed */
    SN_READ_FIRST_ROW = 7, /* i7, i8: of x as the file holds it, where this rank's part begins */
    SN_READ_FIRST_COLUMN = 8,
    SN_READ_PARTS = 9 /* i9: 3: so many matrices lie beside each other (of a vector: runs), this rank has as much of each; else 0 */
};

struct sn_op;
extern const struct sn_op sn_op_read;

extern const sn_kernel sn_read_cpu[];

#endif
