#define _GNU_SOURCE
#include "run/launch.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct names {
    const char *rank, *size, *local_rank, *local_size;
} names;

static const names launchers[] = {{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
                                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                  {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                                  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL}};

/* *out keeps its value where the variable is unset or empty. */
static sn_status read_number(const char *name, int *out) {
    const char *text = name ? getenv(name) : NULL;
    if (!text || !*text) return SN_OK;
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 0 || n > 1 << 20) return sn_fail(SN_ERR_USAGE, "%s is '%s', wanted a number of a launcher", name, text);
    *out = (int)n;
    return SN_OK;
}

/* SLURM_STEP_TASKS_PER_NODE is "2(x3),1": two tasks on each of three nodes, one on the next. */
static int slurm_local_size(int otherwise) {
    const char *text = getenv("SLURM_STEP_TASKS_PER_NODE");
    int node = 0;
    if (read_number("SLURM_NODEID", &node) != SN_OK) return otherwise;
    while (text && *text) {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (end == text) return otherwise;
        if (end[0] == '(' && end[1] == 'x') times = strtol(end + 2, &end, 10);
        if (*end == ')') end++;
        if (node < times) return tasks > 0 ? (int)tasks : otherwise;
        node -= (int)times;
        text = *end == ',' ? end + 1 : "";
    }
    return otherwise;
}

sn_status sn_launch_find(sn_launch *out) {
    *out = (sn_launch){.size = 1, .local_size = 1};
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const names *n = &launchers[i];
        int rank = -1, size = 0;
        SN_TRY(read_number(n->rank, &rank));
        SN_TRY(read_number(n->size, &size));
        if (size <= 1 || rank < 0) continue;
        if (rank >= size || size > SN_RANKS_MOST)
            return sn_fail(SN_ERR_USAGE, "%s is %d and %s is %d: wanted a rank below a size of at most %d", n->rank, rank, n->size, size, SN_RANKS_MOST);
        *out = (sn_launch){.rank = rank, .size = size, .local_rank = rank, .local_size = size, .from = n->size};
        SN_TRY(read_number(n->local_rank, &out->local_rank));
        SN_TRY(read_number(n->local_size, &out->local_size));
        if (!n->local_size) out->local_size = slurm_local_size(size);
        if (out->local_size < 1 || out->local_size > size || out->local_rank >= out->local_size)
            return sn_fail(SN_ERR_USAGE, "%s: local rank %d of %d cannot be among %d ranks", n->local_rank, out->local_rank, out->local_size, size);
        return SN_OK;
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
        return sn_fail(SN_ERR_UNSUPPORTED, "%s says that there are %d processes, and this build has no MPI to join them (%s)", launch->from, launch->size,
                       why ? why : "no snug_mpi.so beside the program; build it where MPI is installed");
    sn_mpi_open_fn *open = (sn_mpi_open_fn *)(uintptr_t)dlsym(module, "snug_mpi_open");
    if (!open) return sn_fail(SN_ERR_UNSUPPORTED, "snug_mpi.so is of another program: it has no snug_mpi_open");
    why = open(launch->rank, launch->size, out, text);
    return why ? sn_fail(SN_ERR_USAGE, "%s says that this is rank %d of %d processes: %s", launch->from, launch->rank, launch->size, why) : SN_OK;
}
