#include "io/fetch.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

enum { DEFAULT_TRIES = 5, DEFAULT_BACKOFF_MS = 1000, LONGEST_WAIT_MS = 60000, CONNECT_S = 30, STALL_S = 60, MAX_REDIRECTS = 10 };

/* One request and what came of it. */
typedef struct transfer {
    const sn_fetch_job *job;
    CURL *curl;
    int fd;             /* of the .part file; -1: into text */
    const char *part;   /* its path */
    uint64_t start, at; /* the range's first byte; bytes in the file */
    sn_str *text;
    size_t max_text;
    bool begun;       /* a byte of a good reply came */
    bool in_callback; /* status was set by a callback */
    sn_status status;
    uint64_t range_start;  /* of Content-Range; UINT64_MAX: none */
    uint64_t linked_bytes; /* X-Linked-Size; 0: none */
    char linked_sha[65];   /* X-Linked-Etag, when it is a SHA-256 */
    char *next;            /* rel="next" */
    char note[200];        /* the beginning of an error's body */
    char curl_error[CURL_ERROR_SIZE];
} transfer;

static void start_curl(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

static const char *wanted_sha(const transfer *t) { return t->job->sha256 ? t->job->sha256 : t->linked_sha[0] ? t->linked_sha : NULL; }
static uint64_t wanted_bytes(const transfer *t) { return t->job->bytes ? t->job->bytes : t->linked_bytes; }

static sn_status set_status(transfer *t, sn_status s) {
    t->in_callback = true;
    return t->status = s;
}

/* The value of header `name` in line, or NULL. */
static const char *header_value(const char *line, const char *name) {
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) || line[n] != ':') return NULL;
    for (line += n + 1; *line == ' ' || *line == '\t'; line++) {}
    return line;
}

static bool is_sha256(const char *s) {
    for (int i = 0; i < 64; i++)
        if (!isxdigit((unsigned char)s[i]) || isupper((unsigned char)s[i])) return false;
    return !isalnum((unsigned char)s[64]);
}

static void keep_next_link(transfer *t, const char *value) {
    const char *end = *value == '<' ? strchr(value, '>') : NULL;
    if (!end || !strstr(end, "rel=\"next\"")) return;
    char *link = sn_strndup(value + 1, (size_t)(end - value - 1));
    sn_free(t->next);
    t->next = link ? sn_url_resolve(t->job->url, link) : NULL;
    if (!t->next) set_status(t, sn_fail(SN_ERR_NETWORK, "%s: unusable link to the next page", t->job->url));
    sn_free(link);
}

static size_t on_header(char *data, size_t size, size_t n, void *context) {
    transfer *t = context;
    char line[2048];
    const char *v;
    snprintf(line, sizeof line, "%.*s", (int)(size * n < sizeof line ? size * n : sizeof line - 1), data);
    if (!strncmp(line, "HTTP/", 5)) t->range_start = UINT64_MAX;
    if ((v = header_value(line, "content-range")) && !strncasecmp(v, "bytes ", 6)) t->range_start = strtoull(v + 6, NULL, 10);
    if ((v = header_value(line, "x-linked-size"))) t->linked_bytes = strtoull(v, NULL, 10);
    if ((v = header_value(line, "x-linked-etag"))) {
        if (*v == '"') v++;
        if (strlen(v) >= 64 && is_sha256(v)) snprintf(t->linked_sha, sizeof t->linked_sha, "%.64s", v);
    }
    if (t->text && (v = header_value(line, "link"))) keep_next_link(t, v);
    return size * n;
}

