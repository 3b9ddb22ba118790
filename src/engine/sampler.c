#include "engine/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"

/* A value and its weight, for selection. */
typedef struct weighted {
    float value, weight;
} weighted;

/* The workspace: candidates [V], weighted [V], one bit a token. */
size_t sn_sampler_workspace(int64_t vocab) {
    return (size_t)vocab * (sizeof(sn_candidate) + sizeof(weighted)) + ((size_t)vocab + 63) / 64 * 8;
}

static sn_status out_of_range(const char *name, double value, const char *wanted) {
    return sn_fail(SN_ERR_USAGE, "%s is %g; wanted %s", name, value, wanted);
}

sn_status sn_sampling_check(const sn_sampling *s) {
    /* Written so that a NaN fails every one of them. */
    if (!(s->temperature >= 0 && s->temperature < INFINITY)) return out_of_range("temperature", s->temperature, "0 or more");
    if (!(s->top_p >= 0 && s->top_p <= 1)) return out_of_range("top_p", s->top_p, "0 to 1");
    if (!(s->min_p >= 0 && s->min_p <= 1)) return out_of_range("min_p", s->min_p, "0 to 1");
    if (!(s->repetition_penalty > 0 && s->repetition_penalty < INFINITY))
        return out_of_range("repetition_penalty", s->repetition_penalty, "more than 0");
    if (s->top_k < 0) return out_of_range("top_k", s->top_k, "0 or more");
    return SN_OK;
}

static float median3(float a, float b, float c) { return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b); }

/* Walks the n >= 1 items from the largest value down until their weight reaches `target`: returns the value at which that
 * happens, and in *equals how many items of just that value belong to the set (at least 1). The items are reordered.
 * Quickselect with a three-way partition: expected O(n). */
static float select_weight(weighted *items, int64_t n, double target, int64_t *equals) {
    double above = 0; /* weight of items already known to belong */
    for (;;) {
        float pivot = median3(items[0].value, items[n / 2].value, items[n - 1].value);
        int64_t greater = 0, same = 0; /* [0, greater) > pivot, [greater, greater + same) == pivot */
        double weight_greater = 0, weight_same = 0;
        for (int64_t i = 0; i < n; i++) {
            weighted x = items[i];
            if (x.value < pivot) continue;
            items[i] = items[greater + same];
            if (x.value > pivot) {
                items[greater + same] = items[greater];
                items[greater++] = x;
                weight_greater += x.weight;
            } else {
                items[greater + same++] = x;
                weight_same += x.weight;
            }
        }
        if (greater && above + weight_greater >= target) {
            n = greater;
            continue;
        }
        above += weight_greater;
        if (above + weight_same >= target || greater + same == n) { /* all items of one value weigh the same */
            double each = weight_same / (double)same, need = each > 0 ? ceil((target - above) / each) : 1;
            *equals = need < 1 ? 1 : need > (double)same ? same : (int64_t)need;
            return pivot;
        }
        above += weight_same;
        items += greater + same;
        n -= greater + same;
    }
}

/* Keeps the candidates above `limit` and the first `equals` of those at it, in order. */
static int64_t keep_from(sn_candidate *c, int64_t n, float limit, int64_t equals) {
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].p > limit || (c[i].p == limit && equals-- > 0)) c[kept++] = c[i];
    return kept;
}

static int64_t keep_top_k(sn_candidate *c, int64_t n, weighted *items, int32_t k) {
    int64_t equals;
    for (int64_t i = 0; i < n; i++) items[i] = (weighted){c[i].p, 1};
    float limit = select_weight(items, n, k, &equals);
    return keep_from(c, n, limit, n);
}

/* Here c[i].p are weights already, proportional to probabilities. */
static int64_t keep_top_p(sn_candidate *c, int64_t n, weighted *items, float top_p) {
    double total = 0;
    int64_t equals;
    for (int64_t i = 0; i < n; i++) {
        items[i] = (weighted){c[i].p, c[i].p};
        total += c[i].p;
    }
    float limit = select_weight(items, n, (double)top_p * total, &equals);
    return keep_from(c, n, limit, equals);
}

static void mark_history(uint64_t *seen, int64_t vocab, const int32_t *history, int64_t n) {
    memset(seen, 0, ((size_t)vocab + 63) / 64 * 8);
    for (int64_t i = 0; i < n; i++)
        if (history[i] >= 0 && history[i] < vocab) seen[history[i] / 64] |= UINT64_C(1) << history[i] % 64;
}

static float penalised(float x, float penalty) { return x < 0 ? x * penalty : x / penalty; }

