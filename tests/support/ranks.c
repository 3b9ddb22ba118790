#include "support/ranks.h"

#include <pthread.h>

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

static void publish(sn_comm *c, const void *mine, const void **peers) {
    group *g = c->state;
    g->published[c->rank] = mine;
    pthread_barrier_wait(&g->barrier);
    for (int r = 0; r < c->size; r++) peers[r] = g->published[r];
}

static void done(sn_comm *c) { pthread_barrier_wait(&((group *)c->state)->barrier); }

static void *rank_main(void *arg) {
    rank *r = arg;
    r->fn(r->context, &r->comm);
    return NULL;
}

void test_ranks(int n, void (*fn)(void *context, sn_comm *comm), void *context) {
    group g;
    rank ranks[RANKS_MOST];
    pthread_t threads[RANKS_MOST];
    assert_true(n >= 1 && n <= RANKS_MOST);
    assert_int_equal(pthread_barrier_init(&g.barrier, NULL, (unsigned)n), 0);
    for (int r = 0; r < n; r++) {
        ranks[r] = (rank){.comm = {.rank = r, .size = n, .publish = publish, .done = done, .state = &g}, .fn = fn, .context = context};
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&g.barrier);
}
