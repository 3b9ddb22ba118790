#define _GNU_SOURCE
#include "engine/world.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/system.h"

/* Before step 0 ranks may wait long for one that reads a data set for the first time. */
enum { START_PATIENCE = 6 * 3600, WARM_BYTES = 1 << 20 };

/* Moves enough bytes between all ranks that the library has made its buffers. */
static sn_status warm(sn_comm *c) {
    size_t at[SN_RANKS_MOST + 1];
    for (int r = 0; r <= c->size; r++) at[r] = (size_t)r * (WARM_BYTES / (size_t)c->size);
    char *out = sn_alloc_zero(1, WARM_BYTES);
    if (!out) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %d bytes", WARM_BYTES);
    c->all_gather(c, out + at[c->rank], at, out);
    sn_free(out);
    return SN_OK;
}

/* Where a rank may run. */
typedef struct place {
    uint64_t host;
    cpu_set_t cpus;
} place;

static uint64_t hash(uint64_t h, const char *text) { /* FNV-1a */
    for (; *text; text++) h = (h ^ (uint8_t)*text) * 0x100000001b3;
    return h;
}

/* The name, and what the kernel drew at its start: containers of one machine may share either. */
static uint64_t host(void) {
    char name[256] = "", *id = NULL;
    size_t n;
    gethostname(name, sizeof name - 1);
    uint64_t h = hash(0xcbf29ce484222325, name);
    if (sn_file_read_all("/proc/sys/kernel/random/boot_id", 64, &id, &n) == SN_OK) h = hash(h, id);
    sn_free(id);
    return h;
}

/* Runs of ranks of one machine, as long each as the first, no two of the same machine; 0: it is otherwise. */
static int count_nodes(const place *all, int n) {
    int run = 1;
    while (run < n && all[run].host == all[0].host) run++;
    for (int r = 0; r < n; r++)
        for (int k = 0; k < r; k++)
            if ((all[k].host == all[r].host) != (k / run == r / run)) return 0;
    return n % run ? 0 : n / run;
}

/* Who is on this machine, and who shares its processors. */
static sn_status find_neighbours(sn_world *w) {
    place own = {.host = host()}, *all = sn_alloc_zero((size_t)w->size, sizeof *all);
    int online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (!all) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the ranks");
    if (sched_getaffinity(0, sizeof own.cpus, &own.cpus)) CPU_SET(0, &own.cpus);
    sn_world_gather(w, &own, sizeof own, all);
    w->local = w->sharing = 0;
    for (int r = 0; r < w->size; r++) {
        cpu_set_t both;
        CPU_AND(&both, &own.cpus, &all[r].cpus);
        w->local += all[r].host == own.host;
        w->sharing += all[r].host == own.host && CPU_COUNT(&both) > 0;
    }
    w->nodes = count_nodes(all, w->size);
    if (w->local && CPU_COUNT(&own.cpus) < online / w->local)
        sn_warn("the launcher has bound this rank to %d of %d processors; with Open MPI, --bind-to none gives it its share of all",
                CPU_COUNT(&own.cpus), online);
    sn_free(all);
    return SN_OK;
}

static sn_status measure(sn_world *w, uint64_t before) {
    uint64_t all[SN_RANKS_MOST], after, grown;
    SN_TRY(warm(w->comm));
    after = sn_rss_bytes();
    grown = after > before ? after - before : 0;
    sn_world_gather(w, &grown, sizeof grown, all);
    for (int r = 0; r < w->size; r++)
        if (all[r] > w->reserved) w->reserved = all[r];
    return SN_OK;
}

sn_status sn_world_open(const sn_options *recipe, sn_world *out) {
    sn_launch launch;
    *out = (sn_world){.size = 1, .local = 1, .nodes = 1, .sharing = 1};
    SN_TRY(sn_launch_find(&launch));
    if (launch.size == 1) return SN_OK;
    if (sn_options_int(recipe, "thread_ranks") > 1)
        return sn_fail(SN_ERR_USAGE, "thread_ranks is %lld, but %s says that there are %d processes already, a rank each",
                       (long long)sn_options_int(recipe, "thread_ranks"), launch.from, launch.size);
    uint64_t before = sn_rss_bytes();
    if (launch.address) SN_TRY(sn_comm_tcp_open(&launch, sn_options_float(recipe, "rank_timeout"), &out->comm));
    else SN_TRY(sn_comm_mpi_open(&launch, &out->comm));
    out->rank = launch.rank;
    out->size = launch.size;
    out->comm->patience = START_PATIENCE;
    if (out->rank) sn_log_set_level(SN_LOG_NONE);
    SN_TRY(find_neighbours(out));
    return measure(out, before);
}

