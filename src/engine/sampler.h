/* Choosing the next token from logits.
 *
 * The steps and their order are those of transformers' generate(): repetition penalty (Keskar et al. 2019, "CTRL"),
 * temperature, top-k, top-p (Holtzman et al. 2020), min-p (Nguyen et al. 2024), softmax, draw. Nothing is allocated:
 * the caller owns a workspace. A draw depends on (seed, position) and the logits only. */
#ifndef SN_ENGINE_SAMPLER_H
#define SN_ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sn_sampling {
    float temperature;        /* 0: the most likely token, the lowest id of equals */
    float top_p;              /* smallest set of most likely tokens with this much probability; 1: all */
    float min_p;              /* tokens at least this likely relative to the likeliest; 0: all */
    float repetition_penalty; /* logits of tokens seen are divided by it if positive, else multiplied; 1: none */
    int32_t top_k;            /* the k most likely tokens and equals of the last; 0: all */
    uint64_t seed;
} sn_sampling;

#define SN_SAMPLING_PLAIN ((sn_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1})

/* SN_ERR_USAGE naming the first parameter out of range and what is allowed. */
sn_status sn_sampling_check(const sn_sampling *s);

/* Bytes of workspace for a vocabulary; the workspace is aligned to 8. */
size_t sn_sampler_workspace(int64_t vocab);

typedef struct sn_candidate {
    int32_t id;
    float p; /* probability; those of all candidates sum to 1 */
} sn_candidate;

/* What may be drawn, by rising id: *out points into the workspace and is valid until its next use. logits f32 [vocab];
 * history i32 [n_history] are the tokens that the penalty sees (others than 0 .. vocab-1 are passed over). Returns the
 * number of candidates; 0 when no logit is above -infinity (NaN counts as -infinity). */
int64_t sn_sampler_candidates(const sn_sampling *s, const float *logits, int64_t vocab, const int32_t *history, int64_t n_history,
                              void *workspace, const sn_candidate **out);

/* Draws the token of this position; -1 when there is no candidate. */
int32_t sn_sampler_draw(const sn_sampling *s, const float *logits, int64_t vocab, const int32_t *history, int64_t n_history,
                        uint64_t position, void *workspace);

/* The draw alone: u in [0, 1) picks from n >= 1 candidates by their cumulative probability. */
int32_t sn_sampler_pick(const sn_candidate *candidates, int64_t n, double u);

/* The number u in [0, 1) of a position: 53 bits of Philox keyed by the seed. */
double sn_sampler_uniform(uint64_t seed, uint64_t position);

/* log_softmax of the raw logits: of `token`, and of the n <= 64 likeliest tokens (likeliest first, lowest id of
 * equals first). Rows without a finite logit give -infinity. */
double sn_log_probability(const float *logits, int64_t vocab, int32_t token);
void sn_top_log_probabilities(const float *logits, int64_t vocab, int n, int32_t *tokens, double *values);

#endif
