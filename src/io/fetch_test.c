#include "support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/fetch.h"
#include "support/http_server.h"

enum { SIZE = 300000 };
static char content[SIZE], hex[65];
static test_server *hub, *cdn;
static char *path, *part;
static char url[256];

static void answer_range(const test_request *q, test_reply *r) {
    long from = q->range < 0 ? 0 : q->range;
    if (from >= SIZE) {
        r->status = 416;
        return;
    }
    r->status = q->range < 0 ? 200 : 206;
    r->body = content + from;
    r->size = (size_t)(SIZE - from);
    if (q->range >= 0) snprintf(r->headers, sizeof r->headers, "Content-Range: bytes %ld-%d/%d\r\n", from, SIZE - 1, SIZE);
}

/* The hub: /redirect... go to the other host, with the Hub's headers. */
static void answer_hub(void *context, const test_request *q, test_reply *r) {
    (void)context;
    if (!strncmp(q->target, "/redirect", 9)) {
        r->status = 302;
        snprintf(r->headers, sizeof r->headers, "Location: http://127.0.0.1:%d%s\r\nX-Linked-Size: %d\r\nX-Linked-Etag: \"%s\"\r\n",
                 test_server_port(cdn), q->target + 9, SIZE, hex);
    } else if (!strncmp(q->target, "/local", 6)) {
        r->status = 302;
        snprintf(r->headers, sizeof r->headers, "Location: /whole\r\n");
    } else answer_range(q, r);
}

static void answer_cdn(void *context, const test_request *q, test_reply *r) {
    (void)context;
    answer_range(q, r);
    if (!strcmp(q->target, "/drop") && q->number < 3) r->send = 70000; /* of each of the first three replies */
    if (!strcmp(q->target, "/no-range")) { /* drops once, then sends the whole file again, whatever was asked for */
        *r = (test_reply){200, "", content, SIZE, q->number ? 0 : 50000};
    }
    if (!strcmp(q->target, "/wrong-range") && q->range > 0)
        snprintf(r->headers, sizeof r->headers, "Content-Range: bytes 0-1/%d\r\n", SIZE);
    if (!strcmp(q->target, "/busy") && q->number < 2) *r = (test_reply){q->number ? 503 : 429, "Retry-After: 0\r\n", "slow down", 9, 0};
    if (!strcmp(q->target, "/down")) *r = (test_reply){500, "", "\x1b[31mbroken", 11, 0};
    if (!strcmp(q->target, "/missing")) *r = (test_reply){404, "", "Not here", 8, 0};
    if (!strcmp(q->target, "/private")) *r = (test_reply){401, "", "", 0, 0};
    if (!strcmp(q->target, "/short")) *r = (test_reply){200, "", content, SIZE - 1, 0};
    if (!strcmp(q->target, "/empty")) *r = (test_reply){200, "", "", 0, 0};
    if (!strcmp(q->target, "/long")) {
        static char longer[SIZE + 1];
        *r = (test_reply){200, "", longer, SIZE + 1, 0};
    }
}

static void quiet(void *context, sn_log_level level, const char *text) { (void)context, (void)level, (void)text; }

static int start(void **state) {
    (void)state;
    sn_sha256 h;
    for (int i = 0; i < SIZE; i++) content[i] = (char)(i * 7 ^ i >> 8);
    sn_sha256_start(&h);
    sn_sha256_add(&h, content, SIZE);
    sn_sha256_end(&h, hex);
    hub = test_server_start(answer_hub, NULL);
    cdn = test_server_start(answer_cdn, NULL);
    sn_log_to(quiet, NULL);
    return 0;
}
static int stop(void **state) {
    (void)state;
    test_server_stop(hub);
    test_server_stop(cdn);
    return 0;
}
static int fresh(void **state) {
    (void)state;
    const char *dir = test_dir("fetch");
    path = sn_path_join(dir, "file");
    part = sn_path_join(dir, "file.part");
    test_server_clear(hub);
    test_server_clear(cdn);
    return 0;
}
static int clean(void **state) {
    (void)state;
    sn_free(path);
    sn_free(part);
    return 0;
}

static sn_fetch_job job_for(test_server *s, const char *target) {
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", test_server_port(s), target);
    return (sn_fetch_job){.url = url, .path = path, .sha256 = hex, .bytes = SIZE, .tries = 3, .backoff_ms = 1};
}

static void assert_whole(void) {
    char *data;
    size_t n;
    assert_ok(sn_file_read_all(path, SIZE, &data, &n));
    assert_int_equal(n, SIZE);
    assert_memory_equal(data, content, SIZE);
    sn_free(data);
    assert_false(sn_path_exists(part));
}

