/* Merges: in a word's row of symbols, the neighbouring pair with the lowest rank becomes one symbol, the leftmost first, until
 * no pair is left (Sennrich et al., arXiv:1508.07909). Short words scan for the best pair; long ones keep the pairs in a
 * heap, so that the time is O(n log n) for any text. */
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer_impl.h"

#define SHORT_WORD 32   /* symbols up to which scanning beats the heap */
#define NONE UINT32_MAX /* no symbol; also the rank of a pair that does not merge */

static uint32_t pair_slot(const sn_tokenizer *t, uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return (uint32_t)((h >> 32) * t->pair_slots >> 32);
}

static sn_status merge_token(const sn_tokenizer *t, const sn_tokenizer_spec *s, size_t merge, uint32_t at, size_t n, char *spare,
                             int32_t *id, size_t *decoded) {
    *decoded = sn_tokenizer_decode_text(s, s->text.data + at, n, spare);
    *id = sn_tokenizer_find(t, spare, *decoded);
    return *id >= 0 ? SN_OK
                    : sn_fail(SN_ERR_FORMAT, "%s: merges[%zu]: token \"%.*s\" is not in the vocabulary", s->name, merge,
                              n < 64 ? (int)n : 64, s->text.data + at);
}

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int better_first(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score;
}

/* SentencePiece stores no merges: any two symbols that form a token may merge, ranked by the token's score. */
static sn_status rank_scores(sn_tokenizer *t, const sn_tokenizer_spec *s) {
    scored *order = sn_alloc(s->token_count * sizeof *order);
    t->score_rank = sn_alloc((size_t)t->size * sizeof *t->score_rank);
    if (!order || !t->score_rank) {
        sn_free(order);
        return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for %zu scores", s->name, s->token_count);
    }
    memset(t->score_rank, 0xFF, (size_t)t->size * sizeof *t->score_rank);
    for (size_t i = 0; i < s->token_count; i++) order[i] = (scored){s->tokens[i].score, s->tokens[i].id};
    qsort(order, s->token_count, sizeof *order, better_first);
    uint32_t rank = 0;
    for (size_t i = 0; i < s->token_count; i++) {
        if (i && order[i].score < order[i - 1].score) rank++;
        if (!(t->flags[order[i].id] & (SN_TOKEN_BYTE | SN_TOKEN_SPECIAL))) t->score_rank[order[i].id] = rank;
    }
    sn_free(order);
    return SN_OK;
}

