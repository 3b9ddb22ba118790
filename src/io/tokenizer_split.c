/* The pre-tokenizer: a chain of splits by regular expressions (PCRE2), each cutting the pieces of the one before. */
#define _GNU_SOURCE /* memmem */
#include <string.h>
#include <utf8proc.h>

#include "io/tokenizer_impl.h"

#define JIT_STACK (4 << 20) /* bytes; long runs under lazy patterns need more than PCRE2's 32 KiB */

static void *pcre_alloc(size_t bytes, void *context) {
    (void)context;
    return sn_alloc(bytes);
}
static void pcre_free(void *p, void *context) {
    (void)context;
    sn_free(p);
}

/* The Unicode property White_Space, as it stands inside a class. PCRE2's \s has U+180E besides. */
static const char space_class[] = "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";

/* Rewrites Oniguruma's syntax, in which tokenizer.json is written, for PCRE2, and refuses what PCRE2 would take to mean
 * something else. */
static sn_status translate(const char *name, const char *p, size_t n, sn_str *out) {
    bool in_class = false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\' && i + 1 < n) {
            i++;
            bool space = p[i] == 's' || (p[i] == 'S' && !in_class);
            if (!space) sn_str_append(out, p + i - 1, 2);
            else if (in_class) sn_str_add(out, space_class);
            else sn_str_printf(out, "[%s%s]", p[i] == 'S' ? "^" : "", space_class);
        } else if (in_class && (p[i] == '[' || (p[i] == '&' && i + 1 < n && p[i + 1] == '&')) && !(i + 1 < n && p[i + 1] == ':')) {
            return sn_fail(SN_ERR_UNSUPPORTED, "%s: pre_tokenizer: pattern \"%.*s\": class within a class at byte %zu", name,
                           n < 200 ? (int)n : 200, p, i);
        } else {
            if (p[i] == '[' && in_class) { /* a POSIX class: up to its end */
                const char *end = memmem(p + i, n - i, ":]", 2);
                size_t size = end ? (size_t)(end + 2 - (p + i)) : n - i;
                sn_str_append(out, p + i, size);
                i += size - 1;
                continue;
            }
            sn_str_char(out, p[i]);
            if (p[i] == '[') {
                in_class = true;
                if (i + 1 < n && p[i + 1] == '^') sn_str_char(out, p[++i]);
                if (i + 1 < n && p[i + 1] == ']') sn_str_char(out, p[++i]);
            } else if (p[i] == ']') in_class = false;
        }
    }
    return out->failed ? sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for pre_tokenizer", name) : SN_OK;
}

static sn_status compile(const sn_tokenizer *t, const char *name, const sn_split_spec *spec, sn_split *split) {
    sn_str pattern = {0};
    sn_status status = SN_OK;
    uint32_t options = PCRE2_UTF;
    pcre2_compile_context *context = NULL;
    if (spec->kind == SN_SPLIT_LITERAL) {
        options |= PCRE2_LITERAL;
        sn_str_append(&pattern, spec->pattern, spec->pattern_size);
    } else {
        options |= PCRE2_UCP;
        SN_TRY_GOTO(status, done, translate(name, spec->pattern, spec->pattern_size, &pattern));
    }
    context = pcre2_compile_context_create(t->pcre);
    if (!context || pattern.failed) SN_TRY_GOTO(status, done, sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for pre_tokenizer", name));
    int code;
    size_t at;
    split->code = pcre2_compile((PCRE2_SPTR)(pattern.data ? pattern.data : ""), pattern.size, options, &code, &at, context);
    if (!split->code) {
        char text[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        status = sn_fail(code == PCRE2_ERROR_HEAP_FAILED ? SN_ERR_NO_MEMORY : SN_ERR_FORMAT, "%s: pre_tokenizer: pattern \"%.*s\": %s",
                         name, spec->pattern_size < 200 ? (int)spec->pattern_size : 200, spec->pattern, text);
    } else split->jit = pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE) == 0;
done:
    pcre2_compile_context_free(context);
    sn_str_free(&pattern);
    return status;
}

sn_status sn_tokenizer_build_split(sn_tokenizer *t, const sn_tokenizer_spec *s) {
    t->pcre = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (!t->pcre) return sn_fail(SN_ERR_NO_MEMORY, "%s: no memory for pre_tokenizer", s->name);
    for (size_t i = 0; i < s->split_count; i++) {
        sn_split *split = &t->split[t->split_count];
        *split = (sn_split){.kind = s->split[i].kind, .behavior = s->split[i].behavior, .invert = s->split[i].invert};
        t->split_count++;
        if (split->kind <= SN_SPLIT_LITERAL) SN_TRY(compile(t, s->name, &s->split[i], split));
    }
    return SN_OK;
}

void sn_tokenizer_free_split(sn_tokenizer *t) {
    for (size_t i = 0; i < t->split_count; i++) pcre2_code_free(t->split[i].code);
    pcre2_general_context_free(t->pcre);
}

sn_status sn_scratch_open(const sn_tokenizer *t, sn_tokenizer_scratch **out) {
    sn_tokenizer_scratch *s = sn_alloc_zero(1, sizeof *s);
    bool ok = s && (s->context = pcre2_match_context_create(t->pcre)) != NULL;
    for (size_t i = 0; ok && i < t->split_count; i++)
        if (t->split[i].code) ok = (s->match[i] = pcre2_match_data_create(1, t->pcre)) != NULL;
    if (ok) {
        /* Without JIT memory the matcher falls back to interpreting; so does a match that needs more stack than this. */
        s->jit_stack = pcre2_jit_stack_create(32 << 10, JIT_STACK, t->pcre);
        pcre2_jit_stack_assign(s->context, NULL, s->jit_stack);
        /* Long runs need many steps, but a malicious pattern must end: some seconds, 256 MiB. */
        pcre2_set_match_limit(s->context, 100000000);
        pcre2_set_heap_limit(s->context, 256 << 10);
        *out = s;
        return SN_OK;
    }
    sn_scratch_close(s);
    return sn_fail(SN_ERR_NO_MEMORY, "no memory to tokenize");
}

void sn_scratch_close(sn_tokenizer_scratch *s) {
    if (!s) return;
    for (size_t i = 0; i < SN_TOKENIZER_MAX_STEPS; i++) pcre2_match_data_free(s->match[i]);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->jit_stack);
    sn_str_free(&s->normalized);
    sn_str_free(&s->spare);
    sn_str_free(&s->prefixed);
    sn_free(s->merge);
    sn_free(s);
}

