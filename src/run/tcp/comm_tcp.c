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

#include "base/hash.h"
#include "base/mem.h"
#include "base/system.h"
#include "run/tcp/tcp.h"

enum { ALL_TO_ALL = 1, ALL_GATHER, EXCHANGE, BLAME, POLL_MS = 50, GRACE_NS = 200000000 };

typedef struct head {
    uint32_t kind, subject; /* subject: of a blame, the culprit; else which group of ranks it is */
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

/* Of the comm of all ranks, whose connections its groups use; by rank, -1 and empty for this one. */
typedef struct world {
    int *fds;
    part *parts;
    struct pollfd *polls;
    uint64_t at; /* the collective at work */
} world;

typedef struct state {
    uint64_t calls;
    int *peers;           /* ranks of the world by this comm's */
    uint32_t group;       /* a number of these ranks; 0: all */
    sn_comm *all;         /* the comm of all ranks; itself, of that */
    struct sn_comm *next; /* of that comm: the groups made of it */
    world world;          /* of that comm */
} state;

static world *world_of(const sn_comm *all) { return &((state *)all->state)->world; }

/* Lets all others know, as far as their stream is between messages, and ends this process. */
static _Noreturn void give_up(const sn_comm *c, int culprit, const char *text) {
    const world *s = world_of(c);
    const head h = {.kind = BLAME, .subject = (uint32_t)culprit, .call = s->at};
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
    const world *s = world_of(c);
    head h;
    for (int r = 0; r < c->size; r++) {
        const part *p = &s->parts[r];
        if (s->fds[r] < 0 || (p->received && p->received < p->receive_end)) continue;
        if (recv(s->fds[r], &h, sizeof h, MSG_PEEK | MSG_DONTWAIT) != sizeof h || h.kind != BLAME) continue;
        *says = r;
        return (int)h.subject;
    }
    return -1;
}

static _Noreturn void gone(const sn_comm *c, int r, const char *why) {
    const world *s = world_of(c);
    char text[256];
    int says = -1;
    nanosleep(&(struct timespec){.tv_nsec = GRACE_NS / 4}, NULL);
    const int culprit = find_blame(c, &says);
    if (culprit >= 0 && culprit != c->rank)
        snprintf(text, sizeof text, "rank %d is gone or silent, as rank %d has found, in collective %llu", culprit, says,
                 (unsigned long long)s->at);
    else snprintf(text, sizeof text, "rank %d is gone (%s), in collective %llu", r, why, (unsigned long long)s->at);
    give_up(c, culprit >= 0 ? culprit : r, text);
}

static bool unfinished(const part *p) { return p->sent < p->send_end || p->received < p->receive_end; }

/* Names the ranks whose messages have not come, or have not been taken. */
static _Noreturn void out_of_patience(const sn_comm *c) {
    const world *s = world_of(c);
    char text[512];
    int first = -1;
    int n = snprintf(text, sizeof text, "no word for %g seconds (rank_timeout), in collective %llu, from rank", c->patience,
                     (unsigned long long)s->at);
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
        if (h->subject == (uint32_t)c->rank)
            snprintf(text, sizeof text, "rank %d has given up on this one, in collective %llu", r, (unsigned long long)mine->call);
        else
            snprintf(text, sizeof text, "rank %u is gone or silent, as rank %d has found, in collective %llu", h->subject, r,
                     (unsigned long long)mine->call);
        give_up(c, (int)h->subject, text);
    }
    if (h->kind == mine->kind && h->subject == mine->subject && h->call == mine->call && h->total == mine->total &&
        h->bytes == p->receive_end - sizeof(head))
        return;
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
    ssize_t n = sendmsg(world_of(c)->fds[r], &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!moved(c, r, n)) return false;
    p->sent += (size_t)n;
    return true;
}

static bool receive_some(const sn_comm *c, int r, part *p) {
    if (p->received >= p->receive_end) return false;
    const bool in_head = p->received < sizeof(head);
    char *to = in_head ? (char *)&p->in + p->received : p->receive + (p->received - sizeof(head));
    ssize_t n = recv(world_of(c)->fds[r], to, (in_head ? sizeof(head) : p->receive_end) - p->received, MSG_DONTWAIT);
    if (!moved(c, r, n)) return false;
    p->received += (size_t)n;
    if (in_head && p->received == sizeof(head)) check_head(c, r, p);
    return true;
}

/* Waits until something can be sent or received. */
static void await(const sn_comm *c) {
    const world *s = world_of(c);
    nfds_t n = 0;
    for (int r = 0; r < c->size; r++) {
        const part *p = &s->parts[r];
        if (unfinished(p))
            s->polls[n++] = (struct pollfd){
                .fd = s->fds[r], .events = (short)((p->sent < p->send_end ? POLLOUT : 0) | (p->received < p->receive_end ? POLLIN : 0))};
    }
    poll(s->polls, n, POLL_MS);
}

/* A message each way with a rank of this comm: sends or receives nothing where the bytes are 0. */
static void set_part(sn_comm *c, int r, const void *send, size_t sends, void *receive, size_t receives) {
    const state *s = c->state;
    c->sent += sends;
    world_of(s->all)->parts[s->peers[r]] = (part){.send = send, .receive = receive, .send_end = sends, .receive_end = receives};
}

static void clear_parts(const sn_comm *c) {
    const sn_comm *all = ((state *)c->state)->all;
    memset(world_of(all)->parts, 0, (size_t)all->size * sizeof(part));
}