/* Likeliest token after the penalty, or -1. */
static int32_t greedy(const sn_sampling *s, const float *logits, int64_t vocab, const uint64_t *seen) {
    int32_t best = -1;
    float most = -INFINITY;
    for (int64_t i = 0; i < vocab; i++) {
        float x = seen && seen[i / 64] >> i % 64 & 1 ? penalised(logits[i], s->repetition_penalty) : logits[i];
        if (x > most) {
            most = x;
            best = (int32_t)i;
        }
    }
    return best;
}

int64_t sn_sampler_candidates(const sn_sampling *s, const float *logits, int64_t vocab, const int32_t *history, int64_t n_history,
                              void *workspace, const sn_candidate **out) {
    sn_candidate *c = workspace;
    weighted *items = (weighted *)(c + vocab);
    uint64_t *seen = s->repetition_penalty != 1 && n_history > 0 ? (uint64_t *)(items + vocab) : NULL;
    if (seen) mark_history(seen, vocab, history, n_history);
    *out = c;
    if (s->temperature == 0) {
        c[0] = (sn_candidate){greedy(s, logits, vocab, seen), 1};
        return c[0].id >= 0;
    }
    int64_t n = 0;
    float most = -INFINITY;
    for (int64_t i = 0; i < vocab; i++) {
        float x = seen && seen[i / 64] >> i % 64 & 1 ? penalised(logits[i], s->repetition_penalty) : logits[i];
        x /= s->temperature;
        if (!(x > -INFINITY)) continue;
        if (x > most) most = x;
        c[n++] = (sn_candidate){(int32_t)i, x};
    }
    if (n == 0) return 0;
    if (s->top_k > 0 && s->top_k < n) n = keep_top_k(c, n, items, s->top_k);
    for (int64_t i = 0; i < n; i++) c[i].p = c[i].p == most ? 1 : expf(c[i].p - most); /* also where the largest is infinite */
    if (s->top_p < 1) n = keep_top_p(c, n, items, s->top_p);
    if (s->min_p > 0) n = keep_from(c, n, s->min_p, n);
    double total = 0;
    for (int64_t i = 0; i < n; i++) total += c[i].p;
    for (int64_t i = 0; i < n; i++) c[i].p = (float)(c[i].p / total);
    return n;
}

int32_t sn_sampler_pick(const sn_candidate *c, int64_t n, double u) {
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) total += c[i].p; /* within rounding of 1; taken out so that no id gets the rest */
    int64_t last = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += c[i].p;
        if (c[i].p > 0) last = i;
        if (sum > u * total) return c[i].id;
    }
    return c[last].id;
}

double sn_sampler_uniform(uint64_t seed, uint64_t position) {
    sn_rng4 r = sn_philox((uint32_t)seed, (uint32_t)(seed >> 32), (uint32_t)position, (uint32_t)(position >> 32), 0, 0);
    return (double)((uint64_t)r.v[0] << 21 ^ r.v[1] >> 11) * 0x1p-53;
}

int32_t sn_sampler_draw(const sn_sampling *s, const float *logits, int64_t vocab, const int32_t *history, int64_t n_history,
                        uint64_t position, void *workspace) {
    const sn_candidate *c;
    int64_t n = sn_sampler_candidates(s, logits, vocab, history, n_history, workspace, &c);
    if (n == 0) return -1;
    return n == 1 ? c[0].id : sn_sampler_pick(c, n, sn_sampler_uniform(s->seed, position));
}

/* log(sum(exp(logits))), without overflow. */
static double log_sum_exp(const float *logits, int64_t vocab) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] > most) most = logits[i];
    if (most == -INFINITY) return INFINITY; /* makes every log probability -infinity */
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] > -INFINITY) sum += logits[i] == most ? 1 : exp((double)logits[i] - (double)most);
    return (double)most + log(sum);
}

double sn_log_probability(const float *logits, int64_t vocab, int32_t token) {
    return token >= 0 && token < vocab && logits[token] > -INFINITY ? (double)logits[token] - log_sum_exp(logits, vocab) : -INFINITY;
}

/* Any number comes before a NaN. */
static bool before(float a, float b) { return a > b || (isnan(b) && !isnan(a)); }

void sn_top_log_probabilities(const float *logits, int64_t vocab, int n, int32_t *tokens, double *values) {
    double sum = log_sum_exp(logits, vocab);
    int have = 0;
    for (int64_t i = 0; i < vocab; i++) {
        if (have == n && !(n > 0 && before(logits[i], logits[tokens[n - 1]]))) continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && before(logits[i], logits[tokens[at - 1]]); at--) tokens[at] = tokens[at - 1];
        tokens[at] = (int32_t)i;
    }
    for (int i = 0; i < n; i++) {
        if (i >= have) tokens[i] = -1; /* a vocabulary of fewer tokens */
        values[i] = i < have && logits[tokens[i]] > -INFINITY ? (double)logits[tokens[i]] - sum : -INFINITY;
    }
}
