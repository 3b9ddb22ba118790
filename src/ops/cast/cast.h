/* cast: the same values in another form. x any float or block form, into? ! -> y of the same shape; with `into`, of that
 * form and shape, the values are written there and there is no output. Block forms are encoded by
 * ggml's reference quantisers (tensor/convert.h); NaN, infinity and -0 pass between float forms. */
#ifndef SN_OPS_CAST_CAST_H
#define SN_OPS_CAST_CAST_H

#include "program/kernel.h"

enum { SN_CAST_DTYPE = 0 }; /* i0: the form of y */

struct sn_op;
extern const struct sn_op sn_op_cast;

extern const sn_kernel sn_cast_cpu[], sn_cast_avx2[], sn_cast_avx512[];

/* Whether cast reads this form, and whether it can write it. */
bool sn_cast_reads(sn_dtype t);
bool sn_cast_writes(sn_dtype t);

/* Shared by the kernels: accepts every call that the shape rule lets pass; converts with the given code. */
struct sn_convert_isa;
bool sn_cast_takes(const sn_call *c);
void sn_cast_run(const sn_call *c, const struct sn_convert_isa *isa);

#endif
