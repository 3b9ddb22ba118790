/* A small HTTP/1.1 server on 127.0.0.1 for tests: one thread, one connection at a time, scripted by a function. */
#ifndef SN_TESTS_HTTP_SERVER_H
#define SN_TESTS_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct test_request {
    char target[512];        /* path and query */
    char authorization[128]; /* "" when absent */
    long range;              /* first byte asked for; -1: the whole */
    int number;              /* of this target, from 0 */
} test_request;

typedef struct test_reply {
    int status;
    char headers[1024]; /* whole lines with \r\n */
    const char *body;
    size_t size; /* Content-Length */
    size_t send; /* bytes of it really sent before the connection is closed; 0: all */
} test_reply;

typedef struct test_server test_server;
typedef void (*test_answer)(void *context, const test_request *request, test_reply *reply);

test_server *test_server_start(test_answer answer, void *context);
void test_server_stop(test_server *s);
int test_server_port(const test_server *s);

/* What was asked since the last clear, oldest first; count may be NULL. Call between requests only. */
const test_request *test_server_log(const test_server *s, size_t *count);
void test_server_clear(test_server *s);

#endif
