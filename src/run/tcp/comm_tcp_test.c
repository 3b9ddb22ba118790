/* Processes over TCP on one machine: the bytes, and what is said when a rank is missing, gone, silent, twice there or at something else. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run/launch.h"
#include "support/support.h"

enum { MOST = 5, LARGE = 3000000 };

typedef int work(sn_comm *c); /* exit status */

typedef struct ranks {
    int n, port;
    pid_t pids[MOST + 1];
    FILE *errors[MOST + 1]; /* what each says on stderr */
    char text[1024];
} ranks;

static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !getsockname(fd, (struct sockaddr *)&a, &n));
    close(fd);
    return ntohs(a.sin_port);
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL); }

/* Process `slot` is `rank` of `size`. */
static void start(ranks *r, int slot, int rank, int size, double patience, double later, work *fn) {
    r->errors[slot] = tmpfile();
    assert_non_null(r->errors[slot]);
    if ((r->pids[slot] = fork())) return;
    dup2(fileno(r->errors[slot]), 2);
    const sn_launch l = {.rank = rank, .size = size, .from = "WORLD_SIZE", .address = "127.0.0.1", .port = r->port};
    sn_comm *c = NULL;
    if (sn_comm_tcp_open(&l, patience, &c) != SN_OK) {
        fprintf(stderr, "%s\n", sn_error_text());
        _exit(3);
    }
    c->patience = later;
    int status = fn(c);
    c->close(c, status != 0);
    _exit(status);
}

static void start_all(ranks *r, int n, double later, work *fn) {
    *r = (ranks){.n = n, .port = free_port()};
    for (int i = n - 1; i >= 0; i--) { /* rank 0 comes last */
        if (!i) pause_ms(80);
        start(r, i, i, n, 10, later, fn);
    }
}

/* The exit status of a process; r->text: what it said. */
static int end(ranks *r, int slot) {
    int status;
    assert_int_equal(waitpid(r->pids[slot], &status, 0), r->pids[slot]);
    rewind(r->errors[slot]);
    r->text[fread(r->text, 1, sizeof r->text - 1, r->errors[slot])] = 0;
    fclose(r->errors[slot]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void says(const ranks *r, const char *text) {
    if (!strstr(r->text, text)) fail_msg("wanted '%s', found '%s'", text, r->text);
}

static uint8_t byte_of(int from, int to, size_t i) { return (uint8_t)((size_t)from * 31 + (size_t)to * 7 + i * 13 + (i >> 8)); }

/* Sizes differ by rank; some are 0, some larger than any socket's buffer. */
static size_t size_of(int round, int rank) {
    static const size_t sizes[] = {0, 1, 63, 4096, LARGE, 100001};
    return sizes[(size_t)(round * 5 + rank * 3) % 6];
}

static int exchange(sn_comm *c) {
    uint8_t *send = malloc((size_t)MOST * LARGE), *room = malloc((size_t)MOST * LARGE);
    if (!send || !room) return 9;
    for (int round = 0; round < 12; round++) {
        size_t at[MOST + 1] = {0}, bytes[MOST];
        const void *pieces[MOST];
        for (int r = 0; r < c->size; r++) {
            bytes[r] = size_of(round, r);
            at[r + 1] = at[r] + bytes[r];
            for (size_t i = 0; i < bytes[r]; i++) send[at[r] + i] = byte_of(c->rank, r, i);
        }
        c->all_to_all(c, send, at, bytes, room, pieces);
        for (int r = 0; r < c->size; r++)
            for (size_t i = 0; i < bytes[c->rank]; i++)
                if (((const uint8_t *)pieces[r])[i] != byte_of(r, c->rank, i)) return 2;
        c->done(c);
        uint8_t *own = round % 2 ? room + at[c->rank] : send; /* in place, and not */
        for (size_t i = 0; i < bytes[c->rank]; i++) own[i] = byte_of(c->rank, 0, i);
        c->all_gather(c, own, at, room);
        for (int r = 0; r < c->size; r++)
            for (size_t i = 0; i < bytes[r]; i++)
                if (room[at[r] + i] != byte_of(r, 0, i)) return 4;
    }
    free(send);
    free(room);
    return 0;
}

static void moves_bytes(void **state) {
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        ranks r;
        start_all(&r, n, 20, exchange);
        for (int i = 0; i < n; i++) {
            int status = end(&r, i);
            if (status) fail_msg("%d ranks, rank %d: status %d: %s", n, i, status, r.text);
        }
    }
}

static void strangers_are_left_out(void **state) {
    (void)state;
    ranks r = {.n = 2, .port = free_port()};
    start(&r, 0, 0, 2, 10, 20, exchange);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)r.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    for (int i = 0; i < 2; i++) { /* one talks nonsense, one goes away at once */
        int fd = -1;
        for (int k = 0; k < 200; k++) {
            fd = socket(AF_INET, SOCK_STREAM, 0);
            if (!connect(fd, (struct sockaddr *)&a, sizeof a)) break;
            close(fd);
            pause_ms(10);
        }
        if (!i) assert_int_equal(send(fd, "GET / HTTP/1.1\r\nHost: somebody.example\r\n\r\n", 43, MSG_NOSIGNAL), 43);
        close(fd);
    }
    start(&r, 1, 1, 2, 10, 20, exchange);
    for (int i = 0; i < 2; i++) assert_int_equal(end(&r, i), 0);
}

