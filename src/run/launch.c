#define _GNU_SOURCE
#include "run/launch.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *rank, *size;
} launchers[] = {{"RANK", "WORLD_SIZE"},
                 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"PMI_RANK", "PMI_SIZE"},
                 {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

/* *out keeps its value where the variable is unset or empty. */
static sn_status read_number(const char *name, int *out) {
    const char *text = getenv(name);
    if (!text || !*text) return SN_OK;
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 0 || n > 1 << 20) return sn_fail(SN_ERR_USAGE, "%s is '%s', wanted a number of a launcher", name, text);
    *out = (int)n;
    return SN_OK;
}

/* Where rank 0 listens, if the launch says so. */
static sn_status find_address(sn_launch *l) {
    const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (!address || !*address || !port || !*port) return SN_OK;
    SN_TRY(read_number("MASTER_PORT", &l->port));
    if (agent && !strcmp(agent, "True")) l->port++;
    if (l->port < 1 || l->port > 65535) return sn_fail(SN_ERR_USAGE, "MASTER_PORT is '%s', wanted a port", port);
    l->address = address;
    return SN_OK;
}

sn_status sn_launch_find(sn_launch *out) {
    *out = (sn_launch){.size = 1};
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        int rank = -1, size = 0;
        SN_TRY(read_number(launchers[i].rank, &rank));
        SN_TRY(read_number(launchers[i].size, &size));
        if (size <= 1 || rank < 0) continue;
        if (rank >= size || size > SN_RANKS_MOST)
            return sn_fail(SN_ERR_USAGE, "%s is %d and %s is %d: wanted a rank below a size of at most %d", launchers[i].rank, rank,
                           launchers[i].size, size, SN_RANKS_MOST);
        int local = 0, locals = size;
        SN_TRY(read_number("LOCAL_RANK", &local));
        SN_TRY(read_number("LOCAL_WORLD_SIZE", &locals));
        if (i == 0 && (local >= locals || locals > size))
            return sn_fail(SN_ERR_USAGE, "LOCAL_RANK is %d of %d, and WORLD_SIZE is %d", local, locals, size);
        *out = (sn_launch){.rank = rank, .size = size, .from = launchers[i].size};
        return find_address(out);
    }
    return SN_OK;
}

/* The folder of the program (own false), or of the shared library that holds this function. */
static bool folder_of(bool own, char *folder, size_t size) {
    Dl_info info;
    ssize_t n = own ? -1 : readlink("/proc/self/exe", folder, size - 1);
    if (own && dladdr((void *)(uintptr_t)&sn_launch_find, &info) && info.dli_fname && strlen(info.dli_fname) < size)
        n = (ssize_t)strlen(strcpy(folder, info.dli_fname));
    if (n < 0) return false;
    folder[n] = 0;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    return slash != NULL;
}

static void *load_module(void) {
    const char *named = getenv("SNUG_MPI_MODULE");
    if (named && *named) return dlopen(named, RTLD_NOW | RTLD_GLOBAL);
    char folder[1024], path[1100];
    for (int i = 0; i < 4; i++) {
        if (!folder_of(i % 2, folder, sizeof folder)) continue;
        snprintf(path, sizeof path, i < 2 ? "%s/snug_mpi.so" : "%s/../lib/snug/snug_mpi.so", folder);
        if (!access(path, R_OK)) return dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI's own plugins look for its symbols */
    }
    return NULL;
}

sn_status sn_comm_mpi_open(const sn_launch *launch, sn_comm **out) {
    char text[256] = "";
    void *module = load_module();
    const char *why = module ? NULL : dlerror();
    if (!module)
        return sn_fail(SN_ERR_UNSUPPORTED, "%s says that there are %d processes, and this build has no MPI to join them (%s)", launch->from,
                       launch->size, why ? why : "no snug_mpi.so beside the program; build it where MPI is installed");
    sn_mpi_open_fn *open = (sn_mpi_open_fn *)(uintptr_t)dlsym(module, "snug_mpi_open");
    if (!open) return sn_fail(SN_ERR_UNSUPPORTED, "snug_mpi.so is of another program: it has no snug_mpi_open");
    why = open(launch->rank, launch->size, out, text);
    return why ? sn_fail(SN_ERR_USAGE, "%s says that this is rank %d of %d processes: %s", launch->from, launch->rank, launch->size, why)
               : SN_OK;
}
