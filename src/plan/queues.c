/* Order between queues, from bytes: two instructions on different queues that touch the same bytes, one of them writing,
 * are ordered by a wait. Instructions of one queue run in order, but those of the io queue, of which several are under way: between
 * them too are waits, unless so many lie between that the first has ended. */
#include "base/mem.h"
#include "plan/plan.h"

typedef struct range {
    uint8_t arena;
    bool writes;
    uint64_t start, end;
} range;

static int ranges_of(const sn_instr *in, range out[SN_MAX_IN + SN_MAX_OUT + 1]) {
    int n = 0;
    for (int i = 0; i < in->n_in + in->n_out; i++) {
        const sn_arg *a = i < in->n_in ? &in->in[i] : &in->out[i - in->n_in];
        size_t bytes;
        if (a->arena == SN_NO_ARENA || !sn_shape_bytes(&a->shape, a->dtype, &bytes) || !bytes) continue;
        if (in->disk_bytes) bytes = in->disk_bytes; /* whole blocks, at both ends */
        out[n++] = (range){a->arena, a->writes, a->offset, a->offset + bytes};
    }
    if (in->scratch_bytes) out[n++] = (range){SN_TIER_DEVICE, true, in->scratch_offset, in->scratch_offset + in->scratch_bytes};
    return n;
}

bool sn_args_conflict(const sn_instr *a, const sn_instr *b) {
    range x[SN_MAX_IN + SN_MAX_OUT + 1], y[SN_MAX_IN + SN_MAX_OUT + 1];
    int n = ranges_of(a, x), m = ranges_of(b, y);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++)
            if (x[i].arena == y[k].arena && (x[i].writes || y[k].writes) && x[i].start < y[k].end && y[k].start < x[i].end) return true;
    return false;
}

void sn_plan_queues(sn_program *p) {
    uint32_t signalled[SN_QUEUE_COUNT] = {0};
    uint32_t waited[SN_QUEUE_COUNT][SN_QUEUE_COUNT] = {{0}}; /* waited[q][r]: queue q has waited for count of r */
    for (uint32_t i = 0; i < p->count; i++) {
        sn_instr *in = &p->instrs[i];
        int q = in->queue;
        in->signal = ++signalled[q];
        for (int r = 0; r < SN_QUEUE_COUNT; r++) {
            in->wait[r] = 0;
            if ((r == q && q != SN_QUEUE_IO) || signalled[r] == waited[q][r]) continue;
            for (uint32_t k = i; k-- > 0;) {
                const sn_instr *earlier = &p->instrs[k];
                if (earlier->queue != r) continue;
                if (earlier->signal <= waited[q][r] || (r == q && earlier->signal + SN_DISK_TRANSFERS <= in->signal)) break;
                if (!sn_args_conflict(earlier, in)) continue;
                in->wait[r] = waited[q][r] = earlier->signal;
                break;
            }
        }
    }
}
