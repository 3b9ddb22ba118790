#include "plan/forecast.h"

#include <string.h>

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

sn_rates sn_accelerator_rates(const sn_accelerator *a, int nodes) {
    sn_rates r = {.f32_flops = a->f32_flops, .bf16_flops = a->bf16_flops, .bytes_per_s = a->bytes_per_s, .ring = a->link, .host = a->host};
    if (nodes > 1 && a->network < r.ring) r.ring = a->network; /* rings are laid through all adapters of a node at once */
    return r;
}

static double bytes_of(const sn_arg *a) {
    size_t bytes;
    return a->arena != SN_NO_ARENA && sn_shape_bytes(&a->shape, a->dtype, &bytes) ? (double)bytes : 0;
}

/* Bytes that this rank sends for a collective: its shard to all others, all but its own shard of a summand, or all that it gives. */
static double bytes_sent(const sn_instr *in, int ranks) {
    const double given = bytes_of(&in->in[0]);
    if (ranks <= 1) return 0;
    if (!strcmp(in->op, "all_reduce")) { /* shares of f32 to and from all */
        int64_t n = 0, part;
        for (int k = 0; k < in->n_in; k += 2) n += sn_shape_elements(&in->in[k].shape, &part) ? part : 0;
        return 2.0 * sizeof(float) * (double)((n + ranks - 1) / ranks) * (ranks - 1);
    }
    if (!strcmp(in->op, "all_gather")) return given * (ranks - 1);
    return !strcmp(in->op, "reduce_scatter") ? given - bytes_of(&in->out[0]) : given;
}

sn_program_time sn_program_estimate(const sn_program *p, const sn_rates *rates, const sn_mesh *mesh) {
    sn_program_time t = {0};
    for (uint32_t k = 0; k < p->count; k++) {
        const sn_instr *i = &p->instrs[k];
        double share = 1; /* of the turns: an average step */
        if (p->turns) share = ((i->turns.last < p->turns ? i->turns.last : p->turns - 1) - i->turns.first + 1) / (double)p->turns;
        if (i->queue == SN_QUEUE_COMM) {
            double bytes = share * bytes_sent(i, mesh->size[i->axis]);
            t.sent += bytes;
            t.communication += rates->ring > 0 ? bytes / rates->ring : share * i->bytes / rates->bytes_per_s;
            continue;
        }
        bool bf16 = rates->bf16_flops > 0 && i->n_in > 1 && i->in[0].dtype == SN_BF16 && i->in[1].dtype == SN_BF16;
        double arithmetic = i->flops / (bf16 ? rates->bf16_flops : rates->f32_flops);
        double traffic = i->bytes / (i->queue == SN_QUEUE_COPY && rates->host > 0 ? rates->host : rates->bytes_per_s);
        t.compute += share * (arithmetic > traffic ? arithmetic : traffic);
    }
    return t;
}

void sn_plan_forecast(const sn_plan *plan, const sn_rates *rates, int64_t accumulation, int64_t tokens, sn_forecast *f) {
    f->compute_seconds = f->communication_seconds = f->sent_bytes = 0;
    for (int k = 0; k < plan->n_programs; k++) {
        sn_role role = plan->programs[k].role;
        double times = role == SN_ROLE_TRAIN || role == SN_ROLE_UPDATE ? 1 : role == SN_ROLE_TRAIN_NEXT ? (double)(accumulation - 1) : 0;
        sn_program_time t = sn_program_estimate(&plan->programs[k].program, rates, &plan->mesh);
        f->compute_seconds += times * t.compute;
        f->communication_seconds += times * t.communication;
        f->sent_bytes += times * t.sent;
    }
    double sum = f->compute_seconds + f->communication_seconds;
    f->tokens_per_s = sum > 0 ? (double)tokens / sum : 0;
}