static void refuses_who_does_not_fit(void **state) {
    (void)state;
    ranks r = {.n = 4, .port = free_port()};
    start(&r, 0, 0, 3, 10, 20, exchange);
    start(&r, 2, 2, 3, 10, 20, exchange);
    pause_ms(200); /* both are there, rank 1 is not */
    start(&r, 3, 1, 4, 10, 20, exchange);
    assert_int_equal(end(&r, 3), 3);
    says(&r, "rank 1 of 4 is refused by rank 0");
    says(&r, "it has 3 ranks");
    start(&r, 3, 2, 3, 10, 20, exchange);
    assert_int_equal(end(&r, 3), 3);
    says(&r, "there is a rank 2 already");
    start(&r, 1, 1, 3, 10, 20, exchange);
    for (int i = 0; i < 3; i++) assert_int_equal(end(&r, i), 0);
}

static void names_who_has_not_come(void **state) {
    (void)state;
    ranks r = {.n = 2, .port = free_port()};
    start(&r, 0, 0, 4, 0.6, 20, exchange);
    start(&r, 1, 2, 4, 10, 20, exchange);
    assert_int_equal(end(&r, 0), 3);
    says(&r, "rank 0 has waited 0.6 seconds at 127.0.0.1 port");
    says(&r, "these of 4 ranks have not come: 1 3");
    assert_int_equal(end(&r, 1), 3);
    says(&r, "rank 2: rank 0 at 127.0.0.1 port");
    start(&r, 0, 1, 2, 0.3, 20, exchange);
    assert_int_equal(end(&r, 0), 3);
    says(&r, "rank 1 cannot reach rank 0 at 127.0.0.1 port");
    says(&r, "Connection refused");
}