sn_status sn_tokenizer_build_merges(sn_tokenizer *t, const sn_tokenizer_spec *s) {
    if (s->merge_by_score) return rank_scores(t, s);
    if (s->merge_count > UINT32_MAX / 4) return sn_fail(SN_ERR_FORMAT, "%s: merges: %zu are too many", s->name, s->merge_count);
    size_t longest = 1;
    for (size_t i = 0; i < s->merge_count; i++) {
        size_t n = (size_t)s->merges[i].left + s->merges[i].right;
        if (n > longest) longest = n;
    }
    t->pair_slots = (uint32_t)(s->merge_count + s->merge_count / 3 + 8);
    t->pairs = sn_alloc((size_t)t->pair_slots * sizeof *t->pairs);
    char *spare = sn_alloc(longest);
    sn_status status = SN_OK;
    if (!t->pairs || !spare) SN_TRY_GOTO(status, done, sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for %zu merges", s->name, s->merge_count));
    for (uint32_t i = 0; i < t->pair_slots; i++) t->pairs[i].left = NONE;
    for (size_t i = 0; i < s->merge_count; i++) {
        const sn_merge_spec *m = &s->merges[i];
        int32_t left, right, whole;
        size_t a, b;
        SN_TRY_GOTO(status, done, merge_token(t, s, i, m->at, m->left, spare, &left, &a));
        SN_TRY_GOTO(status, done, merge_token(t, s, i, m->at + m->left, m->right, spare + a, &right, &b));
        whole = sn_tokenizer_find(t, spare, a + b);
        if (whole < 0)
            SN_TRY_GOTO(status, done,
                        sn_fail(SN_ERR_FORMAT, "%s: merges[%zu]: the result \"%.*s\" is not in the vocabulary", s->name, i,
                                m->left + m->right < 64 ? (int)(m->left + m->right) : 64, s->text.data + m->at));
        if (t->flags[whole] & SN_TOKEN_SPECIAL) continue; /* text never becomes a special token by merging */
        uint32_t slot = pair_slot(t, (uint32_t)left, (uint32_t)right);
        while (t->pairs[slot].left != NONE && (t->pairs[slot].left != (uint32_t)left || t->pairs[slot].right != (uint32_t)right))
            slot = slot + 1 == t->pair_slots ? 0 : slot + 1;
        t->pairs[slot] = (sn_pair){(uint32_t)left, (uint32_t)right, (uint32_t)i, whole}; /* of a pair given twice the last counts */
    }
done:
    sn_free(spare);
    return status;
}

/* Rank and result of merging text[at, middle) of id `left` with text[middle, end) of id `right`; rank NONE: they do not. */
static uint32_t find_pair(const sn_tokenizer *t, const char *text, int32_t left, int32_t right, size_t at, size_t end, int32_t *id) {
    if (t->merge_by_score) {
        *id = sn_tokenizer_find(t, text + at, end - at);
        return *id < 0 ? NONE : t->score_rank[*id];
    }
    if ((left | right) < 0) return NONE;
    for (uint32_t slot = pair_slot(t, (uint32_t)left, (uint32_t)right);; slot = slot + 1 == t->pair_slots ? 0 : slot + 1) {
        const sn_pair *p = &t->pairs[slot];
        if (p->left == NONE) return NONE;
        if (p->left == (uint32_t)left && p->right == (uint32_t)right) return *id = p->id, p->rank;
    }
}

/* The symbol that a word's text begins with, *size bytes; -1 if the vocabulary has none. */
static int32_t first_symbol(const sn_tokenizer *t, const char *text, size_t n, size_t *size) {
    *size = 1;
    if (t->byte_level) return t->byte_id[(uint8_t)*text];
    if (sn_utf8_valid(text, n < 4 ? n : 4)) sn_utf8_get(text, n, size);
    return sn_tokenizer_find(t, text, *size);
}

/* A symbol outside the vocabulary vanishes when there is neither byte fallback nor an unknown token. */
static bool vanishes(const sn_tokenizer *t, int32_t id) { return id < 0 && t->model_unk < 0 && !t->byte_fallback; }

sn_status sn_ids_reserve(sn_ids *ids, size_t more) {
    size_t need, bytes, capacity = ids->capacity ? ids->capacity : 64;
    if (!sn_add(ids->size, more, &need)) return sn_fail(SN_ERR_NO_MEMORY, "too many token ids");
    if (need <= ids->capacity) return SN_OK;
    while (capacity < need) capacity *= 2;
    if (!sn_mul(capacity, sizeof *ids->data, &bytes)) return sn_fail(SN_ERR_NO_MEMORY, "too many token ids");
    int32_t *data = sn_realloc(ids->data, bytes);
    if (!data) return sn_fail(SN_ERR_NO_MEMORY, "no memory for %zu token ids", capacity);
    ids->data = data;
    ids->capacity = capacity;
    return SN_OK;
}

/* Appends the id of a symbol that ended as `id`, or what stands for a symbol outside the vocabulary. The caller reserved
 * one id a byte. */
static void emit(sn_encoder *e, int32_t id, const char *text, size_t n) {
    const sn_tokenizer *t = e->t;
    bool bytes = id < 0 && t->byte_fallback;
    for (size_t i = 0; i < n && bytes; i++) bytes = t->byte_id[(uint8_t)text[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < n; i++) e->out->data[e->out->size++] = t->byte_id[(uint8_t)text[i]];
    } else if (id >= 0) {
        e->out->data[e->out->size++] = id;
    } else if (t->model_unk >= 0) {
        if (!(t->fuse_unk && e->last_unk)) e->out->data[e->out->size++] = t->model_unk;
        e->last_unk = true;
        return;
    }
    e->last_unk = false;
}

static void merge_short(sn_encoder *e, const char *text, size_t n) {
    const sn_tokenizer *t = e->t;
    int32_t id[SHORT_WORD + 1], merged[SHORT_WORD + 1];
    uint32_t rank[SHORT_WORD + 1];
    uint8_t at[SHORT_WORD + 2];
    size_t count = 0, size;
    for (size_t i = 0; i < n; i += size) {
        id[count] = first_symbol(t, text + i, n - i, &size);
        at[count] = (uint8_t)i;
        count += !vanishes(t, id[count]);
    }
    at[count] = (uint8_t)n;
    for (size_t i = 0; i + 1 < count; i++) rank[i] = find_pair(t, text, id[i], id[i + 1], at[i], at[i + 2], &merged[i]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) best = rank[i] < rank[best] ? i : best;
        if (rank[best] == NONE) break;
        id[best] = merged[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1];
            merged[i] = merged[i + 1];
        }
        for (size_t i = best + 1; i <= count; i++) at[i] = at[i + 1];
        if (best) rank[best - 1] = find_pair(t, text, id[best - 1], id[best], at[best - 1], at[best + 1], &merged[best - 1]);
        if (best + 1 < count) rank[best] = find_pair(t, text, id[best], id[best + 1], at[best], at[best + 2], &merged[best]);
    }
    for (size_t i = 0; i < count; i++) emit(e, id[i], text + at[i], (size_t)(at[i + 1] - at[i]));
}

/* A symbol of a long word; prev and next are indices. A merged-away symbol has id DEAD. */
typedef struct symbol {
    int32_t id;
    uint32_t at, prev, next;
} symbol;
#define DEAD (-2)