/* Moves all parts. */
static void move_parts(const sn_comm *c, uint32_t kind, uint64_t total) {
    const state *own = c->state;
    sn_comm *all = own->all;
    world *w = world_of(all);
    double start = 0;
    w->at = own->calls;
    for (int r = 0; r < all->size; r++) {
        part *p = &w->parts[r];
        p->out =
            (head){.kind = kind, .subject = own->group, .call = kind == EXCHANGE ? 0 : own->calls, .total = total, .bytes = p->send_end};
        if (p->send_end) p->send_end += sizeof(head);
        if (p->receive_end) p->receive_end += sizeof(head);
    }
    for (bool left = true; left;) {
        bool progress = left = false;
        for (int r = 0; r < all->size; r++) {
            part *p = &w->parts[r];
            progress |= receive_some(all, r, p);
            progress |= send_some(all, r, p);
            left |= unfinished(p);
        }
        if (!left) return;
        if (progress || start == 0) start = progress ? 0 : sn_now();
        if (progress) continue;
        await(all);
        if (all->patience > 0 && sn_now() - start > all->patience) out_of_patience(all);
    }
}

static void all_to_all(sn_comm *c, const void *send, const size_t *at, const size_t *bytes, void *room, const void **pieces) {
    char *to = room;
    uint64_t total = 0;
    ((state *)c->state)->calls++;
    clear_parts(c);
    for (int r = 0; r < c->size; r++) {
        const void *own = (const char *)send + at[r];
        total += bytes[r];
        pieces[r] = r == c->rank ? own : to;
        if (r == c->rank) continue;
        set_part(c, r, own, bytes[r], to, bytes[c->rank]);
        to += bytes[c->rank];
    }
    move_parts(c, ALL_TO_ALL, total);
}

static void done(sn_comm *c) { (void)c; } /* what was sent is sent, what came is this rank's own */

static void all_gather(sn_comm *c, const void *mine, const size_t *at, void *out) {
    char *own = (char *)out + at[c->rank];
    const size_t bytes = at[c->rank + 1] - at[c->rank];
    ((state *)c->state)->calls++;
    if (bytes && mine != own) memcpy(own, mine, bytes);
    clear_parts(c);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) set_part(c, r, own, bytes, (char *)out + at[r], at[r + 1] - at[r]);
    move_parts(c, ALL_GATHER, at[c->size]);
}

static void exchange(sn_comm *c, int to, const void *send, size_t sends, int from, void *receive, size_t receives) {
    clear_parts(c);
    if (to >= 0) set_part(c, to, send, sends, to == from ? receive : NULL, to == from ? receives : 0);
    if (from >= 0 && from != to) set_part(c, from, NULL, 0, receive, receives);
    move_parts(c, EXCHANGE, 0);
}

static void release(sn_comm *c) {
    for (sn_comm *next; c; c = next) {
        state *s = c->state;
        next = s->next;
        for (int r = 0; s->world.fds && r < c->size; r++)
            if (s->world.fds[r] >= 0) close(s->world.fds[r]);
        sn_free(s->world.fds);
        sn_free(s->world.parts);
        sn_free(s->world.polls);
        sn_free(s->peers);
        sn_free(s);
        sn_free(c);
    }
}

/* Either way the others see the connections end, and wait for them only where something is due. */
static void close_comm(sn_comm *c, bool failed) {
    (void)failed;
    release(c);
}

static sn_comm *make(int rank, int size) {
    sn_comm *c = sn_alloc_zero(1, sizeof *c);
    state *s = sn_alloc_zero(1, sizeof *s);
    if (s) s->peers = sn_alloc_zero((size_t)size, sizeof *s->peers);
    if (!c || !s || !s->peers) {
        if (s) sn_free(s->peers);
        sn_free(s);
        sn_free(c);
        return NULL;
    }
    for (int r = 0; r < size; r++) s->peers[r] = r;
    s->all = c;
    *c = (sn_comm){.rank = rank,
                   .size = size,
                   .copies = true,
                   .all_to_all = all_to_all,
                   .done = done,
                   .all_gather = all_gather,
                   .exchange = exchange,
                   .state = s};
    return c;
}

static sn_comm *make_group(sn_comm *c, const int *ranks, int n) {
    state *all = c->state;
    const int mine = sn_place_in(ranks, n, c->rank);
    sn_comm *group = mine < n ? make(mine, n) : NULL;
    if (!group) return NULL;
    state *s = group->state;
    memcpy(s->peers, ranks, (size_t)n * sizeof *ranks);
    s->group = sn_crc32c(0, ranks, (size_t)n * sizeof *ranks);
    s->all = c;
    s->next = all->next;
    all->next = group;
    return group;
}

sn_status sn_comm_tcp_open(const sn_launch *launch, double patience, sn_comm **out) {
    const size_t size = (size_t)launch->size;
    sn_comm *c = make(launch->rank, launch->size);
    if (!c) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %d ranks", launch->size);
    world *w = world_of(c);
    w->parts = sn_alloc_zero(size, sizeof *w->parts);
    w->polls = sn_alloc_zero(size, sizeof *w->polls);
    w->fds = sn_alloc(size * sizeof *w->fds);
    for (size_t r = 0; w->fds && r < size; r++) w->fds[r] = -1;
    sn_status s = w->parts && w->polls && w->fds ? sn_tcp_join(launch, patience, w->fds)
                                                 : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %d ranks", launch->size);
    if (s != SN_OK) {
        release(c);
        return s;
    }
    c->group = make_group;
    c->close = close_comm;
    *out = c;
    return SN_OK;
}
