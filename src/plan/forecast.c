#include "plan/forecast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Rates: NVIDIA's data sheets and white papers of the products, dense, without sparsity; links in one direction (half of what the sheets
 * call total). Capacities: what the driver reports. Networks: of the named systems; a card without one has a 100 Gb/s adapter a node. */
static const sn_accelerator accelerators[] = {
    {"a100-40g", 40960ull << 20, 19.5e12, 312e12, 1.555e12, 300e9, 32e9, 200e9,
     "NVIDIA A100 Tensor Core GPU data sheet (SXM4 40GB: NVLink 600 GB/s, PCIe 4.0 x16); DGX A100: 8 x 200 Gb/s InfiniBand"},
    {"a100-80g", 81920ull << 20, 19.5e12, 312e12, 2.039e12, 300e9, 32e9, 200e9,
     "NVIDIA A100 Tensor Core GPU data sheet (SXM4 80GB: NVLink 600 GB/s, PCIe 4.0 x16); DGX A100: 8 x 200 Gb/s InfiniBand"},
    {"h100-80g", 81559ull << 20, 67e12, 989.4e12, 3.35e12, 450e9, 64e9, 400e9,
     "NVIDIA H100 Tensor Core GPU data sheet (SXM5: NVLink 900 GB/s, PCIe 5.0 x16); DGX H100: 8 x 400 Gb/s InfiniBand"},
    {"h200-141g", 143771ull << 20, 67e12, 989.4e12, 4.8e12, 450e9, 64e9, 400e9,
     "NVIDIA H200 Tensor Core GPU data sheet (SXM: NVLink 900 GB/s, PCIe 5.0 x16); DGX H200: 8 x 400 Gb/s InfiniBand"},
    {"l40s-48g", 46068ull << 20, 91.6e12, 362e12, 864e9, 32e9, 32e9, 12.5e9,
     "NVIDIA L40S data sheet (PCIe 4.0 x16, no NVLink); network assumed: 100 Gb/s a node"},
    {"rtx4090-24g", 24564ull << 20, 82.6e12, 165.2e12, 1.008e12, 32e9, 32e9, 12.5e9,
     "NVIDIA Ada GPU architecture white paper (RTX 4090: PCIe 4.0 x16, no NVLink; bf16 with f32 sums); network assumed: 100 Gb/s a node"},
};

const sn_accelerator *sn_accelerator_find(const char *name) {
    for (size_t i = 0; name && i < sizeof accelerators / sizeof accelerators[0]; i++)
        if (!strcmp(accelerators[i].name, name)) return &accelerators[i];
    return NULL;
}

/* Of a node's disk, which its ranks share: what sheets of NVMe drives with four lanes of PCIe 4.0 say. */
#define NODE_DISK_READ 7e9
#define NODE_DISK_WRITE 5e9

sn_rates sn_accelerator_rates(const sn_accelerator *a, int ranks, int nodes) {
    const int sharing = ranks > nodes ? ranks / nodes : 1;
    return (sn_rates){.disk_read = NODE_DISK_READ / sharing,
                      .disk_write = NODE_DISK_WRITE / sharing,
                      .f32_flops = a->f32_flops,
                      .bf16_flops = a->bf16_flops,
                      .bytes_per_s = a->bytes_per_s,
                      .ring = a->link,
                      .host = a->host,
                      .network = a->network,
                      .node_ranks = nodes > 1 ? ranks / nodes : 0};
}

int sn_rings_between(const sn_rates *rates, const sn_mesh *mesh, int axis) {
    const int stride = sn_mesh_stride(mesh, axis);
    if (rates->node_ranks < 1 || rates->node_ranks % (stride * mesh->size[axis]) == 0) return 0;
    return stride < rates->node_ranks ? stride : rates->node_ranks;
}

/* A ring is laid through all adapters of a node at once, as far as others beside it leave them. */
double sn_ring_rate(const sn_rates *rates, const sn_mesh *mesh, int axis) {
    const int rings = sn_rings_between(rates, mesh, axis);
    const double between = rings ? rates->network / rings : rates->ring;
    return between < rates->ring || sn_mesh_stride(mesh, axis) >= rates->node_ranks ? between : rates->ring;
}

