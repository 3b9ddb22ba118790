#include "support/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_LOG = 1000 };

struct test_server {
    int listener, port;
    pthread_t thread;
    test_answer answer;
    void *context;
    test_request *log;
    size_t count;
};

static bool read_request(int fd, char *text, size_t room) {
    size_t n = 0;
    while (n + 1 < room) {
        ssize_t got = recv(fd, text + n, room - 1 - n, 0);
        if (got <= 0) return false;
        n += (size_t)got;
        text[n] = 0;
        if (strstr(text, "\r\n\r\n")) return true;
    }
    return false;
}

static void send_all(int fd, const char *data, size_t n) {
    while (n) {
        ssize_t put = send(fd, data, n, MSG_NOSIGNAL);
        if (put <= 0) return;
        data += put;
        n -= (size_t)put;
    }
}

static void serve(test_server *s, int fd) {
    static const char lengths[] = "Content-Length: %zu\r\nConnection: close\r\n\r\n";
    char text[8192], head[2048];
    if (!read_request(fd, text, sizeof text) || s->count == MAX_LOG) return;
    test_request *r = &s->log[s->count];
    *r = (test_request){.range = -1};
    sscanf(text, "%*s %511s", r->target);
    for (char *line = strstr(text, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        if (!strncasecmp(line + 2, "authorization: ", 15)) sscanf(line + 17, "%127[^\r]", r->authorization);
        if (!strncasecmp(line + 2, "range: bytes=", 13)) r->range = atol(line + 15);
    }
    for (size_t i = 0; i < s->count; i++) r->number += !strcmp(s->log[i].target, r->target);
    s->count++;
    test_reply reply = {.status = 404};
    s->answer(s->context, r, &reply);
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d Text\r\n%s", reply.status, reply.headers);
    n += snprintf(head + n, sizeof head - (size_t)n, lengths, reply.size);
    send_all(fd, head, (size_t)n);
    send_all(fd, reply.body, reply.send ? reply.send : reply.size);
}

static void *run(void *context) {
    test_server *s = context;
    for (int fd; (fd = accept(s->listener, NULL, NULL)) >= 0; close(fd)) {
        serve(s, fd);
        shutdown(fd, SHUT_RDWR);
    }
    return NULL;
}

test_server *test_server_start(test_answer answer, void *context) {
    test_server *s = calloc(1, sizeof *s);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (!s || !(s->log = calloc(MAX_LOG, sizeof *s->log))) abort();
    s->answer = answer;
    s->context = context;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, size) || listen(s->listener, 16) ||
        getsockname(s->listener, (struct sockaddr *)&address, &size) || pthread_create(&s->thread, NULL, run, s))
        abort();
    s->port = ntohs(address.sin_port);
    return s;
}

void test_server_stop(test_server *s) {
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    free(s->log);
    free(s);
}

int test_server_port(const test_server *s) { return s->port; }

const test_request *test_server_log(const test_server *s, size_t *count) {
    if (count) *count = s->count;
    return s->log;
}

void test_server_clear(test_server *s) { s->count = 0; }
