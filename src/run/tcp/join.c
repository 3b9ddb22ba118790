/* How ranks find each other. Rank 0 listens where the launch says. Each other rank listens on a port of its own, says to rank 0
 * which, and gets the addresses of all; it then connects to the ranks below its own, and those above connect to it. A number that
 * rank 0 draws keeps strangers and other jobs apart; it is no password: whoever reaches the port can join. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/system.h"
#include "run/tcp/tcp.h"

enum { HELLO_SECONDS = 5, AGAIN_NS = 50000000 };
static const char magic[8] = "snugtcp1";

typedef struct hello {
    char magic[8];
    uint32_t rank, size, port, unused;
    uint64_t token; /* to rank 0: 0 */
} hello;

typedef struct welcome {
    char magic[8];
    uint32_t size, answer;
    uint64_t token;
} welcome;
enum { JOINED, OTHER_SIZE, NO_SUCH_RANK, HERE_ALREADY };

/* A rank's listening socket. A loopback address is one on rank 0's machine. */
typedef struct place {
    uint16_t family, port; /* AF_INET, AF_INET6; host order */
    uint8_t address[16];
    uint32_t scope;
} place;

typedef union any_address {
    struct sockaddr_storage storage;
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} any_address;

typedef struct joining {
    const sn_launch *launch;
    int *fds;
    double patience, until; /* seconds; when that is over; 0: for ever */
    bool local;             /* all ranks are on this machine, as the address says */
} joining;

static double left(const joining *j) { return j->until > 0 ? j->until - sn_now() : 3600; }

static void time_limit(int fd, double seconds) {
    struct timeval t = {.tv_sec = (time_t)seconds, .tv_usec = (suseconds_t)(1e6 * (seconds - (double)(time_t)seconds))};
    if (seconds > 0 && !t.tv_sec && !t.tv_usec) t.tv_usec = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

static void limit_to_left(const joining *j, int fd) {
    const double t = left(j);
    time_limit(fd, t > 0 ? t : 0.1);
}

static hello hello_of(const joining *j, uint64_t token) {
    hello h = {.rank = (uint32_t)j->launch->rank, .size = (uint32_t)j->launch->size, .token = token};
    memcpy(h.magic, magic, sizeof magic);
    return h;
}

static bool send_all(int fd, const void *data, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)data + at, n - at, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += (size_t)k;
    }
    return true;
}

static bool receive_all(int fd, void *data, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t k = recv(fd, (char *)data + at, n - at, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            if (!k) errno = ECONNRESET;
            return false;
        }
        at += (size_t)k;
    }
    return true;
}

static place place_of(const any_address *a, uint16_t port) {
    place p = {.family = a->any.sa_family, .port = port};
    if (a->any.sa_family == AF_INET) memcpy(p.address, &a->v4.sin_addr, 4);
    else if (IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr)) {
        p.family = AF_INET;
        memcpy(p.address, a->v6.sin6_addr.s6_addr + 12, 4);
    } else {
        memcpy(p.address, &a->v6.sin6_addr, 16);
        p.scope = a->v6.sin6_scope_id;
    }
    return p;
}

static bool is_loopback(const place *p) {
    return p->family == AF_INET ? p->address[0] == 127 : !memcmp(p->address, &in6addr_loopback, sizeof in6addr_loopback);
}

static socklen_t address_of(const place *p, any_address *a) {
    memset(a, 0, sizeof *a);
    if (p->family == AF_INET) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons(p->port);
        memcpy(&a->v4.sin_addr, p->address, 4);
        return sizeof a->v4;
    }
    a->v6.sin6_family = AF_INET6;
    a->v6.sin6_port = htons(p->port);
    a->v6.sin6_scope_id = p->scope;
    memcpy(&a->v6.sin6_addr, p->address, 16);
    return sizeof a->v6;
}

/* port 0: any that is free. */
static int try_listen(int family, bool local, int port, int backlog) {
    any_address a;
    place p = {.family = (uint16_t)family, .port = (uint16_t)port};
    if (local && family == AF_INET) p.address[0] = 127, p.address[3] = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, no = 0;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (!bind(fd, &a.any, address_of(&p, &a)) && !listen(fd, backlog)) return fd;
    int kept = errno;
    close(fd);
    errno = kept;
    return -1;
}

static sn_status open_listener(const joining *j, int port, int *fd) {
    const sn_launch *l = j->launch;
    *fd = j->local ? -1 : try_listen(AF_INET6, false, port, l->size);
    if (*fd < 0) *fd = try_listen(AF_INET, j->local, port, l->size);
    return *fd < 0 ? sn_fail(SN_ERR_NETWORK, "rank %d cannot listen on port %d (MASTER_PORT): %s", l->rank, port, strerror(errno)) : SN_OK;
}