/* The first bytes of a good reply: where do they go? */
static sn_status begin_body(transfer *t, long code) {
    t->begun = true;
    t->at = code == 206 ? t->start : 0;
    if (code == 206 && (t->fd < 0 || t->range_start != t->start)) {
        if (t->fd >= 0 && ftruncate(t->fd, 0)) return sn_fail(SN_ERR_FILE, "cannot truncate %s: %s", t->part, strerror(errno));
        return sn_fail(SN_ERR_NETWORK, "%s: asked for bytes from %llu, got a range from %llu", t->job->url, (unsigned long long)t->start,
                       (unsigned long long)t->range_start);
    }
    if (t->fd >= 0 && ftruncate(t->fd, (off_t)t->at)) return sn_fail(SN_ERR_FILE, "cannot truncate %s: %s", t->part, strerror(errno));
    return SN_OK;
}

static size_t on_body(char *data, size_t size, size_t n, void *context) {
    transfer *t = context;
    long code = 0;
    n *= size;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200 && code != 206) {
        size_t have = strlen(t->note), room = sizeof t->note - 1 - have;
        memcpy(t->note + have, data, n < room ? n : room);
        return n;
    }
    if (!t->begun && set_status(t, begin_body(t, code)) != SN_OK) return 0;
    if (t->fd < 0) {
        if (t->text->size + n > t->max_text) {
            set_status(t, sn_fail(SN_ERR_NETWORK, "%s: a reply of more than %zu bytes", t->job->url, t->max_text));
            return 0;
        }
        sn_str_append(t->text, data, n);
        if (t->text->failed) set_status(t, sn_fail(SN_ERR_NO_MEMORY, "%s: cannot keep the reply", t->job->url));
        return t->text->failed ? 0 : n;
    }
    uint64_t want = wanted_bytes(t);
    if (want && t->at + n > want) {
        set_status(t, sn_fail(SN_ERR_FORMAT, "%s: more than the %llu bytes it should have", t->job->url, (unsigned long long)want));
        return 0;
    }
    if (set_status(t, sn_file_write_at(t->fd, t->part, t->at, data, n)) != SN_OK) return 0;
    t->at += n;
    return n;
}

static bool report(const transfer *t) {
    const sn_fetch_job *job = t->job;
    if (!job->progress || job->progress(job->context, t->at, wanted_bytes(t))) return true;
    sn_fail(SN_ERR_INTERRUPTED, "%s: stopped", job->url);
    return false;
}

static int on_progress(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now) {
    transfer *t = context;
    (void)total, (void)now, (void)up_total, (void)up_now;
    if (report(t)) return 0;
    set_status(t, SN_ERR_INTERRUPTED);
    return 1;
}

static bool curl_may_retry(CURLcode code) {
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
    }
}

static sn_status http_failure(const transfer *t, long code) {
    char note[sizeof t->note];
    snprintf(note, sizeof note, "%s", t->note);
    for (char *p = note; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' '; /* a server writes to the user's terminal only as text */
    const char *hint = code == 401 || code == 403 ? (t->job->token ? "; the token may lack access to it" : "; it may need HF_TOKEN")
                       : code == 404              ? "; no such file"
                                                  : "";
    return sn_fail(SN_ERR_NETWORK, "%s: HTTP status %ld%s%s%s", t->job->url, code, hint, note[0] ? ": " : "", note);
}

static void set_options(transfer *t, struct curl_slist *headers) {
    CURL *c = t->curl;
    curl_easy_setopt(c, CURLOPT_URL, t->job->url);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "snug/0.1");
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->curl_error);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers); /* libcurl drops Authorization when a redirect leaves the host */
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
}

