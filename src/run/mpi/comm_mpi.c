/* Ranks that are processes, over MPI: the module snug_mpi.so (run/launch.h). It sees program/comm.h only.
 *
 * Every collective is a set of point-to-point messages, posted at once and polled: so a silent rank can be named, nothing is
 * summed by MPI, and no count passes 2^31. MPI is called by one thread at a time (MPI_THREAD_SERIALIZED): the communication
 * queue's while a program runs, the main thread's between programs. A rank that is gone or silent for longer than `patience`
 * cannot be waited for and there is nobody to return an error to: MPI_Abort ends all ranks. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "run/launch.h"

enum { MESSAGE_BYTES = 1 << 30, TAG = 77, SPIN_NS = 2000000, SLEEP_NS = 50000 };

/* What goes to and comes from one rank. */
typedef struct part {
    const char *send;
    char *receive;
    size_t sends, receives;
} part;

typedef struct state {
    MPI_Comm world;
    int *peers, tag;       /* the world's ranks by this comm's, and what its messages are marked with */
    const sn_comm *root;   /* the comm of all ranks: its patience counts */
    struct sn_comm *next;  /* of the root's state: the groups made of it */
    part *parts;           /* by rank of this comm */
    MPI_Request *requests; /* 2 a rank: receive, send */
    MPI_Status *statuses;
    uint64_t calls; /* collectives so far */
} state;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static _Noreturn void give_up(const sn_comm *c, const char *text) {
    const state *s = c->state;
    fprintf(stderr, "snug: rank %d: %s: all ranks are ended\n", s->root->rank, text);
    fflush(stderr);
    MPI_Abort(s->world, 1);
    _exit(1);
}

