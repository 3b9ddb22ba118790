#define _GNU_SOURCE
#include "run/run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/futex.h"
#include "base/mem.h"
#include "base/system.h"
#include "program/files.h"

enum { SPINS = 2000 };

typedef struct queue {
    sn_run *run;
    int index;
    bool started;
    pthread_t thread;
    atomic_uint go; /* rises once a run of a program that uses the queue, and wakes its thread */
} queue;

struct sn_run {
    const sn_plan *plan;
    sn_device device;
    sn_comm *comms[SN_MESH_AXES]; /* over each axis of the mesh; NULL: alone there */
    int spins;                    /* looks at what is waited for before a thread sleeps */
    uint64_t sent;                /* by collectives of programs; the communication queue counts */
    sn_team *team;
    char *base[SN_TIER_COUNT];
    double *seconds[SN_MAX_PROGRAMS];
    bool profile;
    queue queues[SN_QUEUE_COUNT];
    uint32_t uses[SN_MAX_PROGRAMS]; /* bit q: the program has instructions of queue q */
    sn_files files;
    /* The program at work. event[q] counts the instructions of queue q that have ended; idle counts the threads that have
     * ended their part. */
    const sn_program *program;
    int program_index, slot, turn;
    atomic_uint idle;
    atomic_uint event[SN_QUEUE_COUNT];
    atomic_bool stop;
    /* The first failure of this run of the program. Only the io queue fails, so its thread alone writes. */
    atomic_int failed; /* sn_status */
    char failure[512];
};

static void wait_until(const sn_run *run, atomic_uint *word, unsigned least) {
    for (int i = 0; i < run->spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) >= least) return;
        __builtin_ia32_pause();
    }
    for (unsigned seen; (seen = atomic_load_explicit(word, memory_order_acquire)) < least;) sn_futex_wait(word, seen);
}

static void raise_to(atomic_uint *word, unsigned value) {
    atomic_store_explicit(word, value, memory_order_release);
    sn_futex_wake(word);
}

static bool has_others(const sn_run *run, int index) { return (run->uses[index] & ~(1u << SN_QUEUE_COMPUTE)) != 0; }

static sn_tensor tensor_of(const sn_run *run, const sn_arg *a, int slot) {
    if (a->arena == SN_NO_ARENA) return (sn_tensor){0};
    char *base = run->base[a->arena];
    uint64_t offset = a->offset + (a->slotted ? (uint64_t)slot * run->plan->input_stride : 0);
    return (sn_tensor){.data = base ? base + offset : NULL, .dtype = a->dtype, .shape = a->shape};
}

static void note_failure(sn_run *run, const sn_instr *in, sn_status status) {
    if (status == SN_OK || atomic_load(&run->failed) != SN_OK) return;
    snprintf(run->failure, sizeof run->failure, "%s: %s", in->name, sn_error_text());
    atomic_store(&run->failed, (int)status);
}

/* A transfer of the io queue may go on behind it, under this ticket. */
static void execute(sn_run *run, const sn_instr *in, int slot, unsigned ticket) {
    sn_call c;
    sn_status status = SN_OK;
    c.n_in = in->n_in;
    c.n_out = in->n_out;
    c.attrs = in->attrs;
    c.disk_offset = 0;
    c.disk_bytes = in->disk_bytes;
    c.ticket = ticket;
    for (int i = 0; i < in->n_in; i++) {
        c.in[i] = tensor_of(run, &in->in[i], slot);
        if (in->in[i].arena == SN_TIER_DISK) c.disk_offset = in->in[i].offset;
    }
    for (int i = 0; i < in->n_out; i++)
        c.out[i] = sn_in_turn(in->out[i].turns, run->turn) ? tensor_of(run, &in->out[i], slot) : (sn_tensor){0};
    c.scratch = in->scratch_bytes ? run->base[SN_TIER_DEVICE] + in->scratch_offset : NULL;
    c.team = in->queue == SN_QUEUE_COMPUTE ? run->team : NULL;
    c.comm = in->queue == SN_QUEUE_COMM ? run->comms[in->axis] : NULL;
    c.files = in->queue == SN_QUEUE_IO ? &run->files : NULL;
    c.status = in->queue == SN_QUEUE_IO ? &status : NULL;
    const uint64_t before = c.comm ? c.comm->sent : 0;
    in->kernel->run(&c);
    if (c.comm) run->sent += c.comm->sent - before;
    note_failure(run, in, status);
}