/* One request. *again: worth another one, after *wait_ms if the server named a time. */
static sn_status attempt(transfer *t, bool *again, long *wait_ms) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_curl);
    *again = false;
    *wait_ms = 0;
    t->begun = t->in_callback = false;
    t->at = t->start;
    t->note[0] = t->curl_error[0] = 0;
    memset(t->note, 0, sizeof t->note);
    if (t->text) sn_str_clear(t->text);
    sn_str authorization = {0};
    if (t->job->token) {
        for (const char *p = t->job->token; *p; p++)
            if ((unsigned char)*p <= 0x20) return sn_fail(SN_ERR_USAGE, "the token contains white space or a control character");
        sn_str_printf(&authorization, "Authorization: Bearer %s", t->job->token);
    }
    struct curl_slist *headers = authorization.size ? curl_slist_append(NULL, authorization.data) : NULL;
    bool failed = authorization.failed || (authorization.size && !headers);
    sn_str_free(&authorization);
    t->curl = failed ? NULL : curl_easy_init();
    if (!t->curl) {
        curl_slist_free_all(headers);
        return sn_fail(SN_ERR_NO_MEMORY, "cannot start libcurl");
    }
    set_options(t, headers);
    char range[32];
    snprintf(range, sizeof range, "%llu-", (unsigned long long)t->start);
    if (t->start) curl_easy_setopt(t->curl, CURLOPT_RANGE, range);
    CURLcode code = curl_easy_perform(t->curl);
    long http = 0;
    curl_off_t retry_after = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &http);
    curl_easy_getinfo(t->curl, CURLINFO_RETRY_AFTER, &retry_after);
    curl_easy_cleanup(t->curl);
    curl_slist_free_all(headers);
    if (t->in_callback && t->status != SN_OK) return t->status;
    if (code != CURLE_OK) {
        *again = curl_may_retry(code);
        return sn_fail(SN_ERR_NETWORK, "%s: %s", t->job->url, t->curl_error[0] ? t->curl_error : curl_easy_strerror(code));
    }
    if (http == 200 || http == 206) return t->begun ? SN_OK : begin_body(t, http); /* an empty body calls nothing */
    *again = http == 408 || http == 429 || http >= 500;
    if (http == 416 && t->start) { /* what is there is not the beginning of this file */
        if (ftruncate(t->fd, 0)) return sn_fail(SN_ERR_FILE, "cannot truncate %s: %s", t->part, strerror(errno));
        *again = true;
    }
    *wait_ms = retry_after > LONGEST_WAIT_MS / 1000 ? LONGEST_WAIT_MS : (long)retry_after * 1000;
    return http_failure(t, http);
}

/* Waits in short steps, so that the progress callback can end it. */
static sn_status wait_for(const transfer *t, long ms) {
    for (; ms > 0; ms -= 100) {
        if (!report(t)) return SN_ERR_INTERRUPTED;
        long step = ms < 100 ? ms : 100;
        nanosleep(&(struct timespec){0, step * 1000000}, NULL);
    }
    return SN_OK;
}

/* Requests until one succeeds. An attempt that brought bytes of a file starts the count of tries again. */
static sn_status persist(transfer *t) {
    int tries = t->job->tries > 0 ? t->job->tries : DEFAULT_TRIES;
    long first = t->job->backoff_ms > 0 ? t->job->backoff_ms : DEFAULT_BACKOFF_MS, backoff = first;
    for (int n = 1;; n++) {
        bool again;
        long wait_ms;
        struct stat st;
        t->start = 0;
        if (t->fd >= 0) {
            if (fstat(t->fd, &st)) return sn_fail(SN_ERR_FILE, "cannot look at %s: %s", t->part, strerror(errno));
            if (wanted_sha(t)) t->start = (uint64_t)st.st_size; /* without a hash nothing shows that both parts belong together */
            if (wanted_bytes(t) && t->start > wanted_bytes(t)) t->start = 0;
            if (t->start && t->start == wanted_bytes(t)) return SN_OK;
        }
        sn_status s = attempt(t, &again, &wait_ms);
        if (s == SN_OK) return SN_OK;
        if (t->fd >= 0 && t->at > t->start && again) {
            n = 0;
            backoff = first;
        }
        if (!again || n >= tries) return s;
        if (wait_ms < backoff) wait_ms = backoff;
        sn_info("%s; trying again in %.1f s", sn_error_text(), (double)wait_ms / 1000);
        SN_TRY(wait_for(t, wait_ms));
        backoff = backoff * 2 < LONGEST_WAIT_MS ? backoff * 2 : LONGEST_WAIT_MS;
    }
}

