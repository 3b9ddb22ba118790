/* The tiles of attention's backward, which attention_grad and ring_attention_grad share: the inputs do, q, k, v, o and lse of
 * their calls are the first six, in this order. */
#ifndef SN_OPS_ATTENTION_GRAD_CORE_H
#define SN_OPS_ATTENTION_GRAD_CORE_H

#include "ops/attention/attention_core.h"

typedef struct sn_attention_grad_job {
    const sn_call *c;
    const sn_attention_isa *isa;
    int64_t n, d, dp, heads, kv_heads, group, window, max_rows, tokens; /* query tokens in all; of a dq task */
    float c2, scale;                                                    /* scale * log2(e); scale */
    float *delta;                                                       /* [T][H]: do . o */
    char *members;
    size_t delta_bytes, member_bytes;
} sn_attention_grad_job;

/* One thread's scratch. */
typedef struct sn_attention_grad_tiles {
    float *q, *dout, *sum; /* [max_rows][dp]; sum is dq, or dk and dv of a key block */
    float *lse2, *delta;   /* [max_rows] */
    int *lo, *hi;          /* [SN_ATTENTION_ROWS]: what a row sees, relative to the key tile */
    float *kt, *vt, *k;    /* [d][SN_ATTENTION_TILE] twice, [SN_ATTENTION_TILE][dp] */
    float *s, *ds;         /* [SN_ATTENTION_ROWS][SN_ATTENTION_TILE] */
    float *dv;             /* [SN_ATTENTION_TILE][dp] */
} sn_attention_grad_tiles;

/* Of a call with head_dim, window and scale in attention's slots. */
sn_attention_grad_job sn_attention_grad_job_of(const sn_call *c);
void sn_attention_grad_begin(sn_attention_grad_job *b, const sn_attention_isa *isa); /* lays the scratch and fills delta */
void sn_attention_grad_lay(const sn_attention_grad_job *b, sn_attention_grad_tiles *x, int member);

/* Head `head` of row `row`. */
void *sn_attention_head(const sn_tensor *t, int64_t row, int64_t head, int64_t d);

/* Loads n query rows, numbered token by token and head by head of group g from token t on, starting at row `first`. */
void sn_attention_grad_load_rows(const sn_attention_grad_job *b, sn_attention_grad_tiles *x, int64_t t, int64_t g, int64_t first, int n);
/* Loads keys and values transposed, and the keys also as they are when `straight`. */
void sn_attention_grad_load_keys(const sn_attention_grad_job *b, sn_attention_grad_tiles *x, int64_t first, int64_t g, int n,
                                 bool straight);
/* p and ds of query rows i .. i + rows - 1, which see lo .. hi of n keys. */
void sn_attention_grad_scores(const sn_attention_grad_job *b, sn_attention_grad_tiles *x, int i, int rows, int n);

#endif
