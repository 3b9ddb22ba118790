/* Ranks that are processes, over plain TCP: no library and no launcher but one that says who is who (run/launch.h).
 *
 * A collective is a set of messages between pairs, all on their way at once. Each has a head that says which collective it belongs
 * to, of what kind and size, so ranks that do not do the same thing find out. A rank that finds another one gone or silent says so
 * to the rest (a blame) before it ends, so that all name the same culprit, not each other. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "run/tcp/tcp.h"

enum { ALL_TO_ALL = 1, ALL_GATHER, BLAME, POLL_MS = 50, GRACE_NS = 200000000 };

typedef struct head {
    uint32_t kind, culprit; /* culprit: of a blame */
    uint64_t call, total;   /* which collective; bytes that all ranks must agree on */
    uint64_t bytes;         /* that follow */
} head;

/* What goes to and comes from one rank. *_at counts the head too; *_end 0: nothing. */
typedef struct part {
    head out, in;
    const char *send;
    char *receive;
    size_t sent, send_end, received, receive_end;
} part;

typedef struct state {
    uint64_t calls;
    part *parts;
    struct pollfd *polls;
    int fds[]; /* by rank; -1: this one */
} state;

/* Lets all others know, as far as their stream is between messages, and ends this process. */
static _Noreturn void give_up(const sn_comm *c, int culprit, const char *text) {
    const state *s = c->state;
    const head h = {.kind = BLAME, .culprit = (uint32_t)culprit, .call = s->calls};
    fprintf(stderr, "snug: rank %d: %s: all ranks are ended\n", c->rank, text);
    fflush(stderr);
    for (int r = 0; r < c->size; r++) {
        const part *p = &s->parts[r];
        if (s->fds[r] < 0 || (p->sent && p->sent < p->send_end)) continue;
        (void)!send(s->fds[r], &h, sizeof h, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(s->fds[r], SHUT_WR);
    }
    nanosleep(&(struct timespec){.tv_nsec = GRACE_NS}, NULL); /* what is unread would be lost with the connection */
    _exit(1);
}

/* Whether another rank has already said who is the culprit; *says: which one. */
static int find_blame(const sn_comm *c, int *says) {
    const state *s = c->state;
    head h;
    for (int r = 0; r < c->size; r++) {
        const part *p = &s->parts[r];
        if (s->fds[r] < 0 || (p->received && p->received < p->receive_end)) continue;
        if (recv(s->fds[r], &h, sizeof h, MSG_PEEK | MSG_DONTWAIT) != sizeof h || h.kind != BLAME) continue;
        *says = r;
        return (int)h.culprit;
    }
    return -1;
}

static _Noreturn void gone(const sn_comm *c, int r, const char *why) {
    const state *s = c->state;
    char text[256];
    int says = -1;
    nanosleep(&(struct timespec){.tv_nsec = GRACE_NS / 4}, NULL);
    const int culprit = find_blame(c, &says);
    if (culprit >= 0 && culprit != c->rank)
        snprintf(text, sizeof text, "rank %d is gone or silent, as rank %d has found, in collective %llu", culprit, says,
                 (unsigned long long)s->calls);
    else snprintf(text, sizeof text, "rank %d is gone (%s), in collective %llu", r, why, (unsigned long long)s->calls);
    give_up(c, culprit >= 0 ? culprit : r, text);
}

static bool unfinished(const part *p) { return p->sent < p->send_end || p->received < p->receive_end; }

/* Names the ranks whose messages have not come, or have not been taken. */
static _Noreturn void out_of_patience(const sn_comm *c) {
    const state *s = c->state;
    char text[512];
    int first = -1;
    int n = snprintf(text, sizeof text, "no word for %g seconds (rank_timeout), in collective %llu, from rank", c->patience,
                     (unsigned long long)s->calls);
    for (int r = 0; r < c->size && n < (int)sizeof text - 16; r++) {
        if (!unfinished(&s->parts[r])) continue;
        n += snprintf(text + n, sizeof text - (size_t)n, " %d", r);
        if (first < 0) first = r;
    }
    give_up(c, first, text);
}

static void check_head(const sn_comm *c, int r, const part *p) {
    const head *h = &p->in, *mine = &p->out;
    char text[320];
    if (h->kind == BLAME) {
        snprintf(text, sizeof text, "rank %u is gone or silent, as rank %d has found, in collective %llu", h->culprit, r,
                 (unsigned long long)mine->call);
        give_up(c, (int)h->culprit, text);
    }
    if (h->kind == mine->kind && h->call == mine->call && h->total == mine->total && h->bytes == p->receive_end - sizeof(head)) return;
    snprintf(text, sizeof text,
             "rank %d is at collective %llu of kind %u and %llu bytes, of which it sent %llu; this one at %llu of kind %u and %llu bytes, "
             "and %zu were due",
             r, (unsigned long long)h->call, h->kind, (unsigned long long)h->total, (unsigned long long)h->bytes,
             (unsigned long long)mine->call, mine->kind, (unsigned long long)mine->total, p->receive_end - sizeof(head));
    give_up(c, r, text);
}

/* n: what send or recv said. Whether anything moved. */
static bool moved(const sn_comm *c, int r, ssize_t n) {
    if (n > 0) return true;
    if (!n) gone(c, r, "it has closed the connection");
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) gone(c, r, strerror(errno));
    return false;
}

