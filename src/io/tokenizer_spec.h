/* What a tokenizer is made of, independent of the file that described it: tokenizer_json.c and tokenizer_gguf.c fill one
 * sn_tokenizer_spec, sn_tokenizer_open turns it into tables. The spec is temporary. */
#ifndef SN_IO_TOKENIZER_SPEC_H
#define SN_IO_TOKENIZER_SPEC_H

#include "base/mem.h"
#include "io/tokenizer.h"

#define SN_TOKENIZER_MAX_IDS (1 << 22)   /* an id at or above it is refused */
#define SN_TOKENIZER_MAX_ADDED_TEXT 1024 /* bytes of an added token's text */
#define SN_TOKENIZER_MAX_STEPS 16        /* of a normalizer or pre-tokenizer */
#define SN_TOKENIZER_MAX_AFFIX 8         /* tokens that the post-processor puts before or behind a text */
#define SN_TOKENIZER_MAX_EOS 16

/* What a split does with the matches of its pattern ("delimiters"). */
typedef enum sn_split_behavior {
    SN_SPLIT_REMOVED,
    SN_SPLIT_ISOLATED,
    SN_SPLIT_MERGED_WITH_PREVIOUS,
    SN_SPLIT_MERGED_WITH_NEXT,
    SN_SPLIT_CONTIGUOUS,
} sn_split_behavior;

typedef enum sn_split_kind {
    SN_SPLIT_REGEX,
    SN_SPLIT_LITERAL,      /* the pattern is plain text */
    SN_SPLIT_DIGITS,       /* matches one numeric character (general categories Nd, Nl, No) */
    SN_SPLIT_PREFIX_SPACE, /* no pattern: puts a space before a piece that does not begin with one */
    SN_SPLIT_PREFIX_FIRST, /* the same, only at the start of the text */
} sn_split_kind;

typedef struct sn_split_spec {
    sn_split_kind kind;
    sn_split_behavior behavior;
    bool invert;
    char *pattern; /* pattern_size bytes and a NUL, in the spec's pool */
    size_t pattern_size;
} sn_split_spec;

typedef enum sn_normalize_kind {
    SN_NORMALIZE_NFC,
    SN_NORMALIZE_NFD,
    SN_NORMALIZE_NFKC,
    SN_NORMALIZE_NFKD,
    SN_NORMALIZE_PREPEND, /* puts `to` before a segment that is not empty */
    SN_NORMALIZE_REPLACE, /* every `from` becomes `to` */
} sn_normalize_kind;

typedef struct sn_normalize_spec {
    sn_normalize_kind kind;
    char *from, *to; /* NUL-terminated, in the spec's pool */
} sn_normalize_spec;

/* A token of the vocabulary, or a merge's two halves: a place in `text`. */
typedef struct sn_token_spec {
    uint32_t at, size;
    int32_t id;
    float score; /* only when merge_by_score */
} sn_token_spec;

typedef struct sn_merge_spec {
    uint32_t at, left, right; /* the left half is text[at .. at + left), the right half follows it */
} sn_merge_spec;

typedef struct sn_added_token {
    uint32_t at, size;
    int32_t id;
    bool special, single_word, lstrip, rstrip;
    bool normalized; /* is looked for after normalization */
} sn_added_token;

typedef struct sn_tokenizer_spec {
    const char *name; /* for messages */
    sn_str text;      /* the texts of all tokens and merges, one after the other */
    sn_token_spec *tokens;
    size_t token_count, token_capacity;
    sn_merge_spec *merges; /* in rank order */
    size_t merge_count, merge_capacity;
    sn_added_token *added;
    size_t added_count, added_capacity;
    sn_normalize_spec normalize[SN_TOKENIZER_MAX_STEPS];
    size_t normalize_count;
    sn_split_spec split[SN_TOKENIZER_MAX_STEPS];
    size_t split_count;
    bool byte_level;     /* token texts are written in GPT-2's byte alphabet */
    bool byte_fallback;  /* characters outside the vocabulary become <0xXX> tokens */
    bool merge_by_score; /* SentencePiece: a pair may merge into any token, the best score first; no list of merges */
    bool ignore_merges;  /* a word that is a token stays whole */
    bool fuse_unk;       /* neighbouring unknown characters give one unknown token */
    bool space_mark;     /* decoding turns U+2581 into a space */
    bool strip_space;    /* decoding drops one space at the start */
    int32_t model_unk;   /* id that unknown symbols get; -1: they vanish */
    int32_t bos, pad, unk;
    int32_t eos[SN_TOKENIZER_MAX_EOS];
    size_t eos_count;
    int32_t prefix[SN_TOKENIZER_MAX_AFFIX], suffix[SN_TOKENIZER_MAX_AFFIX]; /* what ADD_SPECIAL puts around a text */
    size_t prefix_count, suffix_count;
    sn_pool *pool; /* owns patterns and replacements */
} sn_tokenizer_spec;

/* Sets what a file that says nothing means: no ids, no steps. `pool` is the caller's. */
void sn_tokenizer_spec_start(sn_tokenizer_spec *s, const char *name, sn_pool *pool);
void sn_tokenizer_spec_free(sn_tokenizer_spec *s); /* not the pool */

sn_status sn_tokenizer_spec_token(sn_tokenizer_spec *s, const char *text, size_t n, int32_t id, float score);
sn_status sn_tokenizer_spec_merge(sn_tokenizer_spec *s, const char *left, size_t left_size, const char *right, size_t right_size);
sn_status sn_tokenizer_spec_added(sn_tokenizer_spec *s, const char *text, size_t n, sn_added_token flags); /* takes flags' id and bools */
sn_status sn_tokenizer_spec_split(sn_tokenizer_spec *s, sn_split_kind kind, sn_split_behavior behavior, bool invert, const char *pattern,
                                  size_t n);
sn_status sn_tokenizer_spec_normalize(sn_tokenizer_spec *s, sn_normalize_kind kind, const char *from, const char *to);

/* Fill a started spec from a file's contents: see sn_tokenizer_from_json and sn_tokenizer_from_gguf. Token texts stay as the
 * file writes them (byte alphabet, U+2581). */
sn_status sn_tokenizer_spec_from_json(const char *json, size_t size, const char *config, size_t config_size, sn_tokenizer_spec *s);
sn_status sn_tokenizer_spec_from_gguf(const struct sn_gguf *g, sn_tokenizer_spec *s);

/* The name for tokenizer.ggml.pre under which GGUF readers know this spec's split; false when there is none. */
bool sn_gguf_pre_of(const sn_tokenizer_spec *s, char name[64]);

/* ggml's token types: items of tokenizer.ggml.token_type */
enum {
    SN_GGML_TOKEN_NORMAL = 1,
    SN_GGML_TOKEN_UNKNOWN,
    SN_GGML_TOKEN_CONTROL,
    SN_GGML_TOKEN_USER_DEFINED,
    SN_GGML_TOKEN_UNUSED,
    SN_GGML_TOKEN_BYTE
};

extern const char sn_gpt2_pattern[]; /* the split of ByteLevel's use_regex */

/* Builds the tokenizer. SN_ERR_FORMAT when a merge names a token that does not exist, an id is used twice, a pattern does
 * not compile. The spec stays the caller's. */
sn_status sn_tokenizer_open(const sn_tokenizer_spec *s, sn_tokenizer **out);

#endif
