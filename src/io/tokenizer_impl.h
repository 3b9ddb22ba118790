/* The tokenizer's tables and the interfaces between its parts. Only tokenizer*.c include this. */
#ifndef SN_IO_TOKENIZER_IMPL_H
#define SN_IO_TOKENIZER_IMPL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdatomic.h>

#include "io/tokenizer_spec.h"

enum { SN_TOKEN_EXISTS = 1, SN_TOKEN_SPECIAL = 2, SN_TOKEN_ADDED = 4, SN_TOKEN_BYTE = 8 };
enum { SN_TOKEN_WHOLE_UNKNOWN, SN_TOKEN_WHOLE_YES, SN_TOKEN_WHOLE_NO };

/* One merge: tokens `left` and `right` become `id`. An empty slot has left = UINT32_MAX. */
typedef struct sn_pair {
    uint32_t left, right, rank;
    int32_t id;
} sn_pair;

/* A trie over the bytes of added tokens; node 0 is unused, children are a list. */
typedef struct sn_trie_node {
    uint32_t child, sibling;
    int32_t added; /* index of the added token that ends here, or -1 */
    uint8_t byte;
} sn_trie_node;
typedef struct sn_trie {
    sn_trie_node *nodes;
    size_t count, capacity;
    uint32_t root[256];
} sn_trie;

typedef struct sn_split {
    sn_split_kind kind;
    sn_split_behavior behavior;
    bool invert, jit;
    pcre2_code *code;
} sn_split;

/* Working memory of one encode call, kept by the tokenizer for the next one. */
typedef struct sn_tokenizer_scratch {
    pcre2_match_data *match[SN_TOKENIZER_MAX_STEPS];
    pcre2_match_context *context;
    pcre2_jit_stack *jit_stack;
    sn_str normalized, spare;
    sn_str prefixed; /* a piece with a space before it */
    void *merge;     /* symbols and heap of a long word */
    size_t merge_bytes;
} sn_tokenizer_scratch;

struct sn_tokenizer {
    char *text;       /* what every id decodes to, in id order */
    uint32_t *offset; /* [size + 1] places in text */
    uint8_t *flags;   /* [size] SN_TOKEN_* */
    int32_t size;
    size_t longest; /* bytes of the longest token of the vocabulary */
    int32_t *slots; /* hash table of the vocabulary's texts; -1 is empty */
    uint32_t slot_count;
    sn_pair *pairs; /* hash table of merges */
    uint32_t pair_slots;
    uint32_t *score_rank;   /* [size], merge_by_score only: 0 is the best */
    _Atomic uint8_t *whole; /* [size] whether a token's own bytes merge into it: learnt on first use */
    int32_t byte_id[256];
    sn_added_token *added;
    char *added_text;
    size_t added_count, added_text_size;
    sn_trie raw, normalized; /* added tokens looked for before and after normalization */
    sn_normalize_spec normalize[SN_TOKENIZER_MAX_STEPS];
    size_t normalize_count;
    sn_split split[SN_TOKENIZER_MAX_STEPS];
    size_t split_count;
    bool byte_level, byte_fallback, merge_by_score, ignore_merges, fuse_unk, strip_space;
    int32_t model_unk, bos, pad, unk;
    int32_t eos[SN_TOKENIZER_MAX_EOS], prefix[SN_TOKENIZER_MAX_AFFIX], suffix[SN_TOKENIZER_MAX_AFFIX];
    size_t eos_count, prefix_count, suffix_count;
    pcre2_general_context *pcre;
    _Atomic(sn_tokenizer_scratch *) spare_scratch;
    size_t pool_bytes;
    sn_pool pool; /* replacements of the normalizer */
};

/* One encode call. */
typedef struct sn_encoder {
    const sn_tokenizer *t;
    sn_tokenizer_scratch *scratch;
    sn_ids *out;
    unsigned flags;
    bool at_start; /* nothing of the text was encoded yet */
    bool last_unk; /* the last id is an unknown token that the next unknown symbol joins (fuse_unk) */
} sn_encoder;

/* tokenizer_vocab.c */
sn_status sn_tokenizer_build_vocab(sn_tokenizer *t, const sn_tokenizer_spec *s);
/* Writes the bytes that a vocabulary text of n bytes stands for to `to`, at most n; returns their number. */
size_t sn_tokenizer_decode_text(const sn_tokenizer_spec *s, const char *text, size_t n, char *to);
int32_t sn_tokenizer_find(const sn_tokenizer *t, const char *text, size_t n); /* -1: not in the vocabulary */

/* tokenizer_bpe.c */
sn_status sn_tokenizer_build_merges(sn_tokenizer *t, const sn_tokenizer_spec *s);
sn_status sn_ids_reserve(sn_ids *ids, size_t more);
sn_status sn_encode_word(sn_encoder *e, const char *text, size_t n);

/* tokenizer_split.c: cuts valid UTF-8 into words and encodes each */
sn_status sn_tokenizer_build_split(sn_tokenizer *t, const sn_tokenizer_spec *s);
void sn_tokenizer_free_split(sn_tokenizer *t);
sn_status sn_encode_words(sn_encoder *e, const char *text, size_t n);
sn_status sn_scratch_open(const sn_tokenizer *t, sn_tokenizer_scratch **out);
void sn_scratch_close(sn_tokenizer_scratch *s);

/* tokenizer_added.c */
sn_status sn_tokenizer_build_added(sn_tokenizer *t, const sn_tokenizer_spec *s);
/* The first added token of text[from, n) that counts under `flags`: *begin and *end enclose it with the spaces it strips, none
 * of them before `from`. Returns its index, or -1. Of the tokens at one place the longest wins. */
int32_t sn_added_next(const sn_tokenizer *t, const sn_trie *trie, const char *text, size_t from, size_t n, unsigned flags, size_t *begin,
                      size_t *end);

/* tokenizer_normalize.c */
bool sn_is_ascii(const char *text, size_t n);
size_t sn_utf8_valid(const char *text, size_t n);              /* length of the valid UTF-8 that text begins with */
size_t sn_utf8_prefix(const char *text, size_t n);             /* bytes at the end that begin a character without finishing it, 0-3 */
int32_t sn_utf8_get(const char *text, size_t n, size_t *size); /* first character of valid UTF-8 */
bool sn_is_space(int32_t c);                                   /* White_Space */
bool sn_is_word(int32_t c);                                    /* \w of UTS #18 */
/* Applies t's normalizer to valid UTF-8: *out is text itself or lies in the scratch. */
sn_status sn_normalize(sn_encoder *e, const char *text, size_t n, const char **out, size_t *out_size);

#endif