/* Size and hash of the finished .part file. */
static sn_status check(const transfer *t) {
    struct stat st;
    char hex[65];
    if (fstat(t->fd, &st)) return sn_fail(SN_ERR_FILE, "cannot look at %s: %s", t->part, strerror(errno));
    if (wanted_bytes(t) && (uint64_t)st.st_size != wanted_bytes(t))
        return sn_fail(SN_ERR_FORMAT, "%s: %llu bytes, wanted %llu", t->job->url, (unsigned long long)st.st_size,
                       (unsigned long long)wanted_bytes(t));
    if (!wanted_sha(t)) return SN_OK;
    SN_TRY(sn_sha256_file(t->part, hex));
    if (strcmp(hex, wanted_sha(t))) return sn_fail(SN_ERR_FORMAT, "%s: SHA-256 %s, wanted %s", t->job->url, hex, wanted_sha(t));
    return SN_OK;
}

static sn_status fetch_into(transfer *t) {
    struct stat st;
    if (fstat(t->fd, &st)) return sn_fail(SN_ERR_FILE, "cannot look at %s: %s", t->part, strerror(errno));
    bool continued = t->job->sha256 && st.st_size > 0;
    sn_status s = persist(t);
    if (s == SN_OK) s = check(t);
    if (s == SN_ERR_FORMAT && continued) { /* what an earlier call left may be of another file: once more from the start */
        if (ftruncate(t->fd, 0)) return sn_fail(SN_ERR_FILE, "cannot truncate %s: %s", t->part, strerror(errno));
        s = persist(t);
        if (s == SN_OK) s = check(t);
    }
    if (s == SN_ERR_FORMAT) unlink(t->part);
    if (s != SN_OK) return s;
    if (fsync(t->fd)) return sn_fail(SN_ERR_FILE, "cannot sync %s: %s", t->part, strerror(errno));
    if (rename(t->part, t->job->path)) return sn_fail(SN_ERR_FILE, "cannot rename %s: %s", t->part, strerror(errno));
    return SN_OK;
}

sn_status sn_fetch_file(const sn_fetch_job *job) {
    sn_str part = {0};
    sn_str_printf(&part, "%s.part", job->path);
    if (part.failed) return sn_fail(SN_ERR_NO_MEMORY, "cannot name %s.part", job->path);
    transfer t = {.job = job, .fd = open(part.data, O_RDWR | O_CREAT | O_CLOEXEC, 0666), .part = part.data};
    sn_status s;
    if (t.fd < 0) s = sn_fail(SN_ERR_FILE, "cannot create %s: %s", part.data, strerror(errno));
    else if (flock(t.fd, LOCK_EX | LOCK_NB)) s = sn_fail(SN_ERR_FILE, "%s: another process is fetching this file", part.data);
    else s = fetch_into(&t);
    if (t.fd >= 0) close(t.fd);
    sn_free(t.next);
    sn_str_free(&part);
    return s;
}

sn_status sn_fetch_text(const sn_fetch_job *job, size_t max_bytes, sn_str *text, char **next) {
    transfer t = {.job = job, .fd = -1, .text = text, .max_text = max_bytes};
    sn_status s = persist(&t);
    if (s == SN_OK && next) *next = t.next;
    else {
        if (next) *next = NULL;
        sn_free(t.next);
    }
    return s;
}

char *sn_url_resolve(const char *base, const char *reference) {
    CURLU *u = curl_url();
    char *text = NULL, *copy = NULL;
    if (u && !curl_url_set(u, CURLUPART_URL, base, 0) && !curl_url_set(u, CURLUPART_URL, reference, 0) &&
        !curl_url_get(u, CURLUPART_URL, &text, 0))
        copy = sn_strdup(text);
    curl_free(text);
    curl_url_cleanup(u);
    return copy;
}

void sn_url_escape(sn_str *out, const char *text, const char *keep) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < 0x80 && isalnum(c)) || strchr("-._~", c) || strchr(keep, c)) sn_str_char(out, (char)c);
        else sn_str_printf(out, "%%%02X", c);
    }
}
