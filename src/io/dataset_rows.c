/* Cuts a file into rows: lines, elements of a JSON array, or chunks of plain text. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/dataset_impl.h"

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

sn_status sn_file_kind_of(const char *path, int fd, uint64_t size, sn_file_kind *out) {
    static const char *const endings[] = {".json", ".jsonl", ".ndjson"};
    size_t n = strlen(path);
    bool json = false;
    *out = SN_FILE_TEXT;
    for (size_t i = 0; i < 3; i++) json |= n >= strlen(endings[i]) && !strcmp(path + n - strlen(endings[i]), endings[i]);
    char head[4096];
    for (uint64_t at = 0; json && at < size; at += sizeof head) { /* the first character tells lines from an array */
        size_t take = size - at < sizeof head ? (size_t)(size - at) : sizeof head;
        SN_TRY(sn_file_read_at(fd, path, at, head, take));
        for (size_t i = 0; i < take; i++) {
            if (is_blank(head[i])) continue;
            *out = head[i] == '[' ? SN_FILE_ARRAY : SN_FILE_LINES;
            return SN_OK;
        }
    }
    if (json) *out = SN_FILE_LINES;
    return SN_OK;
}

sn_status sn_rows_start(sn_row_reader *r, const char *path, int fd, uint64_t file_size, size_t text_chunk) {
    *r = (sn_row_reader){.path = path, .fd = fd, .file_size = file_size, .chunk = text_chunk};
    SN_TRY(sn_file_kind_of(path, fd, file_size, &r->kind));
    r->capacity = 1 << 20;
    if (r->capacity < 2 * text_chunk) r->capacity = 2 * text_chunk;
    r->buffer = sn_alloc(r->capacity);
    return r->buffer ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate a read buffer", path);
}

void sn_rows_end(sn_row_reader *r) {
    sn_free(r->buffer);
    r->buffer = NULL;
}

/* Drops what lies before `next` and reads on; *end: nothing is left to read. */
static sn_status read_on(sn_row_reader *r, bool *end) {
    if (r->next) memmove(r->buffer, r->buffer + r->next, r->have - r->next);
    r->at += r->next;
    r->have -= r->next;
    r->next = 0;
    if (r->have == r->capacity) {
        if (r->capacity >= SN_MAX_ROW_BYTES)
            return sn_fail(SN_ERR_DATA, "%s: row %llu is longer than %d bytes", r->path, (unsigned long long)r->line, SN_MAX_ROW_BYTES);
        char *more = sn_realloc(r->buffer, r->capacity * 2);
        if (!more) return sn_fail(SN_ERR_NO_MEMORY, "%s: cannot allocate %zu bytes for a row", r->path, r->capacity * 2);
        r->buffer = more;
        r->capacity *= 2;
    }
    uint64_t left = r->file_size - r->at - r->have;
    size_t take = r->capacity - r->have < left ? r->capacity - r->have : (size_t)left;
    *end = take == 0;
    SN_TRY(sn_file_read_at(r->fd, r->path, r->at + r->have, r->buffer + r->have, take));
    r->have += take;
    return SN_OK;
}

static void give(sn_row_reader *r, size_t begin, size_t end, size_t next, uint64_t *offset, const char **text, size_t *size) {
    *offset = r->at + begin;
    *text = r->buffer + begin;
    *size = end - begin;
    r->next = next;
}

static sn_status next_line(sn_row_reader *r, uint64_t *offset, const char **text, size_t *size) {
    for (bool end = false;;) {
        r->line++;
        size_t seen = r->next;
        const char *newline;
        while (!(newline = memchr(r->buffer + seen, '\n', r->have - seen)) && !end) {
            seen = r->have - r->next; /* read_on moves the row to the front */
            SN_TRY(read_on(r, &end));
        }
        size_t begin = r->next, stop = newline ? (size_t)(newline - r->buffer) : r->have, next = newline ? stop + 1 : stop;
        if (begin == r->have && !newline) return SN_OK;
        while (begin < stop && is_blank(r->buffer[begin])) begin++;
        while (stop > begin && is_blank(r->buffer[stop - 1])) stop--;
        if (begin < stop) {
            give(r, begin, stop, next, offset, text, size);
            return SN_OK;
        }
        r->next = next;
    }
}

/* The character at buffer[i], with i relative to `next`, reading on as needed; 0 at the file's end. */
static sn_status char_at(sn_row_reader *r, size_t i, char *c) {
    bool end = false;
    if (r->next + i >= r->have) SN_TRY(read_on(r, &end));
    *c = r->next + i < r->have ? r->buffer[r->next + i] : 0;
    return SN_OK;
}

static sn_status bad_array(const sn_row_reader *r, const char *what) {
    return sn_fail(SN_ERR_DATA, "%s: element %llu: %s", r->path, (unsigned long long)r->line, what);
}

static sn_status skip_blanks(sn_row_reader *r, char *c) {
    for (;; r->next++) {
        SN_TRY(char_at(r, 0, c));
        if (!is_blank(*c)) return SN_OK;
    }
}

static sn_status next_element(sn_row_reader *r, uint64_t *offset, const char **text, size_t *size) {
    char c;
    if (r->ended) return SN_OK;
    SN_TRY(skip_blanks(r, &c));
    bool begins = !r->started;
    if (begins || c == ',') r->next++; /* '[' or ',' */
    else if (c != ']') return bad_array(r, "expected ',' or ']' behind it");
    r->started = true;
    SN_TRY(skip_blanks(r, &c));
    if (c == ']') {
        r->next++;
        r->ended = true;
        SN_TRY(skip_blanks(r, &c));
        return c || r->next < r->have ? bad_array(r, "text behind the array") : SN_OK;
    }
    r->line++;
    if (c != '{') return bad_array(r, "expected an object");
    int depth = 0;
    bool string = false;
    for (size_t i = 0;; i++) {
        SN_TRY(char_at(r, i, &c));
        if (r->next + i >= r->have) return bad_array(r, "the file ends inside it");
        if (string) {
            if (c == '\\') i++;
            else if (c == '"') string = false;
        } else if (c == '"') {
            string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            give(r, r->next, r->next + i + 1, r->next + i + 1, offset, text, size);
            return SN_OK;
        }
    }
}

/* About `chunk` bytes, cut where a line ends and the next begins with a word, else at a line end, else between characters. */
static sn_status next_chunk(sn_row_reader *r, uint64_t *offset, const char **text, size_t *size) {
    bool end = false;
    while (r->have - r->next < 2 * r->chunk && !end) SN_TRY(read_on(r, &end));
    size_t left = r->have - r->next, cut = left;
    const char *s = r->buffer + r->next;
    if (!left) return SN_OK;
    if (left > r->chunk) {
        size_t line = 0;
        for (cut = r->chunk; cut > r->chunk / 2; cut--) {
            if (s[cut - 1] != '\n') continue;
            if (!line) line = cut;
            if (!is_blank(s[cut])) break;
        }
        if (cut == r->chunk / 2) cut = line;
        if (!cut) {
            cut = r->chunk;
            while (cut > r->chunk - 4 && ((unsigned char)s[cut] & 0xC0) == 0x80) cut--;
        }
    }
    r->line++;
    give(r, r->next, r->next + cut, r->next + cut, offset, text, size);
    return SN_OK;
}

sn_status sn_rows_next(sn_row_reader *r, uint64_t *offset, const char **text, size_t *size) {
    *text = NULL;
    if (r->kind == SN_FILE_LINES) return next_line(r, offset, text, size);
    if (r->kind == SN_FILE_ARRAY) return next_element(r, offset, text, size);
    return next_chunk(r, offset, text, size);
}
