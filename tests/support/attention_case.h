/* What the tests of the attention ops share: tensors, running a kernel, masks and an f64 reference. */
#ifndef SN_TESTS_ATTENTION_CASE_H
#define SN_TESTS_ATTENTION_CASE_H

#include "base/cpu.h"
#include "graph/op.h"
#include "support/support.h"

/* Tensors live until case_tensors_free. */
sn_tensor case_tensor(sn_dtype form, sn_shape shape);
void case_tensors_free(void);

/* Random values in [-scale, scale), rounded to the tensor's form. */
void case_fill(sn_tensor *t, uint32_t seed, float scale);
/* scale * sin(1.7 i + 0.37 seed + 0.011 i seed): the inputs of tests/golden/make_attention.py. */
void case_sine(sn_tensor *t, int seed, double scale);
double case_at(const sn_tensor *t, int64_t i);
/* Largest |a - b| / (1 + |b|) over all elements; infinity when a is not finite. */
double case_error(const sn_tensor *a, const double *b);

/* Runs the op's shape rule (which must pass), makes the outputs and runs a kernel on n threads. Its scratch holds
 * NaNs before, and ends where the kernel said. */
void case_run(const sn_op *op, const sn_kernel *kernel, sn_call *c, int n_threads);
/* The same with outputs as they are. */
void case_run_again(const sn_kernel *kernel, sn_call *c, int n_threads);

/* The kernels of this op that this machine runs, reference first; their number. */
int case_kernels(const sn_op *op, const sn_kernel **out, int most);

/* Attention in f64, key by key: first[t] is the first key of token t. Any of the outputs may be NULL. d* are sums for dout. */
typedef struct case_attention {
    int64_t n, heads, kv_heads, d, window;
    double scale;
    const int32_t *seq_start;
    const sn_tensor *q, *k, *v, *dout;
    double *o, *lse, *dq, *dk, *dv;
} case_attention;
void case_attention_f64(const case_attention *a);

/* seq_start [T] of sequences that start at these tokens. */
sn_tensor case_seq_start(int64_t n, const int32_t *starts, int n_starts);

/* A file of f32 values below tests/golden; freed by case_tensors_free. */
const float *case_golden(const char *name, size_t n);

#endif
