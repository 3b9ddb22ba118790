/* Training in turns: which one an update belongs to. */
#include "base/rng.h"
#include "graph/graph.h"

/* Turn i of a round in random order: each turn comes once a round. */
static int shuffled(const sn_turns *t, int64_t round, int i) {
    int at = i; /* where the turn stands that ends at i, followed backwards through the exchanges of Fisher and Yates */
    for (int k = 1; k < t->count; k++) {
        sn_rng4 r = sn_philox((uint32_t)t->seed, (uint32_t)(t->seed >> 32), (uint32_t)round, (uint32_t)k, 0x7475726eu, 0);
        int other = (int)(r.v[0] % (uint32_t)(k + 1));
        at = at == k ? other : at == other ? k : at;
    }
    return at;
}

int sn_turn_at(const sn_turns *t, int64_t update) {
    if (!t->count) return 0;
    const int64_t number = update < 0 ? 0 : update / t->steps;
    const int i = (int)(number % t->count);
    if (t->order == SN_TURNS_RANDOM) return shuffled(t, number / t->count, i);
    return t->order == SN_TURNS_ASCENDING ? i : t->count - 1 - i;
}

int64_t sn_turn_step(const sn_turns *t, int64_t update) { return t->count ? update % t->steps : update; }

int64_t sn_turn_ends(const sn_turns *t, int64_t update) { return t->count && (update + 1) % t->steps == 0 ? (update + 1) / t->steps : 0; }

int32_t sn_job_turn(const sn_job *job, sn_pid p) {
    const sn_pid parent = job->persistent[p].parent;
    return parent == SN_NONE ? -1 : job->persistent[parent].turn;
}