void sn_run_instruction(sn_run *run, int index, uint32_t instruction, int slot) {
    const sn_instr *in = &run->plan->programs[index].program.instrs[instruction];
    execute(run, in, slot, 0);
    if (in->queue == SN_QUEUE_IO) note_failure(run, in, sn_disk_finish(&run->files.disk, 0));
}

/* Runs the instructions of one queue, waiting for the others' events. After a failure the events still come, but only
 * collectives are executed: another rank may wait in them. */
static void walk(sn_run *run, int q) {
    const sn_program *p = run->program;
    for (uint32_t k = 0; k < p->count; k++) {
        const sn_instr *in = &p->instrs[k];
        if (in->queue != q) continue;
        for (int r = 0; r < SN_QUEUE_COUNT; r++)
            if (in->wait[r]) wait_until(run, &run->event[r], in->wait[r]);
        double start = run->profile ? sn_now() : 0;
        if (sn_in_turn(in->turns, run->turn) && (q == SN_QUEUE_COMM || atomic_load(&run->failed) == SN_OK)) execute(run, in, run->slot, 0);
        if (run->profile) run->seconds[run->program_index][k] = sn_now() - start;
        atomic_store_explicit(&run->event[q], in->signal, memory_order_release);
        if (has_others(run, run->program_index)) sn_futex_wake(&run->event[q]);
    }
}

/* The io queue's thread: instructions that were started, and how many of them, from the first on, have ended. */
typedef struct transfers {
    sn_run *run;
    struct {
        const sn_instr *in;
        uint32_t index;
        double start;
    } at[SN_DISK_TRANSFERS];
    uint32_t started, ended;
} transfers;

/* Counts what has ended; wait: after waiting for the oldest. */
static void count_ended(transfers *t, bool wait) {
    sn_run *run = t->run;
    uint32_t before = t->ended;
    while (t->ended < t->started) {
        unsigned ticket = (t->ended + 1) % SN_DISK_TRANSFERS;
        if (!wait && sn_disk_under_way(&run->files.disk, ticket)) break;
        wait = false;
        note_failure(run, t->at[ticket].in, sn_disk_finish(&run->files.disk, ticket));
        if (run->profile) run->seconds[run->program_index][t->at[ticket].index] = sn_now() - t->at[ticket].start;
        t->ended++;
    }
    if (t->ended == before) return;
    raise_to(&run->event[SN_QUEUE_IO], t->ended);
}

/* Waits for another queue, which may itself wait for a transfer under way. */
static void wait_beside(transfers *t, int other, uint32_t least) {
    atomic_uint *event = &t->run->event[other];
    while (t->ended < t->started && atomic_load_explicit(event, memory_order_acquire) < least) count_ended(t, true);
    wait_until(t->run, event, least);
}

/* As walk, with several instructions under way. */
static void walk_transfers(sn_run *run) {
    const sn_program *p = run->program;
    transfers t = {.run = run};
    for (uint32_t k = 0; k < p->count; k++) {
        const sn_instr *in = &p->instrs[k];
        if (in->queue != SN_QUEUE_IO) continue;
        for (int r = 0; r < SN_QUEUE_COUNT; r++)
            if (r != SN_QUEUE_IO && in->wait[r]) wait_beside(&t, r, in->wait[r]);
        while (t.ended < in->wait[SN_QUEUE_IO] || t.ended + SN_DISK_TRANSFERS <= t.started) count_ended(&t, true);
        unsigned ticket = in->signal % SN_DISK_TRANSFERS;
        t.at[ticket].in = in;
        t.at[ticket].index = k;
        if (run->profile) t.at[ticket].start = sn_now();
        if (sn_in_turn(in->turns, run->turn) && atomic_load(&run->failed) == SN_OK) execute(run, in, run->slot, ticket);
        t.started = in->signal;
        count_ended(&t, false);
    }
    while (t.ended < t.started) count_ended(&t, true);
}

static void *queue_main(void *arg) {
    queue *q = arg;
    sn_run *run = q->run;
    for (unsigned round = 1;; round++) {
        wait_until(run, &q->go, round);
        if (atomic_load(&run->stop)) return NULL;
        sn_alloc_forbid(true);
        if (q->index == SN_QUEUE_IO) walk_transfers(run);
        else walk(run, q->index);
        sn_alloc_forbid(false);
        atomic_fetch_add(&run->idle, 1);
        sn_futex_wake(&run->idle);
    }
}