/* Four ranks as 2 x 2: each talks over its row and its column, and in a ring of all. */
static int groups(sn_comm *c) {
    const int row = c->rank / 2, column = c->rank % 2;
    sn_comm *across = c->group(c, (int[]){2 * row, 2 * row + 1}, 2), *down = c->group(c, (int[]){column, column + 2}, 2);
    if (!across || !down || across->rank != column || down->rank != row) return 2;
    for (int round = 0; round < 20; round++) {
        int pair[2] = {-1, -1}, own = 10 * c->rank + round, other = -1;
        const size_t at[] = {0, sizeof own, 2 * sizeof own};
        across->all_gather(across, &own, at, pair);
        if (pair[0] != 20 * row + round || pair[1] != 20 * row + 10 + round) return 4;
        down->all_gather(down, &own, at, pair);
        if (pair[0] != 10 * column + round || pair[1] != 10 * column + 20 + round) return 5;
        c->exchange(c, (c->rank + 1) % 4, &own, sizeof own, (c->rank + 3) % 4, &other, sizeof other);
        if (other != 10 * ((c->rank + 3) % 4) + round) return 6;
        down->exchange(down, 1 - row, &own, sizeof own, 1 - row, &other, sizeof other);
        if (other != 10 * (column + 2 * (1 - row)) + round) return 7;
        if (c->rank < 2)
            c->exchange(c, 1 - c->rank, &own, c->rank ? 0 : sizeof own, c->rank ? 0 : -1, &other,
                        sizeof other); /* one way, two ranks alone */
        if (c->rank == 1 && other != round) return 8;
        int all[4] = {0};
        c->all_gather(c, &own, (size_t[]){0, 4, 8, 12, 16}, all);
        for (int i = 0; i < 4; i++)
            if (all[i] != 10 * i + round) return 9;
    }
    return 0;
}

static void groups_of_ranks(void **state) {
    (void)state;
    ranks r;
    start_all(&r, 4, 20, groups);
    for (int i = 0; i < 4; i++) {
        int status = end(&r, i);
        if (status) fail_msg("rank %d: status %d: %s", i, status, r.text);
    }
}

static void gather(sn_comm *c, size_t bytes) {
    static char out[1 << 16];
    size_t at[MOST + 1];
    for (int i = 0; i <= c->size; i++) at[i] = (size_t)i * bytes;
    c->all_gather(c, out + at[c->rank], at, out);
}

static int dies(sn_comm *c) { /* rank 2 in the third collective; rank 1 notices later than rank 0 */
    for (int i = 0; i < 6; i++) {
        if (i == 2 && c->rank == 2) raise(SIGKILL);
        if (i == 2 && c->rank == 1) pause_ms(700);
        gather(c, 1000);
    }
    return 0;
}

static int stops(sn_comm *c) {
    for (int i = 0; i < 6; i++) {
        if (i == 2 && c->rank == 2) pause_ms(1500);
        gather(c, 1000);
    }
    return 0;
}

static int differs(sn_comm *c) {
    gather(c, 1000);
    gather(c, c->rank == 1 ? 1004 : 1000);
    return 0;
}

static void names_who_is_gone(void **state) {
    (void)state;
    ranks r;
    start_all(&r, 3, 20, dies);
    assert_int_equal(end(&r, 2), -SIGKILL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(end(&r, i), 1);
        says(&r, "rank 2 is gone");
        says(&r, "in collective 3");
    }
}

static void names_who_is_silent(void **state) {
    (void)state;
    ranks r;
    start_all(&r, 3, 0.5, stops);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(end(&r, i), 1);
        if (strstr(r.text, "no word")) says(&r, "no word for 0.5 seconds (rank_timeout), in collective 3, from rank 2");
        else says(&r, "rank 2 is gone or silent");
    }
    assert_int_equal(end(&r, 2), 1);
}

static void names_who_differs(void **state) {
    (void)state;
    ranks r;
    int found = 0;
    start_all(&r, 2, 20, differs);
    for (int i = 0; i < 2; i++) { /* one finds out, the other at the same time or from that one */
        assert_int_equal(end(&r, i), 1);
        found += strstr(r.text, "is at collective 2") && strstr(r.text, i ? "of which it sent 1000" : "of which it sent 1004");
        if (!strstr(r.text, "is at collective 2")) says(&r, "has given up on this one");
    }
    assert_true(found >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(moves_bytes),
                                       cmocka_unit_test(groups_of_ranks),
                                       cmocka_unit_test(strangers_are_left_out),
                                       cmocka_unit_test(refuses_who_does_not_fit),
                                       cmocka_unit_test(names_who_has_not_come),
                                       cmocka_unit_test(names_who_is_gone),
                                       cmocka_unit_test(names_who_is_silent),
                                       cmocka_unit_test(names_who_differs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
