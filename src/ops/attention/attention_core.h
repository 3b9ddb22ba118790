/* The tiled attention that the SIMD kernels of attention, attention_grad and paged_attention share.
 *
 * Work is cut into row sets: the query rows of some consecutive tokens of one sequence and of the query heads of one
 * key/value head, token by token. A row set meets the keys of its sequence in chunks of SN_ATTENTION_CHUNK positions,
 * counted from the sequence's first token, and a chunk in tiles of SN_ATTENTION_TILE keys:
 *
 *   tile:   S = Q K^T; m, l, o of the chunk by the online softmax
 *   chunk:  its m, l, o joined to the row's, chunks in order
 *
 * A row's result is thus fixed by its position in the sequence and by the keys that it sees: keys that it does not
 * see add exact zeros. That makes it equal in prompts and decoding, in any packing and with any number of threads;
 * chunks of one row may be computed by different threads.
 *
 * The instruction set comes in as a table of tile routines, compiled once per processor feature (attention_tile.h). */
#ifndef SN_OPS_ATTENTION_CORE_H
#define SN_OPS_ATTENTION_CORE_H

#include "program/kernel.h"

enum { SN_ATTENTION_TILE = 64, SN_ATTENTION_CHUNK = 256, SN_ATTENTION_ROWS = 24 /* rows of a score tile */ };

/* What the softmax of one score tile needs for row r: lo[r] .. hi[r] are the keys it sees, relative to the tile. */
typedef struct sn_attention_isa {
    /* n rows of d values in any float form (NULL: zeros), widened, to out[n][ld]; columns d .. ld - 1 become zero. */
    void (*load)(sn_dtype form, const void *const *rows, int n, int d, int ld, float *out);
    /* The same transposed: out[d][SN_ATTENTION_TILE]; columns n up to the next multiple of 16 become zero. */
    void (*load_transposed)(sn_dtype form, const void *const *rows, int n, int d, float *out);
    /* C[m][n] (+)= A[m][k] B[k][n], n a multiple of 16; A[i][j] is a[i * ai + j * aj]. Each element is one chain of
     * fused multiply-adds over k, started with C's value when `add`. */
    void (*gemm)(int m, int n, int k, const float *a, int ai, int aj, const float *b, int ldb, float *c, int ldc, bool add);
    /* n scores s[rows][SN_ATTENTION_TILE] become 2^(s c - m); m, l and o[rows][dp] are brought up to date. */
    void (*softmax)(int rows, int n, float c, const int *lo, const int *hi, float *s, float *m, float *l, float *o, int dp);
    /* Joins a chunk's m, l, o to the row's. */
    void (*join)(int rows, int dp, const float *m, const float *l, const float *o, float *row_m, float *row_l, float *row_o);
    /* Scores s become p = 2^(s c - lse2), dp becomes p (dp - delta) scale. */
    void (*backward)(int rows, int n, float c, float scale, const int *lo, const int *hi, const float *lse2, const float *delta, float *s,
                     float *dp);
    /* out[i] = x[i] * factor in any float form. */
    void (*store)(sn_dtype form, const float *x, float factor, int d, void *out);
    /* Sum of a[i] b[i], any float forms. */
    float (*dot)(sn_dtype form_a, const void *a, sn_dtype form_b, const void *b, int d);
} sn_attention_isa;

extern const sn_attention_isa sn_attention_isa_avx2, sn_attention_isa_avx512;

/* The keys and values of one sequence and one key/value head. */
typedef struct sn_attention_keys {
    sn_dtype k_form, v_form;
    const char *k, *v; /* position 0 (plain), or offset 0 of block 0 (paged) */
    int64_t stride;    /* bytes between positions, of k and of v; within a block when paged */
    int64_t v_stride;
    const int32_t *table; /* block of positions i * block_tokens ..; NULL: plain */
    int64_t n_table, n_blocks, block_tokens, block_bytes;
} sn_attention_keys;

/* Pointers to n keys and values from `position`; NULL where the block table has no valid block. */
void sn_attention_key_rows(const sn_attention_keys *keys, int64_t position, int n, const void **k, const void **v);

/* A row set, in scratch. */
typedef struct sn_attention_rows {
    int n, d, dp;            /* rows; head dim; the same rounded up to 16 */
    float *q, *o, *row_o;    /* [n][dp] */
    float *m, *l;            /* [n]: of the chunk; m in units of log 2 */
    float *row_m, *row_l;    /* [n] */
    int *lo, *hi;            /* [n]: first and last position that the row sees */
    int *tile_lo, *tile_hi;  /* [SN_ATTENTION_ROWS] */
    float *kt, *vt, *scores; /* [d][TILE], [TILE][dp], [SN_ATTENTION_ROWS][TILE] */
    float c;                 /* scale * log2(e) */
} sn_attention_rows;

/* Most rows of a set for this many query heads a key/value head; a multiple of it. */
int64_t sn_attention_max_rows(int64_t group);
size_t sn_attention_rows_bytes(int64_t max_rows, int64_t d);
void sn_attention_rows_lay(sn_attention_rows *r, int64_t max_rows, int64_t d, void *scratch);

/* Loads the queries of n_tokens tokens: `group` heads from q, `row_bytes` a token; token i stands at position first + i. */
void sn_attention_rows_load(const sn_attention_isa *isa, sn_attention_rows *r, sn_dtype form, const char *q, size_t row_bytes, int n_tokens,
                            int group, int64_t first, int64_t window);
/* Makes row_m, row_l and row_o those of a row that has seen nothing. */
void sn_attention_rows_start(sn_attention_rows *r);
/* Computes m, l and o of one chunk. */
void sn_attention_rows_chunk(const sn_attention_isa *isa, sn_attention_rows *r, const sn_attention_keys *keys, int64_t chunk);
/* All chunks that the rows see, joined to row_m, row_l, row_o as they are. Neither lo nor hi falls from row to row. */
void sn_attention_rows_meet(const sn_attention_isa *isa, sn_attention_rows *r, const sn_attention_keys *keys);
/* The same from the start. */
void sn_attention_rows_run(const sn_attention_isa *isa, sn_attention_rows *r, const sn_attention_keys *keys);

/* Chunks that the rows of a set see: first and last. */
void sn_attention_rows_chunks(const sn_attention_rows *r, int64_t *first, int64_t *last);

/* Writes o / l. A row without keys becomes zero. */
void sn_attention_rows_store(const sn_attention_isa *isa, const sn_attention_rows *r, sn_dtype form, char *o, size_t row_bytes,
                             int n_tokens, int group);
/* Writes the lse of `group` of `heads` heads, token by token; lse is that of the first row. */
void sn_attention_rows_store_lse(const sn_attention_rows *r, float *lse, int64_t heads, int64_t group);

/* The run of tokens from t with one seq_start, at most up to `end`: its length; *start is that seq_start made sane. */
int64_t sn_attention_run_length(const int32_t *seq_start, int64_t t, int64_t end, int64_t *start);

bool sn_attention_takes(const sn_call *c);
size_t sn_attention_scratch(const sn_call *c, int n_threads);
void sn_attention_run(const sn_call *c, const sn_attention_isa *isa);
bool sn_attention_grad_takes(const sn_call *c);
size_t sn_attention_grad_scratch(const sn_call *c, int n_threads);
void sn_attention_grad_run(const sn_call *c, const sn_attention_isa *isa);
bool sn_paged_attention_takes(const sn_call *c);
size_t sn_paged_attention_scratch(const sn_call *c, int n_threads);
void sn_paged_attention_run(const sn_call *c, const sn_attention_isa *isa);

#endif