/* The next connection; SN_ERR_NETWORK when nobody comes in time. */
static sn_status accept_next(const joining *j, int listener, int *fd) {
    for (;;) {
        const double t = left(j);
        if (t <= 0) return SN_ERR_NETWORK;
        time_limit(listener, t < 3600 ? t : 3600);
        if ((*fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) return SN_OK;
        if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
            return sn_fail(SN_ERR_NETWORK, "rank %d cannot accept connections: %s", j->launch->rank, strerror(errno));
    }
}

/* Ranks first .. that are missing, after a wait in vain. */
static sn_status not_come(const joining *j, int first) {
    char text[256];
    int n = 0;
    for (int r = first; r < j->launch->size && n < (int)sizeof text - 16; r++)
        if (j->fds[r] < 0 && r != j->launch->rank) n += snprintf(text + n, sizeof text - (size_t)n, " %d", r);
    return sn_fail(SN_ERR_NETWORK, "rank %d has waited %g seconds at %s port %d: these of %d ranks have not come:%s", j->launch->rank,
                   j->patience, j->launch->address, j->launch->port, j->launch->size, text);
}

/* Whose connection this is, or -1: a stranger's. */
static int greet(int fd, hello *h) {
    time_limit(fd, HELLO_SECONDS);
    return receive_all(fd, h, sizeof *h) && !memcmp(h->magic, magic, sizeof magic) && h->port <= 65535 ? (int)(h->rank % SN_RANKS_MOST)
                                                                                                       : -1;
}

static sn_status lead(const joining *j) {
    const int size = j->launch->size;
    welcome w = {.size = (uint32_t)size};
    place *places = sn_alloc_zero((size_t)size, sizeof *places);
    int listener = -1;
    sn_status s = places ? open_listener(j, j->launch->port, &listener) : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the ranks");
    memcpy(w.magic, magic, sizeof magic);
    if (getrandom(&w.token, sizeof w.token, 0) != sizeof w.token) w.token = (uint64_t)getpid() << 32 | (uint64_t)time(NULL);
    for (int joined = 1, fd; s == SN_OK && joined < size;) {
        hello h;
        any_address from;
        socklen_t n = sizeof from;
        if ((s = accept_next(j, listener, &fd)) != SN_OK) {
            s = not_come(j, 1);
            break;
        }
        int r = greet(fd, &h);
        welcome no = {.size = w.size,
                      .answer = h.size != w.size                 ? OTHER_SIZE
                                : h.rank < 1 || h.rank >= w.size ? NO_SUCH_RANK
                                : j->fds[r] >= 0                 ? HERE_ALREADY
                                                                 : JOINED};
        memcpy(no.magic, magic, sizeof magic);
        if (r >= 0 && no.answer == JOINED && !getpeername(fd, &from.any, &n)) {
            places[r] = place_of(&from, (uint16_t)h.port);
            j->fds[r] = fd;
            joined++;
            continue;
        }
        if (r >= 0) send_all(fd, &no, sizeof no);
        close(fd);
    }
    for (int r = 1; s == SN_OK && r < size; r++)
        if (!send_all(j->fds[r], &w, sizeof w) || !send_all(j->fds[r], places, (size_t)size * sizeof *places))
            s = sn_fail(SN_ERR_NETWORK, "rank %d has joined and is gone: %s", r, strerror(errno));
    if (listener >= 0) close(listener);
    sn_free(places);
    return s;
}

/* A connection to rank 0, which may not be there yet. */
static sn_status reach(const joining *j, int *out) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const char *address = j->local ? "127.0.0.1" : j->launch->address; /* where open_listener listens, whatever /etc/hosts says */
    char port[16], why[160] = "";
    snprintf(port, sizeof port, "%d", j->launch->port);
    do {
        struct addrinfo *found = NULL;
        int bad = getaddrinfo(address, port, &hints, &found);
        if (bad) snprintf(why, sizeof why, "%s", gai_strerror(bad));
        for (const struct addrinfo *a = found; a; a = a->ai_next) {
            int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (fd < 0) continue;
            limit_to_left(j, fd);
            if (!connect(fd, a->ai_addr, a->ai_addrlen)) {
                freeaddrinfo(found);
                *out = fd;
                return SN_OK;
            }
            snprintf(why, sizeof why, "%s", strerror(errno));
            close(fd);
        }
        if (found) freeaddrinfo(found);
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
    } while (left(j) > 0);
    return sn_fail(SN_ERR_NETWORK, "rank %d cannot reach rank 0 at %s port %d (MASTER_ADDR, MASTER_PORT) within %g seconds: %s",
                   j->launch->rank, j->launch->address, j->launch->port, j->patience, why);
}

