/* embedding: row ids[t] of a table, and its gradient. An id outside the table gives zeros and no gradient.
 * Attributes of embedding: form of y. Of embedding_grad: rows of the table, form of dtable. A rank that holds some rows of the table
 * gives zeros for the ids of others: a summand of y; `first` is its first row. */
#ifndef SN_OPS_EMBEDDING_H
#define SN_OPS_EMBEDDING_H

#include "program/kernel.h"

enum { SN_EMBEDDING_DTYPE = 0, SN_EMBEDDING_FIRST = 1 /* ints */ };
enum { SN_EMBEDDING_GRAD_VOCAB = 0, SN_EMBEDDING_GRAD_DTYPE = 1, SN_EMBEDDING_GRAD_FIRST = 2 /* ints */ };

extern const sn_kernel sn_embedding_cpu[];
extern const sn_kernel sn_embedding_grad_cpu[];

#endif
