/* The CPU devices: cpu, whose host memory is device memory; cpu-split, the test device that addresses its own arena
 * only, so that copies and offload are real instructions without a GPU; null, which plans and counts but holds nothing. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cpu.h"
#include "run/run.h"

/* Pages are touched in pieces of a few huge pages, so that the team's members clear memory side by side. */
enum { PAGE = 4096, PIECE = 16 << 20 };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

typedef struct arena {
    char *base;
    size_t size;
} arena;

static void touch_piece(void *context, int64_t task, int member) {
    const arena *a = context;
    char *piece = a->base + (size_t)task * PIECE;
    size_t left = a->size - (size_t)task * PIECE, size = left < PIECE ? left : PIECE;
    (void)member;
    if (!madvise(piece, size, MADV_POPULATE_WRITE)) return;
    for (size_t at = 0; at < size; at += PAGE) ((volatile char *)piece)[at] = 0; /* an older kernel */
}

static sn_status map_touched(uint64_t bytes, sn_team *team, void **base) {
    size_t size = sn_round_up((size_t)bytes, PAGE);
    *base = NULL;
    if (!size) return SN_OK;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return sn_fail(SN_ERR_NO_MEMORY, "cannot map an arena of %llu bytes", (unsigned long long)bytes);
    madvise(p, size, MADV_HUGEPAGE); /* read bandwidth; best effort */
    arena a = {p, size};
    sn_team_run(team, (int64_t)((size + PIECE - 1) / PIECE), touch_piece, &a);
    *base = p;
    return SN_OK;
}

static void unmap(void *base, uint64_t bytes) {
    if (base) munmap(base, sn_round_up((size_t)bytes, PAGE));
}

enum { DEVICE = 1 << SN_TIER_DEVICE, HOST = 1 << SN_TIER_HOST };

const sn_device sn_device_cpu = {.shape = {.name = "cpu", .addresses = DEVICE | HOST}, .map = map_touched, .unmap = unmap};
const sn_device sn_device_cpu_split = {.shape = {.name = "cpu-split", .addresses = DEVICE}, .map = map_touched, .unmap = unmap};
const sn_device sn_device_null = {.shape = {.name = "null", .addresses = DEVICE | HOST}};

sn_status sn_device_find(const char *name, int threads, sn_device *out) {
    const sn_device *const all[] = {&sn_device_cpu, &sn_device_cpu_split, &sn_device_null};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(all[i]->shape.name, name)) {
            *out = *all[i];
            out->shape.features = sn_cpu_features();
            out->shape.threads = threads;
            return SN_OK;
        }
    return sn_fail(SN_ERR_USAGE, "unknown device '%s' (known: cpu, cpu-split, null)", name);
}