static sn_status start_queues(sn_run *run) {
    uint32_t used = 0;
    for (int k = 0; k < run->plan->n_programs; k++) {
        for (uint32_t i = 0; i < run->plan->programs[k].program.count; i++)
            run->uses[k] |= 1u << run->plan->programs[k].program.instrs[i].queue;
        used |= run->uses[k];
    }
    for (int q = 1; q < SN_QUEUE_COUNT; q++) {
        run->queues[q].run = run;
        run->queues[q].index = q;
        if (!(used >> q & 1)) continue;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 512 * 1024);
        int bad = pthread_create(&run->queues[q].thread, &attr, queue_main, &run->queues[q]);
        pthread_attr_destroy(&attr);
        if (bad) return sn_fail(SN_ERR_NO_MEMORY, "cannot start the thread of queue %s", sn_queue_name((sn_queue)q));
        run->queues[q].started = true;
    }
    return SN_OK;
}

static sn_status check_kernels(const sn_plan *plan) {
    for (int k = 0; k < plan->n_programs; k++)
        for (uint32_t i = 0; i < plan->programs[k].program.count; i++) {
            const sn_instr *in = &plan->programs[k].program.instrs[i];
            if (!in->kernel->run) return sn_fail(SN_ERR_UNSUPPORTED, "this build has no code for kernel %s %s", in->op, in->kernel->name);
        }
    return SN_OK;
}

/* The ranks that differ from this one in an axis alone talk over it. */
static sn_status open_comms(sn_run *run, sn_comm *comm) {
    const sn_mesh *mesh = &run->plan->mesh;
    int ranks[SN_RANKS_MOST];
    for (int a = 0; comm && a < SN_MESH_AXES; a++) {
        if (mesh->size[a] <= 1) continue;
        for (int i = 0; i < mesh->size[a]; i++) ranks[i] = sn_mesh_neighbour(mesh, comm->rank, a, i);
        run->comms[a] = mesh->size[a] == comm->size ? comm : comm->group(comm, ranks, mesh->size[a]);
        if (!run->comms[a]) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the ranks of an axis of the mesh");
    }
    return SN_OK;
}

sn_status sn_run_open(const sn_plan *plan, const sn_device *device, sn_comm *comm, sn_run **out) {
    sn_run *run = *out = sn_alloc_zero(1, sizeof *run);
    if (!run) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a run");
    run->plan = plan;
    run->device = *device;
    sn_status s = check_kernels(plan);
    run->spins = comm && comm->crowded ? 0 : SPINS;
    if (s == SN_OK && device->map) s = open_comms(run, comm);
    if (s == SN_OK && device->map) s = sn_files_open(plan->files, plan->n_files, &run->files);
    if (s == SN_OK && device->map) s = sn_disk_open(plan->disk_folder, plan->arena_bytes[SN_TIER_DISK], &run->files.disk);
    if (s == SN_OK && device->map) s = sn_team_open(plan->device.threads, NULL, &run->team);
    for (int t = 0; s == SN_OK && device->map && t < SN_TIER_DISK; t++)
        s = device->map(plan->arena_bytes[t], run->team, (void **)&run->base[t]);
    if (s == SN_OK && device->map) s = start_queues(run);
    if (s != SN_OK) {
        sn_run_close(run);
        *out = NULL;
    }
    return s;
}

void sn_run_close(sn_run *run) {
    if (!run) return;
    atomic_store(&run->stop, true);
    for (int q = 1; q < SN_QUEUE_COUNT; q++) {
        if (!run->queues[q].started) continue;
        raise_to(&run->queues[q].go, UINT32_MAX);
        pthread_join(run->queues[q].thread, NULL);
    }
    sn_files_close(&run->files);
    sn_team_close(run->team);
    for (int t = 0; run->device.unmap && t < SN_TIER_COUNT; t++) run->device.unmap(run->base[t], run->plan->arena_bytes[t]);
    for (int k = 0; k < SN_MAX_PROGRAMS; k++) sn_free(run->seconds[k]);
    sn_free(run);
}