/* This rank's word to rank 0, and what comes back. */
static sn_status introduce(const joining *j, int listener, welcome *w, place *places) {
    const sn_launch *l = j->launch;
    any_address own;
    socklen_t n = sizeof own;
    hello h = hello_of(j, 0);
    if (getsockname(listener, &own.any, &n)) return sn_fail(SN_ERR_NETWORK, "rank %d has no port: %s", l->rank, strerror(errno));
    h.port = ntohs(own.any.sa_family == AF_INET ? own.v4.sin_port : own.v6.sin6_port);
    limit_to_left(j, j->fds[0]);
    if (!send_all(j->fds[0], &h, sizeof h) || !receive_all(j->fds[0], w, sizeof *w))
        return sn_fail(SN_ERR_NETWORK, "rank %d: rank 0 at %s port %d has not answered: %s", l->rank, l->address, l->port, strerror(errno));
    if (memcmp(w->magic, magic, sizeof magic))
        return sn_fail(SN_ERR_NETWORK, "rank %d: what listens at %s port %d is not snug's rank 0", l->rank, l->address, l->port);
    if (w->answer > JOINED && w->answer <= HERE_ALREADY) {
        char why[64];
        if (w->answer == HERE_ALREADY) snprintf(why, sizeof why, "there is a rank %d already", l->rank);
        else snprintf(why, sizeof why, "it has %u ranks", w->size);
        return sn_fail(SN_ERR_USAGE, "rank %d of %d is refused by rank 0 at %s port %d: %s", l->rank, l->size, l->address, l->port, why);
    }
    if (w->size != (uint32_t)l->size || !receive_all(j->fds[0], places, w->size * sizeof *places))
        return sn_fail(SN_ERR_NETWORK, "rank %d: rank 0 at %s port %d has ended", l->rank, l->address, l->port);
    return SN_OK;
}

static sn_status connect_to(const joining *j, int r, place p, uint64_t token) {
    any_address a;
    socklen_t n = sizeof a;
    const hello h = hello_of(j, token);
    if (is_loopback(&p) && !getpeername(j->fds[0], &a.any, &n)) p = place_of(&a, p.port); /* where this rank sees rank 0's machine */
    n = address_of(&p, &a);
    if ((j->fds[r] = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0) limit_to_left(j, j->fds[r]);
    if (j->fds[r] < 0 || connect(j->fds[r], &a.any, n) || !send_all(j->fds[r], &h, sizeof h)) {
        char text[INET6_ADDRSTRLEN] = "";
        int kept = errno;
        inet_ntop(p.family, p.address, text, sizeof text);
        return sn_fail(SN_ERR_NETWORK, "rank %d cannot reach rank %d at %s port %d: %s", j->launch->rank, r, text, p.port, strerror(kept));
    }
    return SN_OK;
}

static sn_status follow(const joining *j) {
    const int size = j->launch->size, rank = j->launch->rank;
    welcome w;
    place *places = sn_alloc_zero((size_t)size, sizeof *places);
    int listener = -1;
    sn_status s = places ? open_listener(j, 0, &listener) : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the ranks");
    if (s == SN_OK) s = reach(j, &j->fds[0]);
    if (s == SN_OK) s = introduce(j, listener, &w, places);
    for (int r = 1; s == SN_OK && r < rank; r++) s = connect_to(j, r, places[r], w.token);
    for (int wanted = size - rank - 1, fd; s == SN_OK && wanted > 0;) {
        hello h;
        if ((s = accept_next(j, listener, &fd)) != SN_OK) {
            s = not_come(j, rank + 1);
            break;
        }
        int r = greet(fd, &h);
        if (r > rank && r < size && h.token == w.token && j->fds[r] < 0) {
            j->fds[r] = fd;
            wanted--;
        } else close(fd);
    }
    if (listener >= 0) close(listener);
    sn_free(places);
    return s;
}

sn_status sn_tcp_join(const sn_launch *launch, double patience, int *fds) {
    const char *a = launch->address;
    joining j = {.launch = launch,
                 .fds = fds,
                 .patience = patience,
                 .until = patience > 0 ? sn_now() + patience : 0,
                 .local = !strcmp(a, "localhost") || !strncmp(a, "127.", 4)};
    sn_status s = launch->rank ? follow(&j) : lead(&j);
    for (int r = 0; s == SN_OK && r < launch->size; r++) {
        int yes = 1;
        if (fds[r] < 0) continue;
        time_limit(fds[r], 0);
        setsockopt(fds[r], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        setsockopt(fds[r], SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
        if (fcntl(fds[r], F_SETFL, O_NONBLOCK)) s = sn_fail(SN_ERR_NETWORK, "rank %d: %s", launch->rank, strerror(errno));
    }
    return s;
}