static void assert_fails(sn_fetch_job job, sn_status want, const char *text, bool keeps_part) {
    sn_status s = sn_fetch_file(&job);
    if (s != want || !strstr(sn_error_text(), text)) fail_msg("%s: %s: %s", job.url, sn_status_name(s), sn_error_text());
    assert_false(sn_path_exists(path));
    if (!keeps_part) assert_false(sn_path_exists(part));
}

static size_t requests(test_server *s) {
    size_t n;
    test_server_log(s, &n);
    return n;
}

static void plain_and_redirected(void **state) {
    (void)state;
    sn_fetch_job job = job_for(hub, "/redirect/whole");
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    job = job_for(hub, "/redirect/whole"); /* size and hash from the reply's headers alone */
    job.sha256 = NULL;
    job.bytes = 0;
    unlink(path);
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    unlink(path);
    job = job_for(hub, "/redirect/short");
    job.sha256 = NULL;
    job.bytes = 0;
    assert_fails(job, SN_ERR_FORMAT, "299999 bytes, wanted 300000", false);
}

static void token_stays_with_its_host(void **state) {
    (void)state;
    sn_fetch_job job = job_for(hub, "/redirect/whole");
    job.token = "hf_secret";
    assert_ok(sn_fetch_file(&job));
    assert_string_equal(test_server_log(hub, NULL)[0].authorization, "Bearer hf_secret");
    assert_int_equal(requests(cdn), 1);
    assert_string_equal(test_server_log(cdn, NULL)[0].authorization, "");
    unlink(path);
    job = job_for(hub, "/local"); /* but goes along within the host */
    job.token = "hf_secret";
    assert_ok(sn_fetch_file(&job));
    assert_string_equal(test_server_log(hub, NULL)[2].target, "/whole");
    assert_string_equal(test_server_log(hub, NULL)[2].authorization, "Bearer hf_secret");
    unlink(path);
    job.token = "two\r\nlines";
    assert_fails(job, SN_ERR_USAGE, "token", true);
}

static void dropped_and_resumed(void **state) {
    (void)state;
    sn_fetch_job job = job_for(hub, "/redirect/drop");
    job.tries = 1; /* an attempt that brings bytes does not count */
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    assert_int_equal(requests(cdn), 4);
    long at[] = {-1, 70000, 140000, 210000};
    for (int i = 0; i < 4; i++) assert_int_equal(test_server_log(cdn, NULL)[i].range, at[i]);
}

static void resumed_by_a_later_call(void **state) {
    (void)state;
    assert_ok(sn_file_replace(part, content, 123456));
    sn_fetch_job job = job_for(cdn, "/whole");
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    assert_int_equal(test_server_log(cdn, NULL)[0].range, 123456);
    /* all of it was there: nothing is asked */
    unlink(path);
    test_server_clear(cdn);
    assert_ok(sn_file_replace(part, content, SIZE));
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    assert_int_equal(requests(cdn), 0);
    /* without a hash nothing shows that the beginning is the same file's */
    unlink(path);
    assert_ok(sn_file_replace(part, "another file", 12));
    job.sha256 = NULL;
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    assert_int_equal(test_server_log(cdn, NULL)[0].range, -1);
}

static void stale_part_starts_again(void **state) {
    (void)state;
    const size_t sizes[] = {5000, SIZE, SIZE + 10};
    char *other = sn_alloc_zero(1, SIZE + 10);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(sn_file_replace(part, other, sizes[i]));
        sn_fetch_job job = job_for(cdn, "/whole");
        assert_ok(sn_fetch_file(&job));
        assert_whole();
        unlink(path);
    }
    assert_ok(sn_file_replace(part, other, SIZE + 10)); /* its size unknown: the server says 416 */
    sn_fetch_job job = job_for(cdn, "/whole");
    job.bytes = 0;
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    sn_free(other);
}

static void range_ignored_or_wrong(void **state) {
    (void)state;
    sn_fetch_job job = job_for(cdn, "/no-range");
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    assert_int_equal(test_server_log(cdn, NULL)[1].range, 50000);
    unlink(path);
    assert_ok(sn_file_replace(part, content, 1000));
    job = job_for(cdn, "/wrong-range");
    assert_fails(job, SN_ERR_NETWORK, "range", true);
    assert_ok(sn_fetch_file(&job)); /* the next call starts from nothing */
    assert_whole();
}

