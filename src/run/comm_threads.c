/* Ranks that are threads of one process: peers' bytes are read in place, between two barriers, or from a box for each pair. Where there are
 * more of them than processors, who waits sleeps at once: it would keep the one from running for which it waits. */
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/futex.h"
#include "base/mem.h"
#include "base/team.h"
#include "run/run.h"

enum { SPINS = 2000 };

/* What one rank sends another: full from when the sender put it there until the receiver has copied it. */
typedef struct box {
    atomic_uint full;
    const void *data;
    size_t bytes;
} box;

typedef struct group {
    int size, spins;
    atomic_uint arrived, round;
    const void **pointers; /* by rank */
    box *boxes;            /* by sender, receiver */
    sn_comm *comms;        /* by rank */
    struct group *child;   /* groups of some of its ranks, made while `lock` is held */
    struct group *next;    /* its parent's next child */
    pthread_mutex_t lock;
    int *members; /* ranks of its parent; NULL: it has none */
} group;

static void barrier(group *g) {
    unsigned round = atomic_load(&g->round);
    if (atomic_fetch_add(&g->arrived, 1) + 1 == (unsigned)g->size) {
        atomic_store(&g->arrived, 0);
        atomic_fetch_add(&g->round, 1);
        sn_futex_wake(&g->round);
        return;
    }
    sn_wait_while(&g->round, round, g->spins);
}

static void publish(sn_comm *c, const void *mine) {
    group *g = c->state;
    g->pointers[c->rank] = mine;
    barrier(g);
}

static void done(sn_comm *c) { barrier(c->state); }

static void all_to_all(sn_comm *c, const void *send, const size_t *at, const size_t *bytes, void *room, const void **pieces) {
    const group *g = c->state;
    (void)room;
    for (int r = 0; r < g->size; r++) c->sent += r == c->rank ? 0 : bytes[r];
    publish(c, send);
    for (int r = 0; r < g->size; r++) pieces[r] = (const char *)g->pointers[r] + at[c->rank];
}

static void all_gather(sn_comm *c, const void *mine, const size_t *at, void *out) {
    const group *g = c->state;
    publish(c, mine);
    c->sent += (uint64_t)(g->size - 1) * (at[c->rank + 1] - at[c->rank]);
    for (int r = 0; r < g->size; r++) {
        char *to = (char *)out + at[r];
        if (at[r + 1] > at[r] && to != g->pointers[r]) memcpy(to, g->pointers[r], at[r + 1] - at[r]);
    }
    done(c);
}

static void exchange(sn_comm *c, int to, const void *send, size_t sends, int from, void *receive, size_t receives) {
    group *g = c->state;
    box *out = to < 0 ? NULL : &g->boxes[c->rank * g->size + to], *in = from < 0 ? NULL : &g->boxes[from * g->size + c->rank];
    if (out) {
        c->sent += sends;
        out->data = send;
        out->bytes = sends;
        atomic_store(&out->full, 1);
        sn_futex_wake(&out->full);
    }
    if (in) {
        sn_wait_while(&in->full, 0, g->spins);
        assert(in->bytes == receives);
        memcpy(receive, in->data, receives);
        atomic_store(&in->full, 0);
        sn_futex_wake(&in->full);
    }
    if (out) sn_wait_while(&out->full, 1, g->spins);
}

static void release(group *g) {
    if (!g) return;
    for (group *k = g->child, *next; k; k = next) {
        next = k->next;
        release(k);
    }
    pthread_mutex_destroy(&g->lock);
    sn_free(g->pointers);
    sn_free(g->boxes);
    sn_free(g->comms);
    sn_free(g->members);
    sn_free(g);
}

static sn_comm *find_group(sn_comm *c, const int *ranks, int n);

static group *make(int n, const int *members, bool crowded) {
    group *g = sn_alloc_zero(1, sizeof *g);
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    g->size = n;
    g->spins = crowded ? 0 : SPINS;
    g->pointers = sn_alloc_zero((size_t)n, sizeof *g->pointers);
    g->boxes = sn_alloc_zero((size_t)n * (size_t)n, sizeof *g->boxes);
    g->comms = sn_alloc_zero((size_t)n, sizeof *g->comms);
    g->members = members ? sn_alloc((size_t)n * sizeof *members) : NULL;
    if (!g->pointers || !g->boxes || !g->comms || (members && !g->members)) {
        release(g);
        return NULL;
    }
    if (members) memcpy(g->members, members, (size_t)n * sizeof *members);
    for (int r = 0; r < n; r++)
        g->comms[r] = (sn_comm){.rank = r,
                                .size = n,
                                .all_to_all = all_to_all,
                                .done = done,
                                .all_gather = all_gather,
                                .exchange = exchange,
                                .crowded = crowded,
                                .group = find_group,
                                .state = g};
    return g;
}

/* The first of the ranks makes the group, the others find it. */
static sn_comm *find_group(sn_comm *c, const int *ranks, int n) {
    group *g = c->state, *k;
    const int mine = sn_place_in(ranks, n, c->rank);
    assert(mine < n);
    pthread_mutex_lock(&g->lock);
    for (k = g->child; k && (k->size != n || memcmp(k->members, ranks, (size_t)n * sizeof *ranks)); k = k->next) {}
    if (!k && (k = make(n, ranks, c->crowded))) {
        k->next = g->child;
        g->child = k;
    }
    pthread_mutex_unlock(&g->lock);
    return k ? &k->comms[mine] : NULL;
}

sn_status sn_comm_threads_new(int n, sn_comm **comms) {
    group *g = make(n, NULL, n > sn_cpu_count());
    *comms = g ? g->comms : NULL;
    return g ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %d ranks", n);
}

void sn_comm_threads_free(sn_comm *comms) {
    if (comms) release(comms[0].state);
}