sn_status sn_run_program(sn_run *run, int index, int slot) {
    if (!run->device.map) return SN_OK;
    unsigned others = 0;
    run->program = &run->plan->programs[index].program;
    run->program_index = index;
    run->slot = slot;
    atomic_store(&run->failed, SN_OK);
    atomic_store(&run->idle, 0);
    for (int q = 0; q < SN_QUEUE_COUNT; q++) atomic_store(&run->event[q], 0);
    for (int q = 1; q < SN_QUEUE_COUNT; q++) {
        if (!(run->uses[index] >> q & 1)) continue;
        raise_to(&run->queues[q].go, atomic_load(&run->queues[q].go) + 1);
        others++;
    }
    bool before = sn_alloc_forbid(true);
    walk(run, SN_QUEUE_COMPUTE);
    sn_alloc_forbid(before);
    if (others) wait_until(run, &run->idle, others);
    sn_status s = (sn_status)atomic_load(&run->failed);
    return s == SN_OK ? SN_OK : sn_fail(s, "program %s: %s", run->program->name, run->failure);
}

void sn_run_take_turn(sn_run *run, int turn) { run->turn = turn; }

void *sn_run_io(const sn_run *run, int index, const char *name, int slot, const sn_io_slot **info) {
    const sn_planned *p = &run->plan->programs[index];
    for (int i = 0; i < p->n_io; i++)
        if (!strcmp(p->io[i].name, name)) {
            if (info) *info = &p->io[i];
            uint64_t offset = p->io[i].offset + (p->io[i].input ? (uint64_t)slot * run->plan->input_stride : 0);
            return run->base[SN_TIER_HOST] ? run->base[SN_TIER_HOST] + offset : NULL;
        }
    if (info) *info = NULL;
    return NULL;
}

static sn_status part_of(const sn_run *run, sn_pid p, uint64_t at, size_t n, char **base, uint64_t *offset) {
    const sn_placed *x = &run->plan->persistent[p];
    if (at > x->bytes || n > x->bytes - at)
        return sn_fail(SN_ERR_INTERNAL, "%zu bytes at %llu are outside persistent value %u of %llu", n, (unsigned long long)at, p,
                       (unsigned long long)x->bytes);
    *offset = x->offset + at;
    *base = run->base[x->tier];
    return *base || x->tier == SN_TIER_DISK ? SN_OK : sn_fail(SN_ERR_USAGE, "device %s has no memory", run->device.shape.name);
}

sn_status sn_run_read(const sn_run *run, sn_pid p, uint64_t at, void *data, size_t n) {
    char *base = NULL;
    uint64_t offset = 0;
    SN_TRY(part_of(run, p, at, n, &base, &offset));
    if (!base) return sn_disk_read(&run->files.disk, offset, data, n);
    memcpy(data, base + offset, n);
    return SN_OK;
}

sn_status sn_run_write(sn_run *run, sn_pid p, uint64_t at, const void *data, size_t n) {
    char *base = NULL;
    uint64_t offset = 0;
    SN_TRY(part_of(run, p, at, n, &base, &offset));
    if (!base) return sn_disk_write(&run->files.disk, offset, data, n);
    memcpy(base + offset, data, n);
    return SN_OK;
}

const sn_placed *sn_run_placed(const sn_run *run, sn_pid p) { return &run->plan->persistent[p]; }

void *sn_run_persistent(const sn_run *run, sn_pid p) {
    const sn_placed *at = &run->plan->persistent[p];
    return run->base[at->tier] && at->bytes ? run->base[at->tier] + at->offset : NULL;
}

void *sn_run_transient(const sn_run *run, uint64_t *bytes) {
    uint64_t start = run->plan->persistent_bytes[SN_TIER_DEVICE];
    *bytes = run->plan->arena_bytes[SN_TIER_DEVICE] - start;
    return run->base[SN_TIER_DEVICE] ? run->base[SN_TIER_DEVICE] + start : NULL;
}

void *sn_run_arena(const sn_run *run, sn_tier tier) { return run->base[tier]; }

uint64_t sn_run_sent(const sn_run *run) { return run->sent; }

sn_team *sn_run_team(const sn_run *run) { return run->team; }

sn_status sn_run_profile(sn_run *run, bool on) {
    run->profile = false;
    for (int k = 0; on && k < run->plan->n_programs; k++)
        if (!run->seconds[k] && !(run->seconds[k] = sn_alloc_zero(run->plan->programs[k].program.count, sizeof(double))))
            return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a profile");
    run->profile = on;
    return SN_OK;
}

const double *sn_run_seconds(const sn_run *run, int index) { return run->seconds[index]; }