static void check(const sn_comm *c, int rc, const char *what, int peer) {
    char text[MPI_MAX_ERROR_STRING + 128], reason[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (rc == MPI_SUCCESS) return;
    MPI_Error_string(rc, reason, &n);
    if (peer >= 0)
        snprintf(text, sizeof text, "%s rank %d failed in collective %llu: %.*s", what, peer,
                 (unsigned long long)((state *)c->state)->calls, n, reason);
    else snprintf(text, sizeof text, "%s failed: %.*s", what, n, reason);
    give_up(c, text);
}

/* Names the ranks whose messages have not come, or have not been taken. */
static void out_of_patience(const sn_comm *c) {
    const state *s = c->state;
    char text[512];
    int n = snprintf(text, sizeof text, "no word for %g seconds (rank_timeout), in collective %llu, from rank", s->root->patience,
                     (unsigned long long)s->calls);
    for (int r = 0; r < c->size && n < (int)sizeof text - 16; r++) {
        int received = 1, sent = 1;
        if (s->requests[2 * r] != MPI_REQUEST_NULL) MPI_Request_get_status(s->requests[2 * r], &received, MPI_STATUS_IGNORE);
        if (s->requests[2 * r + 1] != MPI_REQUEST_NULL) MPI_Request_get_status(s->requests[2 * r + 1], &sent, MPI_STATUS_IGNORE);
        if (!received || !sent) n += snprintf(text + n, sizeof text - (size_t)n, " %d", s->peers[r]);
    }
    give_up(c, text);
}

static void wait_all(const sn_comm *c) {
    const state *s = c->state;
    const double start = now();
    for (int done = 0;;) {
        int rc = MPI_Testall(2 * c->size, s->requests, &done, s->statuses);
        if (rc == MPI_ERR_IN_STATUS)
            for (int i = 0; i < 2 * c->size; i++)
                check(c, s->statuses[i].MPI_ERROR == MPI_ERR_PENDING ? MPI_SUCCESS : s->statuses[i].MPI_ERROR,
                      i % 2 ? "sending to" : "receiving from", s->peers[i / 2]);
        check(c, rc, "waiting for messages", -1);
        if (done) return;
        const double waited = now() - start;
        if (s->root->patience > 0 && waited > s->root->patience) out_of_patience(c);
        if (waited * 1e9 < SPIN_NS) sched_yield();
        else nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    }
}

/* Moves all parts, message by message where they are large. */
static void move_parts(sn_comm *c) {
    const state *s = c->state;
    for (int r = 0; r < c->size; r++) c->sent += s->parts[r].sends;
    bool more = true;
    for (size_t at = 0; more; at += MESSAGE_BYTES) {
        more = false;
        for (int r = 0; r < c->size; r++) {
            const part *p = &s->parts[r];
            const size_t in = p->receives > at ? p->receives - at : 0, out = p->sends > at ? p->sends - at : 0;
            s->requests[2 * r] = s->requests[2 * r + 1] = MPI_REQUEST_NULL;
            if (in)
                check(c,
                      MPI_Irecv(p->receive + at, (int)(in < MESSAGE_BYTES ? in : MESSAGE_BYTES), MPI_BYTE, s->peers[r], s->tag, s->world,
                                &s->requests[2 * r]),
                      "receiving from", s->peers[r]);
            if (out)
                check(c,
                      MPI_Isend(p->send + at, (int)(out < MESSAGE_BYTES ? out : MESSAGE_BYTES), MPI_BYTE, s->peers[r], s->tag, s->world,
                                &s->requests[2 * r + 1]),
                      "sending to", s->peers[r]);
            more |= in > MESSAGE_BYTES || out > MESSAGE_BYTES;
        }
        wait_all(c);
        for (int r = 0; r < c->size; r++) {
            const size_t in = s->parts[r].receives > at ? s->parts[r].receives - at : 0;
            int got = 0;
            char text[160];
            if (in) MPI_Get_count(&s->statuses[2 * r], MPI_BYTE, &got);
            if ((size_t)got == (in < MESSAGE_BYTES ? in : MESSAGE_BYTES)) continue;
            snprintf(text, sizeof text, "rank %d sent %d bytes in collective %llu, where %zu were due", s->peers[r], got,
                     (unsigned long long)s->calls, in);
            give_up(c, text);
        }
    }
}

#ifndef NDEBUG
/* Every rank says which collective it is at, and what it is. */
static void compare(sn_comm *c, const uint64_t mine[3]) {
    const state *s = c->state;
    const uint64_t sent = c->sent; /* this is not the program's */
    uint64_t theirs[SN_RANKS_MOST][3] = {{0}};
    for (int r = 0; r < c->size; r++) s->parts[r] = (part){(const char *)mine, (char *)theirs[r], sizeof theirs[r], sizeof theirs[r]};
    s->parts[c->rank] = (part){0};
    move_parts(c);
    c->sent = sent;
    for (int r = 0; r < c->size; r++) {
        char text[256];
        if (r == c->rank || !memcmp(theirs[r], mine, sizeof theirs[r])) continue;
        snprintf(text, sizeof text,
                 "rank %d is at collective %llu of kind %llu and %llu bytes, this one at %llu of kind %llu and %llu bytes", s->peers[r],
                 (unsigned long long)theirs[r][0], (unsigned long long)theirs[r][1], (unsigned long long)theirs[r][2],
                 (unsigned long long)mine[0], (unsigned long long)mine[1], (unsigned long long)mine[2]);
        give_up(c, text);
    }
}
#else
static void compare(sn_comm *c, const uint64_t mine[3]) { (void)c, (void)mine; }
#endif

static void all_to_all(sn_comm *c, const void *send, const size_t *at, const size_t *bytes, void *room, const void **pieces) {
    state *s = c->state;
    char *to = room;
    uint64_t sum = 0;
    for (int r = 0; r < c->size; r++) sum += bytes[r];
    compare(c, (uint64_t[]){++s->calls, 1, sum});
    for (int r = 0; r < c->size; r++) {
        pieces[r] = r == c->rank ? (const char *)send + at[r] : to;
        s->parts[r] = (part){(const char *)send + at[r], to, bytes[r], bytes[c->rank]};
        if (r != c->rank) to += bytes[c->rank];
    }
    s->parts[c->rank] = (part){0};
    move_parts(c);
}

static void done(sn_comm *c) { (void)c; } /* what was sent is sent, what came is this rank's own */

static void all_gather(sn_comm *c, const void *mine, const size_t *at, void *out) {
    state *s = c->state;
    char *own = (char *)out + at[c->rank];
    const size_t bytes = at[c->rank + 1] - at[c->rank];
    compare(c, (uint64_t[]){++s->calls, 2, at[c->size]});
    if (bytes && mine != own) memcpy(own, mine, bytes);
    for (int r = 0; r < c->size; r++) s->parts[r] = (part){own, (char *)out + at[r], bytes, at[r + 1] - at[r]};
    s->parts[c->rank] = (part){0};
    move_parts(c);
}

static void exchange(sn_comm *c, int to, const void *send, size_t sends, int from, void *receive, size_t receives) {
    state *s = c->state;
    s->calls++;
    memset(s->parts, 0, (size_t)c->size * sizeof *s->parts);
    if (to >= 0) {
        s->parts[to].send = send;
        s->parts[to].sends = sends;
    }
    if (from >= 0) {
        s->parts[from].receive = receive;
        s->parts[from].receives = receives;
    }
    move_parts(c);
}

static void release(sn_comm *c) {
    if (!c) return;
    state *s = c->state;
    if (s) {
        release(s->next);
        free(s->peers);
        free(s->parts);
        free(s->requests);
        free(s->statuses);
    }
    free(s);
    free(c);
}

static void close_comm(sn_comm *c, bool failed) {
    if (!failed) MPI_Finalize(); /* after a failure it would wait for ranks that wait for this one; the launcher ends them */
    release(c);
}

static sn_comm *make(int rank, int size) {
    sn_comm *c = calloc(1, sizeof *c);
    state *s = calloc(1, sizeof *s);
    if (!c || !s || !(s->peers = calloc((size_t)size, sizeof *s->peers)) || !(s->parts = calloc((size_t)size, sizeof *s->parts)) ||
        !(s->requests = calloc(2 * (size_t)size, sizeof(MPI_Request))) || !(s->statuses = calloc(2 * (size_t)size, sizeof(MPI_Status)))) {
        if (c) c->state = s;
        else free(s);
        release(c);
        return NULL;
    }
    for (int r = 0; r < size; r++) s->peers[r] = r;
    s->tag = TAG;
    s->root = c;
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

/* Its messages carry a tag of their own, so that they are told from the world's. */
static sn_comm *make_group(sn_comm *c, const int *ranks, int n) {
    state *world = c->state;
    const int mine = sn_place_in(ranks, n, c->rank);
    sn_comm *group = mine < n ? make(mine, n) : NULL;
    if (!group) return NULL;
    state *s = group->state;
    for (int r = 0; r < n; r++) s->peers[r] = ranks[r];
    s->world = world->world;
    s->tag = TAG + 1;
    s->root = c;
    s->next = world->next;
    world->next = group;
    return group;
}

__attribute__((visibility("default"))) const char *snug_mpi_open(int rank, int size, sn_comm **out, char text[256]) {
    int provided, seen_rank, seen_size;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) return "MPI_Init_thread failed";
    MPI_Comm_rank(MPI_COMM_WORLD, &seen_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &seen_size);
    if (provided < MPI_THREAD_SERIALIZED) return "this MPI gives threads no turn (MPI_THREAD_SERIALIZED)";
    if (seen_rank != rank || seen_size != size) {
        snprintf(text, 256,
                 "MPI sees rank %d of %d. mpirun or srun --mpi=pmix has to start the ranks; without MPI, MASTER_ADDR and MASTER_PORT say "
                 "where to join",
                 seen_rank, seen_size);
        return text;
    }
    sn_comm *c = make(rank, size);
    if (!c) return "no memory for the ranks";
    MPI_Comm *world = &((state *)c->state)->world;
    MPI_Comm_dup(MPI_COMM_WORLD, world);
    MPI_Comm_set_errhandler(*world, MPI_ERRORS_RETURN);
    c->group = make_group;
    c->close = close_comm;
    *out = c;
    return NULL;
}
