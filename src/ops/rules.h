/* What the ops' shape rules share: checks that name the op, the argument, and what was wanted and found. */
#ifndef SN_OPS_RULES_H
#define SN_OPS_RULES_H

#include "graph/op.h"

/* Each fails with SN_ERR_SHAPE when input i, called `arg` in the message, does not fit. Rank and extents are checked first;
 * an absent input fails. */
sn_status sn_need_rank(const char *op, const sn_call *c, int i, const char *arg, int rank);
sn_status sn_need_any(const char *op, const sn_call *c, int i, const char *arg); /* rank 1 or more, extents that fit */
sn_status sn_need_shape(const char *op, const sn_call *c, int i, const char *arg, const sn_shape *want);
sn_status sn_need_form(const char *op, const sn_call *c, int i, const char *arg, sn_dtype form);
sn_status sn_need_float(const char *op, const sn_call *c, int i, const char *arg); /* f32, bf16 or f16 */

/* Attributes: one that names a form, f32, bf16 or f16; one that names a mesh axis. */
sn_status sn_need_float_attr(const char *op, const char *attr, int64_t value, sn_dtype *out);
sn_status sn_need_mesh_axis(const char *op, int64_t axis);

void sn_set_out(sn_call *c, int o, sn_dtype form, sn_shape shape);
void sn_set_no_out(sn_call *c, int o); /* not wanted: rank 0 */

/* Index letters of an elementwise op: n_in inputs and n_out outputs of this rank, all split alike. */
const char *sn_axes_same(int rank, int n_in, int n_out);
bool sn_accepts_float(const sn_call *c, int input, sn_dtype form); /* every input in f32, bf16 or f16 */
bool sn_accepts_any(const sn_call *c, int input, sn_dtype form);

/* Gradient helpers: input i of a node (copied before anything is appended), and v in another form when it has not got it. */
sn_vid sn_in(const sn_node *n, int i);
sn_vid sn_in_form(sn_graph *g, sn_vid v, sn_dtype form);

/* Of an update of weights: w (input 0, f32 or bf16), its gradient (1), states, then from input `hyper` on: hyper, clip, and the 16-bit
 * copy of w, which may be absent. */
sn_status sn_need_update(const char *op, const sn_call *c, int hyper);
sn_status sn_need_hyper(const char *op, const sn_call *c, int hyper); /* hyper and clip only */
/* A state like w: its shape, f32 or bf16; and one of another shape. */
sn_status sn_need_state(const char *op, const sn_call *c, int i, const char *arg);
sn_status sn_need_state_of(const char *op, const sn_call *c, int i, const char *arg, const sn_shape *want);
bool sn_accepts_update(int input, sn_dtype form, int hyper); /* states as w: f32 or bf16 */
/* Index letters of an update that works element by element with so many states like w (1 or 2); hyper and clip whole. */
const char *sn_axes_update(const sn_call *c, int states);

/* Arithmetic by element of input 0; bytes of every argument once, and of the inputs in `mutates` twice. */
sn_cost sn_cost_each(const sn_call *c, double flops_an_element, uint32_t mutates);

#endif
