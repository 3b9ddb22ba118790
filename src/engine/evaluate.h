/* Perplexity and raw logits of a text. */
#ifndef SN_ENGINE_EVALUATE_H
#define SN_ENGINE_EVALUATE_H

#include "engine/session.h"

typedef struct sn_perplexity {
    double nll;        /* mean negative log-likelihood of the counted tokens, nats */
    double perplexity; /* exp(nll) */
    int64_t tokens, windows;
} sn_perplexity;

/* Perplexity of n ids in windows of ctx tokens.
 * stride == 0: llama.cpp's protocol: whole windows one after the other, of each the predictions of its second half count
 *   (positions ctx/2 .. ctx-2); `bos` >= 0 replaces the first token of each window.
 * stride > 0: sliding windows as in transformers' perplexity guide: each token counts once, in the first window that
 *   reaches it. */
sn_status sn_evaluate_perplexity(sn_model *model, const sn_options *recipe, const char *adapter, const int32_t *ids, int64_t n, int64_t ctx,
                                 int64_t stride, int32_t bos, sn_perplexity *out);

/* Writes the logits of n ids as one sequence to a safetensors file: one F32 tensor "logits" [n, vocab]. */
sn_status sn_evaluate_dump_logits(sn_model *model, const sn_options *recipe, const char *adapter, const int32_t *ids, int64_t n,
                                  const char *path);

/* One sequence of n tokens into the inputs of a program of T tokens; the rest is padding. */
void sn_fill_sequence(sn_run *run, int program, int slot, const int32_t *ids, int64_t n, int64_t T);

/* The job of program "evaluate" or "logits" planned, checked against the budget and opened. */
sn_status sn_evaluator_open(sn_model *model, const sn_options *recipe, const char *adapter, int64_t tokens, bool logits, sn_session *s);

#endif