static double bytes_of(const sn_arg *a) {
    size_t bytes;
    return a->arena != SN_NO_ARENA && sn_shape_bytes(&a->shape, a->dtype, &bytes) ? (double)bytes : 0;
}

/* Bytes that this rank sends for a collective: its shard to all others, all but its own shard of a summand, or all that it gives. */
static double bytes_sent(const sn_instr *in, int ranks) {
    const double given = in->n_in ? bytes_of(&in->in[0]) : 0; /* of a pair, the one that gets gives nothing */
    if (ranks <= 1) return 0;
    if (!strcmp(in->op, "all_reduce")) { /* shares of f32 to and from all */
        int64_t n = 0, part;
        for (int k = 0; k < in->n_in; k += 2) n += sn_shape_elements(&in->in[k].shape, &part) ? part : 0;
        return 2.0 * sizeof(float) * (double)((n + ranks - 1) / ranks) * (ranks - 1);
    }
    if (!strcmp(in->op, "all_gather")) return given * (ranks - 1);
    return !strcmp(in->op, "reduce_scatter") ? given - bytes_of(&in->out[0]) : given;
}

/* The two multiply bf16 by bf16. */
static bool is_bf16(const sn_instr *in) { return in->n_in > 1 && in->in[0].dtype == SN_BF16 && in->in[1].dtype == SN_BF16; }

static double disk_seconds(const sn_instr *in, const sn_rates *rates) {
    const bool writes = in->n_out == 0; /* what it makes is in the disk arena, an input that it mutates */
    const double rate = writes ? rates->disk_write : rates->disk_read;
    return rate > 0 ? bytes_of(writes ? &in->in[0] : &in->out[0]) / rate : in->bytes / rates->bytes_per_s;
}

static double flops_of(const sn_instr *in, const sn_rates *rates) {
    return in->pairs && rates->rows > 1 ? in->flops / rates->rows : in->flops;
}

double sn_instr_intensity(const sn_instr *in, const sn_rates *rates) { return (flops_of(in, rates) + 1) / (in->bytes + 1); }

double sn_roofline_seconds(const sn_instr *in, const sn_rates *rates) {
    double arithmetic = flops_of(in, rates) / (rates->bf16_flops > 0 && is_bf16(in) ? rates->bf16_flops : rates->f32_flops);
    double traffic = in->bytes / (in->queue == SN_QUEUE_COPY && rates->host > 0 ? rates->host : rates->bytes_per_s);
    return arithmetic > traffic ? arithmetic : traffic;
}

/* ---- The profile ---- */

void sn_profile_key(const sn_instr *in, char key[SN_PROFILE_KEY]) {
    memset(key, 0, SN_PROFILE_KEY);
    snprintf(key, SN_PROFILE_KEY, "%s/%s", in->op, in->kernel && in->kernel->name ? in->kernel->name : "");
}

static bool same_op(const char *a, const char *b) {
    size_t n = strcspn(a, "/");
    return n == strcspn(b, "/") && !strncmp(a, b, n);
}

double sn_profile_factor(const sn_profile *p, const sn_instr *in, double work, double intensity) {
    char key[SN_PROFILE_KEY];
    double sum = 0, weights = 0;
    if (!p->n || !(work > 0)) return 1;
    sn_profile_key(in, key);
    double x = log(work), y = log(intensity);
    for (int any = 0; any < 2 && weights == 0; any++)
        for (size_t i = 0; i < p->n; i++) {
            const sn_profile_point *at = &p->points[i];
            if (any ? !same_op(at->key, key) : strcmp(at->key, key) != 0) continue;
            double dx = x - log(at->work), dy = y - log(at->intensity), w = 1 / (dx * dx + 4 * dy * dy + 0.01);
            sum += w * w * log(at->factor);
            weights += w * w;
        }
    return weights > 0 ? exp(sum / weights) : 1;
}

/* ---- Programs ---- */