/* Finds the first match at or after `from` that is not empty: *begin, *end; false when there is none. */
static sn_status next_match(sn_encoder *e, size_t step, const char *text, size_t from, size_t n, size_t *begin, size_t *end, bool *found) {
    const sn_split *split = &e->t->split[step];
    *found = false;
    if (split->kind == SN_SPLIT_DIGITS) {
        for (size_t i = from, size; i < n && !*found; i += size) {
            int32_t c = sn_utf8_get(text + i, n - i, &size);
            if (c < 0x80) *found = c >= '0' && c <= '9';
            else {
                utf8proc_category_t k = utf8proc_category(c);
                *found = k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
            }
            *begin = i;
            *end = i + size;
        }
        return SN_OK;
    }
    pcre2_match_data *match = e->scratch->match[step];
    const uint32_t options = PCRE2_NOTEMPTY;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (split->jit) rc = pcre2_jit_match(split->code, (PCRE2_SPTR)text, n, from, options, match, e->scratch->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(split->code, (PCRE2_SPTR)text, n, from, options | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, e->scratch->context);
    if (rc == PCRE2_ERROR_NOMATCH) return SN_OK;
    if (rc < 0) {
        char message[128] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)message, sizeof message);
        return sn_fail(rc == PCRE2_ERROR_NOMEMORY ? SN_ERR_NO_MEMORY : SN_ERR_DATA, "pre_tokenizer step %zu at byte %zu of a text: %s",
                       step, from, message);
    }
    const size_t *place = pcre2_get_ovector_pointer(match);
    *begin = place[0];
    *end = place[1];
    *found = *end > *begin && *begin >= from; /* \K could turn the two round */
    return SN_OK;
}

static sn_status split_piece(sn_encoder *e, size_t step, const char *text, size_t n);

/* The behaviours, fed with matches and the stretches between them in order. */
typedef struct joiner {
    sn_encoder *e;
    size_t step; /* the step that gets the pieces */
    const char *text;
    sn_split_behavior behavior;
    bool last_match, held; /* held: begin .. end waits for its neighbour */
    size_t begin, end;
} joiner;

static sn_status flush(joiner *j) {
    if (!j->held) return SN_OK;
    j->held = false;
    return split_piece(j->e, j->step, j->text + j->begin, j->end - j->begin);
}

static sn_status feed(joiner *j, size_t begin, size_t end, bool match) {
    if (begin == end) return SN_OK;
    bool join = false;
    switch (j->behavior) {
    case SN_SPLIT_REMOVED: return match ? SN_OK : split_piece(j->e, j->step, j->text + begin, end - begin);
    case SN_SPLIT_ISOLATED: return split_piece(j->e, j->step, j->text + begin, end - begin);
    case SN_SPLIT_MERGED_WITH_PREVIOUS: join = match && !j->last_match; break;
    case SN_SPLIT_MERGED_WITH_NEXT: join = !match && j->last_match; break;
    case SN_SPLIT_CONTIGUOUS: join = match == j->last_match; break;
    }
    if (join && j->held) j->end = end;
    else {
        SN_TRY(flush(j));
        j->held = true;
        j->begin = begin;
        j->end = end;
    }
    j->last_match = match;
    return SN_OK;
}

static sn_status split_piece(sn_encoder *e, size_t step, const char *text, size_t n) {
    if (!n) return SN_OK;
    if (step == e->t->split_count) {
        e->at_start = false;
        return sn_encode_word(e, text, n);
    }
    const sn_split *split = &e->t->split[step];
    if (split->kind >= SN_SPLIT_PREFIX_SPACE) {
        if (*text == ' ' || (split->kind == SN_SPLIT_PREFIX_FIRST && !e->at_start)) return split_piece(e, step + 1, text, n);
        sn_str *to = &e->scratch->prefixed; /* at most one step of this kind: nothing else uses it meanwhile */
        sn_str_clear(to);
        sn_str_char(to, ' ');
        sn_str_append(to, text, n);
        return to->failed ? sn_fail(SN_ERR_NO_MEMORY, "no memory to tokenize") : split_piece(e, step + 1, to->data, to->size);
    }
    joiner j = {.e = e, .step = step + 1, .text = text, .behavior = split->behavior};
    for (size_t at = 0; at < n;) {
        size_t begin = n, end = n;
        bool found;
        SN_TRY(next_match(e, step, text, at, n, &begin, &end, &found));
        if (!found) begin = end = n;
        SN_TRY(feed(&j, at, begin, split->invert));
        SN_TRY(feed(&j, begin, end, !split->invert));
        at = end;
    }
    return flush(&j);
}

sn_status sn_encode_words(sn_encoder *e, const char *text, size_t n) { return split_piece(e, 0, text, n); }