void sn_world_close(sn_world *w, bool failed) {
    if (w->comm) w->comm->close(w->comm, failed);
    w->comm = NULL;
}

void sn_world_gather(const sn_world *w, const void *mine, size_t bytes, void *all) {
    size_t at[SN_RANKS_MOST + 1];
    for (int r = 0; r <= w->size; r++) at[r] = (size_t)r * bytes;
    if (w->comm) w->comm->all_gather(w->comm, mine, at, all);
    else memcpy(all, mine, bytes);
}

void sn_world_share(const sn_world *w, void *data, size_t bytes) {
    size_t at[SN_RANKS_MOST + 1] = {0};
    for (int r = 1; r <= w->size; r++) at[r] = bytes;
    if (w->comm) w->comm->all_gather(w->comm, data, at, data);
}

sn_status sn_world_agree(const sn_world *w, sn_status mine) {
    int32_t all[SN_RANKS_MOST], own = (int32_t)mine;
    if (!w->comm) return mine;
    sn_world_gather(w, &own, sizeof own, all);
    for (int r = 0; mine == SN_OK && r < w->size; r++)
        if (all[r] != SN_OK) return sn_fail((sn_status)all[r], "rank %d failed (%s)", r, sn_status_name((sn_status)all[r]));
    return mine;
}

sn_status sn_world_compare(const sn_world *w, const sn_options *recipe) {
    size_t n = 0;
    sn_str value = {0};
    if (!w->comm) return SN_OK;
    while (sn_options_entry(recipe, n, &value)) n++;
    const uint64_t count = n;
    uint64_t counts[SN_RANKS_MOST];
    sn_world_gather(w, &count, sizeof count, counts);
    for (int r = 1; r < w->size; r++)
        if (counts[r] != counts[0]) return sn_fail(SN_ERR_USAGE, "rank %d is another version of snug than rank 0", r);
    uint64_t *all = sn_alloc_zero((size_t)w->size + 1, n * sizeof *all), *own = all ? all + n * (size_t)w->size : NULL;
    sn_status s = sn_world_agree(w, all ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot compare the options of the ranks"));
    for (size_t i = 0; s == SN_OK && i < n; i++) {
        sn_str_clear(&value);
        const sn_option *o = sn_options_entry(recipe, i, &value);
        own[i] = o->by_rank ? 0 : hash(hash(0xcbf29ce484222325, o->key), value.data ? value.data : "");
    }
    if (s == SN_OK) sn_world_gather(w, own, n * sizeof *own, all);
    for (int r = 1; s == SN_OK && r < w->size; r++)
        for (size_t i = 0; s == SN_OK && i < n; i++) {
            if (all[(size_t)r * n + i] == all[i]) continue;
            sn_str_clear(&value);
            const sn_option *o = sn_options_entry(recipe, i, &value);
            s = sn_fail(SN_ERR_USAGE, "rank %d has another %s than rank 0 (here: %s)", r, o->key,
                        value.data && *value.data ? value.data : "not set");
        }
    sn_str_free(&value);
    sn_free(all);
    return s;
}

uint64_t sn_world_least(const sn_world *w, uint64_t mine) {
    uint64_t all[SN_RANKS_MOST];
    sn_world_gather(w, &mine, sizeof mine, all);
    for (int r = 0; r < w->size; r++)
        if (all[r] < mine) mine = all[r];
    return mine;
}

/* Rank 0 leaves a file of a name that only this job knows; the others look for it. */
sn_status sn_world_make_dirs(const sn_world *w, const char *path) {
    if (!w->comm) return sn_make_dirs(path);
    char name[64] = "", *file;
    sn_status s = SN_OK;
    if (!w->rank) {
        snprintf(name, sizeof name, ".ranks-%ld-%lld", (long)getpid(), (long long)time(NULL));
        s = sn_make_dirs(path);
    }
    sn_world_share(w, name, sizeof name);
    if (!(file = sn_path_join(path, name))) s = sn_fail(SN_ERR_NO_MEMORY, "cannot join a path");
    if (s == SN_OK && !w->rank) s = sn_file_replace(file, name, strlen(name));
    s = sn_world_agree(w, s);
    if (s == SN_OK && !sn_path_exists(file))
        s = sn_fail(SN_ERR_FILE, "%s is not the folder that rank 0 has made: every rank has to see the same one", path);
    s = sn_world_agree(w, s);
    if (!w->rank && file) unlink(file);
    sn_free(file);
    return s;
}
