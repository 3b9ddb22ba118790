/* Downloads over HTTP(S) with libcurl: resumed, retried, checked.
 *
 * A file grows as PATH.part and is renamed to PATH once its size and SHA-256 are right, so PATH is whole or absent.
 * Replies follow the Hugging Face Hub where it says more than plain HTTP: X-Linked-Size and X-Linked-Etag (the
 * SHA-256 of a large file) on a redirect to another host. Functions block; the progress callback can end them. */
#ifndef SN_IO_FETCH_H
#define SN_IO_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/str.h"

typedef struct sn_fetch_job {
    const char *url;
    const char *path;   /* of the finished file; its folder exists. Unused by sn_fetch_text */
    const char *token;  /* bearer token for the URL's own host, never sent to another one; NULL: none */
    const char *sha256; /* 64 lower-case hexadecimal digits; NULL: unknown */
    uint64_t bytes;     /* size of the file; 0: unknown */
    int tries;          /* attempts in a row that bring no byte before giving up; 0: 5 */
    int backoff_ms;     /* wait before the first retry, doubled for each further one up to a minute; 0: 1000 */
    /* Called now and then, also while waiting; total is 0 while unknown. false: SN_ERR_INTERRUPTED. May be NULL. */
    bool (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
} sn_fetch_job;

/* Fetches job->url into job->path. A .part file that an earlier call left is continued when job->sha256 is known (a
 * server that answers 200 to the range starts it again), else started again. Connection failures and HTTP 408, 429
 * and 5xx are retried. SN_ERR_NETWORK: the server's or the connection's failure; SN_ERR_FORMAT: wrong size or hash
 * (the .part file is then removed); SN_ERR_FILE: the disk, or another process is fetching the same file. */
sn_status sn_fetch_file(const sn_fetch_job *job);

/* Fetches a text of at most max_bytes. *next receives the URL of the reply's `Link: <URL>; rel="next"`, or NULL
 * (sn_free it); next may be NULL. */
sn_status sn_fetch_text(const sn_fetch_job *job, size_t max_bytes, sn_str *text, char **next);

/* `reference` (absolute or relative) seen from `base`; NULL when either is no URL or memory is gone. sn_free it. */
char *sn_url_resolve(const char *base, const char *reference);

/* Appends text with all but unreserved characters (RFC 3986) and those of `keep` as %XX. */
void sn_url_escape(sn_str *out, const char *text, const char *keep);

#endif