static void wrong_hash_and_size(void **state) {
    (void)state;
    char wrong[65];
    memset(wrong, 'a', 64);
    wrong[64] = 0;
    sn_fetch_job job = job_for(cdn, "/whole");
    job.sha256 = wrong;
    assert_fails(job, SN_ERR_FORMAT, hex, false);
    assert_fails(job_for(cdn, "/short"), SN_ERR_FORMAT, "299999 bytes, wanted 300000", false);
    assert_fails(job_for(cdn, "/long"), SN_ERR_FORMAT, "more than the 300000", false);
    assert_fails(job_for(cdn, "/empty"), SN_ERR_FORMAT, "0 bytes, wanted 300000", false);
}

static void failures_and_retries(void **state) {
    (void)state;
    sn_fetch_job job = job_for(cdn, "/busy");
    assert_ok(sn_fetch_file(&job));
    assert_whole();
    assert_int_equal(requests(cdn), 3);
    unlink(path);
    test_server_clear(cdn);
    job = job_for(cdn, "/busy");
    job.tries = 2; /* 429, then 503: given up */
    assert_fails(job, SN_ERR_NETWORK, "503", true);
    test_server_clear(cdn);
    assert_fails(job_for(cdn, "/down"), SN_ERR_NETWORK, "500:  [31mbroken", true); /* no escape reaches the terminal */
    assert_int_equal(requests(cdn), 3);
    test_server_clear(cdn);
    assert_fails(job_for(cdn, "/missing"), SN_ERR_NETWORK, "404; no such file: Not here", true);
    assert_fails(job_for(cdn, "/private"), SN_ERR_NETWORK, "HF_TOKEN", true);
    assert_int_equal(requests(cdn), 2);
    test_server *gone = test_server_start(answer_cdn, NULL);
    job = job_for(gone, "/whole");
    test_server_stop(gone);
    assert_fails(job, SN_ERR_NETWORK, "onnect", true);
    job.url = "file:///etc/passwd";
    assert_fails(job, SN_ERR_NETWORK, "file", true);
}

static bool stop_at(void *context, uint64_t done, uint64_t total) {
    assert_true(total == SIZE);
    return done < *(uint64_t *)context;
}

static void stopped_and_locked(void **state) {
    (void)state;
    uint64_t limit = 0;
    sn_fetch_job job = job_for(cdn, "/down");
    job.progress = stop_at;
    job.context = &limit;
    job.backoff_ms = 60000; /* ended while it waits, or before */
    assert_fails(job, SN_ERR_INTERRUPTED, "stopped", true);
    int fd = open(part, O_RDWR | O_CREAT, 0666);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_fails(job_for(cdn, "/whole"), SN_ERR_FILE, "another process", true);
    close(fd);
}

static void texts_and_urls(void **state) {
    (void)state;
    sn_str text = {0};
    sn_fetch_job job = job_for(cdn, "/busy");
    assert_ok(sn_fetch_text(&job, SIZE, &text, NULL));
    assert_int_equal(text.size, SIZE);
    assert_memory_equal(text.data, content, SIZE);
    job = job_for(cdn, "/whole");
    assert_int_equal(sn_fetch_text(&job, SIZE - 1, &text, NULL), SN_ERR_NETWORK);
    sn_str_free(&text);
    char *u = sn_url_resolve("https://host/simple/name/", "../../packages/a.whl#sha256=0");
    assert_string_equal(u, "https://host/packages/a.whl#sha256=0");
    sn_free(u);
    assert_null(sn_url_resolve("no url", ":::"));
    sn_url_escape(&text, "a/b c\xc3\xa4?", "/");
    assert_string_equal(text.data, "a/b%20c%C3%A4%3F");
    sn_str_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plain_and_redirected, fresh, clean),
        cmocka_unit_test_setup_teardown(token_stays_with_its_host, fresh, clean),
        cmocka_unit_test_setup_teardown(dropped_and_resumed, fresh, clean),
        cmocka_unit_test_setup_teardown(resumed_by_a_later_call, fresh, clean),
        cmocka_unit_test_setup_teardown(stale_part_starts_again, fresh, clean),
        cmocka_unit_test_setup_teardown(range_ignored_or_wrong, fresh, clean),
        cmocka_unit_test_setup_teardown(wrong_hash_and_size, fresh, clean),
        cmocka_unit_test_setup_teardown(failures_and_retries, fresh, clean),
        cmocka_unit_test_setup_teardown(stopped_and_locked, fresh, clean),
        cmocka_unit_test_setup_teardown(texts_and_urls, fresh, clean),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