static void sift_down(uint64_t *heap, size_t count, size_t i) {
    uint64_t x = heap[i];
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= x) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void heap_push(uint64_t *heap, size_t *count, uint64_t x) {
    size_t i = (*count)++;
    for (; i && heap[(i - 1) / 2] > x; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

/* The pair that symbol i begins, as a key of the heap (rank, then place); UINT64_MAX when it does not merge. */
static uint64_t pair_key(const sn_tokenizer *t, const char *text, size_t n, const symbol *row, uint32_t i, int32_t *merged) {
    uint32_t next = row[i].next;
    if (next == NONE) return UINT64_MAX;
    size_t end = row[next].next == NONE ? n : row[row[next].next].at;
    uint32_t rank = find_pair(t, text, row[i].id, row[next].id, row[i].at, end, merged);
    return rank == NONE ? UINT64_MAX : (uint64_t)rank << 32 | i;
}

static void merge_heap(const sn_tokenizer *t, const char *text, size_t n, symbol *row, size_t count, uint64_t *heap) {
    size_t heap_count = 0;
    int32_t merged;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = pair_key(t, text, n, row, i, &merged);
        if (key != UINT64_MAX) heap[heap_count++] = key;
    }
    for (size_t i = heap_count / 2; i-- > 0;) sift_down(heap, heap_count, i);
    while (heap_count) {
        uint64_t best = heap[0];
        heap[0] = heap[--heap_count];
        if (heap_count) sift_down(heap, heap_count, 0);
        uint32_t i = (uint32_t)best;
        /* A pair whose symbols have merged otherwise since is stale. */
        if (row[i].id == DEAD || pair_key(t, text, n, row, i, &merged) != best) continue;
        uint32_t gone = row[i].next;
        row[i].id = merged;
        row[i].next = row[gone].next;
        row[gone].id = DEAD;
        if (row[i].next != NONE) row[row[i].next].prev = i;
        uint64_t key = pair_key(t, text, n, row, i, &merged);
        if (key != UINT64_MAX) heap_push(heap, &heap_count, key);
        if (row[i].prev != NONE && (key = pair_key(t, text, n, row, row[i].prev, &merged)) != UINT64_MAX) heap_push(heap, &heap_count, key);
    }
}

static sn_status merge_long(sn_encoder *e, const char *text, size_t n) {
    /* Every merge takes one pair from the heap and adds at most two, so it never holds more than twice the symbols. */
    size_t bytes = n * (sizeof(symbol) + 2 * sizeof(uint64_t));
    sn_tokenizer_scratch *scratch = e->scratch;
    if (scratch->merge_bytes < bytes) {
        sn_free(scratch->merge);
        scratch->merge = sn_alloc(bytes);
        scratch->merge_bytes = scratch->merge ? bytes : 0;
        if (!scratch->merge) return sn_fail(SN_ERR_NO_MEMORY, "no memory to tokenize a word of %zu bytes", n);
    }
    uint64_t *heap = scratch->merge;
    symbol *row = (symbol *)(heap + 2 * n);
    size_t count = 0, size;
    for (size_t i = 0; i < n; i += size) {
        int32_t id = first_symbol(e->t, text + i, n - i, &size);
        if (vanishes(e->t, id)) continue;
        row[count] = (symbol){id, (uint32_t)i, count ? (uint32_t)(count - 1) : NONE, (uint32_t)(count + 1)};
        count++;
    }
    if (!count) return SN_OK;
    row[count - 1].next = NONE;
    merge_heap(e->t, text, n, row, count, heap);
    for (uint32_t i = 0; i != NONE; i = row[i].next)
        emit(e, row[i].id, text + row[i].at, (row[i].next == NONE ? n : row[row[i].next].at) - row[i].at);
    return SN_OK;
}

sn_status sn_encode_word(sn_encoder *e, const char *text, size_t n) {
    const sn_tokenizer *t = e->t;
    SN_TRY(sn_ids_reserve(e->out, n));
    int32_t id = sn_tokenizer_find(t, text, n);
    if (id >= 0 && (t->flags[id] & SN_TOKEN_SPECIAL)) id = -1;
    uint8_t whole = SN_TOKEN_WHOLE_NO;
    if (id >= 0) whole = t->ignore_merges ? SN_TOKEN_WHOLE_YES : atomic_load_explicit(&t->whole[id], memory_order_relaxed);
    if (whole == SN_TOKEN_WHOLE_YES) {
        e->out->data[e->out->size++] = id;
        e->last_unk = false;
        return SN_OK;
    }
    size_t before = e->out->size;
    if (n <= SHORT_WORD) merge_short(e, text, n);
    else SN_TRY(merge_long(e, text, n));
    if (whole == SN_TOKEN_WHOLE_UNKNOWN) {
        bool yes = e->out->size == before + 1 && e->out->data[before] == id;
        atomic_store_explicit(&t->whole[id], yes ? SN_TOKEN_WHOLE_YES : SN_TOKEN_WHOLE_NO, memory_order_relaxed);
    }
    return SN_OK;
}
