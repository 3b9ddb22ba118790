#define _GNU_SOURCE
#include "base/team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/futex.h"
#include "base/mem.h"

enum { SPINS = 20000, STACK_BYTES = 512 * 1024, MOST_TASKS = 1 << 30 };

typedef struct member {
    sn_team *team;
    int index, cpu;
    pthread_t thread;
} member;

struct sn_team {
    int size, started;
    member *members;
    /* The call at work. A member that wakes late finds no task left and touches nothing: a task is claimed by one
     * compare-and-swap on the round and the next index together, so it is never taken for another call's. The caller waits
     * for the tasks, not for the members. */
    _Atomic(sn_task_fn) fn;
    _Atomic(void *) context;
    atomic_bool forbids; /* the caller may not allocate, so neither may its members */
    atomic_uint n_tasks;
    _Alignas(64) atomic_uint round;    /* raised once for each call; futex word */
    _Alignas(64) atomic_ullong ticket; /* round << 32 | next task */
    _Alignas(64) atomic_uint done;     /* tasks that have ended; futex word */
    atomic_bool stop;
};

static void run_tasks(sn_team *t, int index) {
    for (;;) {
        unsigned long long ticket = atomic_load_explicit(&t->ticket, memory_order_acquire);
        unsigned task = (unsigned)ticket, n = atomic_load_explicit(&t->n_tasks, memory_order_acquire);
        sn_task_fn fn = atomic_load_explicit(&t->fn, memory_order_relaxed);
        void *context = atomic_load_explicit(&t->context, memory_order_relaxed);
        if (task >= n) return;
        if (!atomic_compare_exchange_weak_explicit(&t->ticket, &ticket, ticket + 1, memory_order_acq_rel, memory_order_acquire)) continue;
        bool before = sn_alloc_forbid(atomic_load_explicit(&t->forbids, memory_order_relaxed));
        fn(context, task, index);
        sn_alloc_forbid(before);
        if (atomic_fetch_add_explicit(&t->done, 1, memory_order_acq_rel) + 1 == n && index != 0) sn_futex_wake(&t->done);
    }
}

static void *member_main(void *arg) {
    member *m = arg;
    sn_team *t = m->team;
    if (m->cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)m->cpu, &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
    unsigned seen = 0;
    for (;;) {
        sn_wait_while(&t->round, seen, SPINS);
        seen = atomic_load_explicit(&t->round, memory_order_acquire);
        if (atomic_load(&t->stop)) return NULL;
        run_tasks(t, m->index);
    }
}

sn_status sn_team_open(int n_threads, const int *cpus, sn_team **out) {
    *out = NULL;
    if (n_threads < 1) return sn_fail(SN_ERR_USAGE, "a team needs at least one thread, not %d", n_threads);
    sn_team *t = sn_alloc_zero(1, sizeof *t);
    if (t) t->members = sn_alloc_zero((size_t)n_threads, sizeof *t->members);
    if (!t || !t->members) {
        sn_free(t);
        return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a team of %d threads", n_threads);
    }
    t->size = n_threads;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (int i = 1; i < n_threads; i++) {
        t->members[i] = (member){.team = t, .index = i, .cpu = cpus ? cpus[i] : -1};
        if (pthread_create(&t->members[i].thread, &attr, member_main, &t->members[i])) {
            pthread_attr_destroy(&attr);
            sn_team_close(t);
            return sn_fail(SN_ERR_NO_MEMORY, "cannot start thread %d of %d", i, n_threads);
        }
        t->started = i;
    }
    pthread_attr_destroy(&attr);
    *out = t;
    return SN_OK;
}

void sn_team_close(sn_team *t) {
    if (!t) return;
    atomic_store(&t->stop, true);
    atomic_fetch_add(&t->round, 1);
    sn_futex_wake(&t->round);
    for (int i = 1; i <= t->started; i++) pthread_join(t->members[i].thread, NULL);
    sn_free(t->members);
    sn_free(t);
}

int sn_team_size(const sn_team *t) { return t ? t->size : 1; }

typedef struct slice {
    sn_task_fn fn;
    void *context;
    int64_t first;
} slice;

static void run_slice(void *context, int64_t task, int index) {
    const slice *s = context;
    s->fn(s->context, s->first + task, index);
}

static void run_round(sn_team *t, unsigned n, sn_task_fn fn, void *context) {
    unsigned long long round = atomic_load_explicit(&t->round, memory_order_relaxed) + 1u;
    /* The old ticket goes first: who still holds it and already sees the new call's number of tasks must not claim one. */
    atomic_store_explicit(&t->ticket, round << 32 | UINT32_MAX, memory_order_relaxed);
    atomic_store_explicit(&t->n_tasks, n, memory_order_release);
    atomic_store_explicit(&t->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&t->context, context, memory_order_relaxed);
    atomic_store_explicit(&t->forbids, sn_alloc_is_forbidden(), memory_order_relaxed);
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->ticket, round << 32, memory_order_release);
    atomic_fetch_add_explicit(&t->round, 1, memory_order_release);
    sn_futex_wake(&t->round);
    run_tasks(t, 0);
    for (unsigned ended; (ended = atomic_load_explicit(&t->done, memory_order_acquire)) != n;) sn_wait_while(&t->done, ended, SPINS);
}

void sn_team_run(sn_team *t, int64_t n_tasks, sn_task_fn fn, void *context) {
    if (!t || t->size == 1 || n_tasks <= 1) {
        for (int64_t i = 0; i < n_tasks; i++) fn(context, i, 0);
        return;
    }
    for (int64_t first = 0; first < n_tasks; first += MOST_TASKS) { /* one round but for absurd numbers of tasks */
        slice part = {fn, context, first};
        unsigned n = (unsigned)(n_tasks - first < MOST_TASKS ? n_tasks - first : MOST_TASKS);
        run_round(t, n, first ? run_slice : fn, first ? (void *)&part : context);
    }
}

/* A cgroup's quota, "max 100000" or "150000 100000" (v2), or two files (v1); 0 when there is none. */
static int cgroup_cpus(void) {
    long quota = 0, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f) {
        if (fscanf(f, "%ld %ld", &quota, &period) != 2) quota = 0;
        fclose(f);
    } else {
        if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r"))) {
            if (fscanf(f, "%ld", &quota) != 1) quota = 0;
            fclose(f);
        }
        if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r"))) {
            if (fscanf(f, "%ld", &period) != 1) period = 0;
            fclose(f);
        }
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int sn_cpu_count(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int quota = cgroup_cpus();
    if (quota > 0 && quota < n) n = quota;
    return n > 0 ? n : 1;
}
