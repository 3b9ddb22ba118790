/* Calls of ops for tests: arguments in any form, and the checks that every op owes: the same bits from every variant, with
 * every number of threads, and in place where the op permits it. */
#ifndef SN_TESTS_OP_CALL_H
#define SN_TESTS_OP_CALL_H

#include "support/support.h"

#include "graph/op.h"

/* A tensor of its own memory (also when it has no elements): numbers in [-scale, scale) for float forms, else zeros. */
sn_tensor op_tensor(sn_dtype form, sn_shape shape, uint32_t seed, float scale);
/* The same from n given numbers, and of 32-bit integers. */
sn_tensor op_tensor_of(sn_dtype form, sn_shape shape, const float *values);
sn_tensor op_tensor_i32(sn_shape shape, const int32_t *values);
void op_free_tensor(sn_tensor *t);

double op_get(const sn_tensor *t, int64_t i); /* element i of a float form, or of f64 */
void op_set(const sn_tensor *t, int64_t i, double value);

/* Sets n_in, runs the shape rule and allocates the outputs, filled with bytes that are no result. */
void op_prepare(const sn_op *op, sn_call *c, int n_in);
/* Runs one kernel with a team of n_threads. */
void op_run_kernel(const sn_kernel *k, sn_call *c, int n_threads);
/* Runs the reference: the last kernel of the op's last table. */
void op_run(const sn_op *op, sn_call *c);
void op_free_call(sn_call *c);

/* Runs every kernel that this processor has with 1, 2 and 3 threads, each from the same inputs: outputs and changed inputs
 * must have the reference's bits. Leaves the reference's result in the call. */
void op_same_bits(const sn_op *op, sn_call *c);
/* For every output and every input whose bytes it may take: the same bits when it does. */
void op_in_place(const sn_op *op, sn_call *c);

/* Fails unless the shape rule refuses the call with a message that holds `text`. */
void op_refused(const sn_op *op, sn_call *c, int n_in, const char *text);

/* Largest error of element i against want[i], relative to 1 + |want[i]|. */
double op_tensor_error(const sn_tensor *t, const double *want);
/* What rounding to this form may add to an f32 computation. */
double op_tolerance(sn_dtype form);

/* n numbers of the line `name: v v v ...` of a text file below the source folder; fails when they are not there. */
void op_golden(const char *path, const char *name, float *out, int64_t n);

#endif