static bool send_some(const sn_comm *c, int r, part *p) {
    if (p->sent >= p->send_end) return false;
    const size_t payload = p->sent < sizeof(head) ? 0 : p->sent - sizeof(head);
    struct iovec v[2] = {{(char *)&p->out + p->sent, p->sent < sizeof(head) ? sizeof(head) - p->sent : 0},
                         {(char *)p->send + payload, p->send_end - sizeof(head) - payload}};
    const int skip = !v[0].iov_len;
    struct msghdr m = {.msg_iov = v + skip, .msg_iovlen = 2 - (size_t)skip};
    ssize_t n = sendmsg(((state *)c->state)->fds[r], &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!moved(c, r, n)) return false;
    p->sent += (size_t)n;
    return true;
}

static bool receive_some(const sn_comm *c, int r, part *p) {
    if (p->received >= p->receive_end) return false;
    const bool in_head = p->received < sizeof(head);
    char *to = in_head ? (char *)&p->in + p->received : p->receive + (p->received - sizeof(head));
    ssize_t n = recv(((state *)c->state)->fds[r], to, (in_head ? sizeof(head) : p->receive_end) - p->received, MSG_DONTWAIT);
    if (!moved(c, r, n)) return false;
    p->received += (size_t)n;
    if (in_head && p->received == sizeof(head)) check_head(c, r, p);
    return true;
}

/* Waits until something can be sent or received. */
static void await(const sn_comm *c) {
    const state *s = c->state;
    nfds_t n = 0;
    for (int r = 0; r < c->size; r++) {
        const part *p = &s->parts[r];
        if (unfinished(p))
            s->polls[n++] = (struct pollfd){
                .fd = s->fds[r], .events = (short)((p->sent < p->send_end ? POLLOUT : 0) | (p->received < p->receive_end ? POLLIN : 0))};
    }
    poll(s->polls, n, POLL_MS);
}

/* Moves all parts. Nothing is sent or awaited where a part is empty. */
static void move_parts(sn_comm *c, uint32_t kind, uint64_t total) {
    state *s = c->state;
    double start = 0;
    s->calls++;
    for (int r = 0; r < c->size; r++) {
        part *p = &s->parts[r];
        p->out = (head){.kind = kind, .call = s->calls, .total = total, .bytes = p->send_end};
        p->sent = p->received = 0;
        if (p->send_end) p->send_end += sizeof(head);
        if (p->receive_end) p->receive_end += sizeof(head);
    }
    for (bool left = true; left;) {
        bool progress = left = false;
        for (int r = 0; r < c->size; r++) {
            part *p = &s->parts[r];
            progress |= receive_some(c, r, p);
            progress |= send_some(c, r, p);
            left |= unfinished(p);
        }
        if (!left) return;
        if (progress || start == 0) start = progress ? 0 : sn_tcp_now();
        if (progress) continue;
        await(c);
        if (c->patience > 0 && sn_tcp_now() - start > c->patience) out_of_patience(c);
    }
}

static void all_to_all(sn_comm *c, const void *send, const size_t *at, const size_t *bytes, void *room, const void **pieces) {
    state *s = c->state;
    char *to = room;
    uint64_t total = 0;
    for (int r = 0; r < c->size; r++) {
        total += bytes[r];
        pieces[r] = r == c->rank ? (const char *)send + at[r] : to;
        s->parts[r] = (part){.send = (const char *)send + at[r], .receive = to, .send_end = bytes[r], .receive_end = bytes[c->rank]};
        if (r != c->rank) to += bytes[c->rank];
    }
    s->parts[c->rank] = (part){0};
    move_parts(c, ALL_TO_ALL, total);
}

static void done(sn_comm *c) { (void)c; } /* what was sent is sent, what came is this rank's own */

static void all_gather(sn_comm *c, const void *mine, const size_t *at, void *out) {
    state *s = c->state;
    char *own = (char *)out + at[c->rank];
    const size_t bytes = at[c->rank + 1] - at[c->rank];
    if (bytes && mine != own) memcpy(own, mine, bytes);
    for (int r = 0; r < c->size; r++)
        s->parts[r] = (part){.send = own, .receive = (char *)out + at[r], .send_end = bytes, .receive_end = at[r + 1] - at[r]};
    s->parts[c->rank] = (part){0};
    move_parts(c, ALL_GATHER, at[c->size]);
}

static void close_comm(sn_comm *c, bool failed) {
    state *s = c->state;
    (void)failed; /* either way the others see the connection end, and wait for it only where something is due */
    if (!s) return;
    sn_tcp_close(s->fds, c->size);
    sn_free(s->parts);
    sn_free(s->polls);
    sn_free(s);
    sn_free(c);
}

sn_status sn_comm_tcp_open(const sn_launch *launch, double patience, sn_comm **out) {
    const size_t size = (size_t)launch->size;
    sn_comm *c = sn_alloc_zero(1, sizeof *c);
    state *s = sn_alloc_zero(1, sizeof *s + size * sizeof s->fds[0]);
    if (s) s->parts = sn_alloc_zero(size, sizeof *s->parts), s->polls = sn_alloc_zero(size, sizeof *s->polls);
    const bool room = c && s && s->parts && s->polls;
    sn_status status = room ? sn_tcp_join(launch, patience, s->fds) : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %d ranks", launch->size);
    if (status != SN_OK) {
        if (s) {
            sn_free(s->parts);
            sn_free(s->polls);
        }
        sn_free(s);
        sn_free(c);
        return status;
    }
    *c = (sn_comm){.rank = launch->rank,
                   .size = launch->size,
                   .copies = true,
                   .all_to_all = all_to_all,
                   .done = done,
                   .all_gather = all_gather,
                   .close = close_comm,
                   .state = s};
    *out = c;
    return SN_OK;
}
