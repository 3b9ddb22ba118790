#include "support/ranks.h"

#include <pthread.h>
#include <string.h>

#include "support/support.h"

enum { RANKS_MOST = 16 };

typedef struct group {
    pthread_barrier_t barrier;
    const void *published[RANKS_MOST];
} group;

typedef struct rank {
    sn_comm comm;
    void (*fn)(void *context, sn_comm *comm);
    void *context;
} rank;

static void publish(sn_comm *c, const void *mine) {
    group *g = c->state;
    g->published[c->rank] = mine;
    pthread_barrier_wait(&g->barrier);
}

static void done(sn_comm *c) { pthread_barrier_wait(&((group *)c->state)->barrier); }

static void all_to_all(sn_comm *c, const void *send, const size_t *at, const size_t *bytes, void *room, const void **pieces) {
    const group *g = c->state;
    char *to = room;
    publish(c, send);
    for (int r = 0; r < c->size; r++) {
        pieces[r] = (const char *)g->published[r] + at[c->rank];
        if (!c->copies || r == c->rank) continue;
        if (bytes[c->rank]) pieces[r] = memcpy(to, pieces[r], bytes[c->rank]);
        to += bytes[c->rank];
    }
}

static void all_gather(sn_comm *c, const void *mine, const size_t *at, void *out) {
    const group *g = c->state;
    publish(c, mine);
    for (int r = 0; r < c->size; r++)
        if (at[r + 1] > at[r]) memmove((char *)out + at[r], g->published[r], at[r + 1] - at[r]);
    done(c);
}

static void *rank_main(void *arg) {
    rank *r = arg;
    r->fn(r->context, &r->comm);
    return NULL;
}

void test_ranks(int n, bool copies, void (*fn)(void *context, sn_comm *comm), void *context) {
    group g;
    rank ranks[RANKS_MOST];
    pthread_t threads[RANKS_MOST];
    assert_true(n >= 1 && n <= RANKS_MOST);
    assert_int_equal(pthread_barrier_init(&g.barrier, NULL, (unsigned)n), 0);
    for (int r = 0; r < n; r++) {
        ranks[r] = (rank){
            .comm = {.rank = r, .size = n, .copies = copies, .all_to_all = all_to_all, .done = done, .all_gather = all_gather, .state = &g},
            .fn = fn,
            .context = context};
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&g.barrier);
}