/* share: of the steps in which it runs. */
static double instruction_seconds(const sn_instr *in, const sn_rates *rates, const sn_mesh *mesh, double share, sn_program_time *t) {
    double seconds, bytes;
    switch (in->queue) {
    case SN_QUEUE_COMM:
        bytes = share * bytes_sent(in, mesh->size[in->axis]);
        seconds = share * rates->latency +
                  (rates->ring > 0 ? bytes / sn_ring_rate(rates, mesh, in->axis) : share * in->bytes / rates->bytes_per_s);
        t->sent += bytes;
        t->node_sent += bytes * sn_rings_between(rates, mesh, in->axis);
        t->communication += seconds;
        return seconds;
    case SN_QUEUE_IO:
        *(in->disk_writes ? &t->disk_written : &t->disk_read) += share * (double)in->disk_bytes;
        t->io += seconds = share * disk_seconds(in, rates);
        return seconds;
    default:
        seconds = sn_roofline_seconds(in, rates);
        seconds *= share * sn_profile_factor(&rates->profile, in, seconds, sn_instr_intensity(in, rates));
        *(in->queue == SN_QUEUE_COPY ? &t->io : &t->compute) += seconds;
        return seconds;
    }
}

sn_status sn_walk_open(size_t most_instructions, sn_walk *w) {
    *w = (sn_walk){.row = most_instructions + 1};
    w->ended = sn_alloc_zero(SN_QUEUE_COUNT * w->row, sizeof *w->ended);
    return w->ended ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate an estimate of %zu instructions", most_instructions);
}

void sn_walk_close(sn_walk *w) {
    sn_free(w->ended);
    *w = (sn_walk){0};
}

void sn_walk_restart(sn_walk *w) {
    memset(w->done, 0, sizeof w->done);
    w->span = 0;
}

double sn_walk_ready(const sn_walk *w, int queue, const uint32_t wait[SN_MAX_WAITS]) {
    double start = w->ended[(size_t)queue * w->row + w->done[queue]];
    for (size_t q = 0; q < SN_QUEUE_COUNT; q++)
        if (wait[q] && wait[q] <= w->done[q] && w->ended[q * w->row + wait[q]] > start) start = w->ended[q * w->row + wait[q]];
    return start;
}

void sn_walk_take(sn_walk *w, int queue, double start, double seconds) {
    w->ended[(size_t)queue * w->row + ++w->done[queue]] = start + seconds;
    if (start + seconds > w->span) w->span = start + seconds;
}

sn_status sn_program_estimate(const sn_program *p, const sn_rates *rates, const sn_mesh *mesh, double *seconds, sn_program_time *out) {
    sn_walk w;
    *out = (sn_program_time){0};
    SN_TRY(sn_walk_open(p->count, &w));
    for (uint32_t k = 0; k < p->count; k++) {
        const sn_instr *in = &p->instrs[k];
        double share = 1; /* of the turns: an average step */
        if (p->turns) share = ((in->turns.last < p->turns ? in->turns.last : p->turns - 1) - in->turns.first + 1) / (double)p->turns;
        const double took = instruction_seconds(in, rates, mesh, share, out);
        sn_walk_take(&w, in->queue, sn_walk_ready(&w, in->queue, in->wait), took);
        if (seconds) seconds[k] = took;
    }
    out->span = w.span;
    sn_walk_close(&w);
    return SN_OK;
}

sn_status sn_plan_forecast(const sn_plan *plan, const sn_rates *rates, int64_t accumulation, int64_t tokens, sn_forecast *f) {
    f->step_seconds = f->compute_seconds = f->communication_seconds = f->io_seconds = f->sent_bytes = f->node_sent_bytes =
        f->disk_read_bytes = f->disk_written_bytes = 0;
    for (int k = 0; k < plan->n_programs; k++) {
        sn_role role = plan->programs[k].role;
        double times = role == SN_ROLE_TRAIN || role == SN_ROLE_UPDATE ? 1 : role == SN_ROLE_TRAIN_NEXT ? (double)(accumulation - 1) : 0;
        if (times == 0) continue;
        sn_program_time t;
        SN_TRY(sn_program_estimate(&plan->programs[k].program, rates, &plan->mesh, NULL, &t));
        f->step_seconds += times * sn_planned_span(&plan->programs[k], &t);
        f->compute_seconds += times * t.compute;
        f->communication_seconds += times * t.communication;
        f->io_seconds += times * t.io;
        f->sent_bytes += times * t.sent;
        f->node_sent_bytes += times * t.node_sent;
        f->disk_read_bytes += times * t.disk_read;
        f->disk_written_bytes += times * t.disk_written;
    }
    f->tokens_per_s = f->step_seconds > 0 ? (double)tokens / f->step_seconds : 0;
    return SN_OK;
}
