/* Ranks that are threads: groups of them, and what two of them exchange. */
#include <string.h>

#include "base/team.h"
#include "run/run.h"
#include "support/support.h"

enum { RANKS = 6, ROUNDS = 200, WORDS = 1000 };

typedef struct world {
    sn_comm *comms;
    bool good[RANKS];
} world;

/* Two rows of three: rings along a row, gathers down a column, in turn. */
static void talk(void *context, int64_t rank, int member) {
    world *w = context;
    sn_comm *c = &w->comms[rank];
    const int row = (int)rank / 3, column = (int)rank % 3, rows[] = {3 * row, 3 * row + 1, 3 * row + 2}, columns[] = {column, column + 3};
    sn_comm *ring = c->group(c, rows, 3), *pair = c->group(c, columns, 2);
    (void)member;
    bool good = ring && pair && ring->rank == column && ring->size == 3 && pair->rank == row && pair->size == 2;
    good = good && c->group(c, rows, 3) == ring;
    for (int k = 0; good && k < ROUNDS; k++) {
        int32_t own[WORDS], other[WORDS] = {0}, both[2] = {0};
        const size_t at[] = {0, sizeof own[0], 2 * sizeof own[0]};
        for (int i = 0; i < WORDS; i++) own[i] = (int32_t)(rank * 100000 + k * 100 + i);
        ring->exchange(ring, (column + 1) % 3, own, sizeof own, (column + 2) % 3, other, sizeof other);
        for (int i = 0; i < WORDS; i++) good &= other[i] == (3 * row + (column + 2) % 3) * 100000 + k * 100 + i;
        pair->all_gather(pair, own, at, both);
        good &= both[0] == column * 100000 + k * 100 && both[1] == (column + 3) * 100000 + k * 100;
    }
    /* One way only: a send without a receive, and the other way about. */
    int32_t word = 7 + row;
    if (column == 0) ring->exchange(ring, 2, &word, sizeof word, -1, NULL, 0);
    if (column == 2) {
        word = 0;
        ring->exchange(ring, -1, NULL, 0, 0, &word, sizeof word);
        good &= word == 7 + row;
    }
    w->good[rank] = good;
}

static void groups(void **state) {
    (void)state;
    world w = {0};
    sn_team *team;
    assert_ok(sn_comm_threads_new(RANKS, &w.comms));
    assert_ok(sn_team_open(RANKS, NULL, &team));
    sn_team_run(team, RANKS, talk, &w);
    for (int r = 0; r < RANKS; r++) assert_true(w.good[r]);
    sn_team_close(team);
    sn_comm_threads_free(w.comms);
}

static void meshes(void **state) {
    (void)state;
    const sn_mesh m = sn_mesh_of((sn_mesh){.size = {[SN_MESH_DP] = 2, [SN_MESH_TP] = 3, [SN_MESH_PP] = 2}});
    assert_int_equal(sn_mesh_ranks(&m), 12);
    for (int r = 0; r < 12; r++) {
        int at[] = {sn_mesh_index(&m, r, SN_MESH_DP), sn_mesh_index(&m, r, SN_MESH_TP), sn_mesh_index(&m, r, SN_MESH_PP)};
        assert_int_equal((at[2] * 2 + at[0]) * 3 + at[1], r);
        assert_int_equal(sn_mesh_neighbour(&m, r, SN_MESH_TP, at[1]), r);
        assert_int_equal(sn_mesh_neighbour(&m, r, SN_MESH_TP, 2), (at[2] * 2 + at[0]) * 3 + 2);
        assert_int_equal(sn_mesh_neighbour(&m, r, SN_MESH_DP, 1 - at[0]), (at[2] * 2 + 1 - at[0]) * 3 + at[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups), cmocka_unit_test(meshes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
