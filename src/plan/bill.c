/* The bill: what each class of values holds at the peak of each tier, and how it is shown. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "plan/forecast.h"

/* Where a program holds most: the instruction, and the turn (0 where there are none). */
typedef struct peak {
    uint32_t at;
    int turn;
    uint64_t bytes;
} peak;

static sn_status peak_of(const sn_planned *p, sn_tier tier, peak *most) {
    *most = (peak){0};
    int64_t *change = sn_alloc(((size_t)p->program.count + 2) * sizeof *change);
    if (!change) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the bill");
    for (int turn = 0; turn == 0 || turn < p->program.turns; turn++) {
        memset(change, 0, ((size_t)p->program.count + 2) * sizeof *change);
        for (size_t i = 0; i < p->n_lives; i++)
            if (p->lives[i].tier == tier && sn_in_turn(p->lives[i].turns, turn)) {
                change[p->lives[i].first] += (int64_t)p->lives[i].bytes;
                change[p->lives[i].last + 1] -= (int64_t)p->lives[i].bytes;
            }
        int64_t live = 0;
        for (uint32_t k = 0; k < p->program.count; k++) {
            live += change[k];
            if ((uint64_t)live > most->bytes) *most = (peak){k, turn, (uint64_t)live};
        }
    }
    sn_free(change);
    return SN_OK;
}

/* The turn whose values hold most between programs; -1: there are none of any turn. */
static int32_t largest_turn(const sn_plan *plan, const sn_job *job, sn_tier tier) {
    uint64_t most = 0;
    int32_t largest = -1;
    for (int32_t turn = 0; turn < job->turns.count; turn++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < plan->n_persistent; i++)
            if (plan->persistent[i].turn == turn && plan->persistent[i].tier == tier) sum += plan->persistent[i].bytes;
        if (sum <= most) continue;
        most = sum;
        largest = turn;
    }
    return largest;
}

static void note_largest(sn_bill *bill, const char *name, sn_class class_of, uint64_t bytes) {
    int at = bill->n_largest;
    while (at > 0 && bill->largest[at - 1].bytes < bytes) at--;
    if (at >= 8) return;
    int n = bill->n_largest < 8 ? bill->n_largest++ : 7;
    memmove(&bill->largest[at + 1], &bill->largest[at], (size_t)(n - at) * sizeof bill->largest[0]);
    bill->largest[at].name = name;
    bill->largest[at].class_of = class_of;
    bill->largest[at].bytes = bytes;
}

static sn_status fill_tier(sn_plan *plan, const sn_job *job, sn_tier tier, uint64_t staging) {
    sn_bill *bill = &plan->bill;
    const sn_planned *peak_program = NULL;
    peak top = {0};
    uint64_t arena = 0;
    const int32_t turn = largest_turn(plan, job, tier);
    for (int k = 0; k < plan->n_programs; k++) {
        uint64_t size = plan->programs[k].program.transient_bytes[tier];
        peak own;
        SN_TRY(peak_of(&plan->programs[k], tier, &own));
        if (size > arena) arena = size;
        if (!peak_program || own.bytes > top.bytes) {
            top = own;
            peak_program = &plan->programs[k];
        }
    }
    uint64_t *classes = bill->by_class[tier], sum = 0;
    if (staging > arena) { /* exporting holds more than any program does */
        arena = staging;
        classes[SN_CLASS_STAGING] += staging;
        peak_program = NULL;
    }
    for (size_t i = 0; i < plan->n_persistent; i++)
        if (plan->persistent[i].tier == tier && !plan->persistent[i].within &&
            (plan->persistent[i].turn < 0 || plan->persistent[i].turn == turn)) {
            classes[job->persistent[i].class_of] += plan->persistent[i].bytes;
            if (tier == SN_TIER_DEVICE) note_largest(bill, job->persistent[i].name, job->persistent[i].class_of, plan->persistent[i].bytes);
        }
    for (size_t i = 0; peak_program && i < peak_program->n_lives; i++) {
        const sn_life *l = &peak_program->lives[i];
        if (l->tier != tier || l->first > top.at || l->last < top.at || !sn_in_turn(l->turns, top.turn)) continue;
        classes[l->class_of] += l->bytes;
        const sn_graph *g = job->graphs[peak_program - plan->programs];
        const char *name = l->value == SN_NONE        ? peak_program->program.instrs[l->first].name
                           : g->values[l->value].name ? g->values[l->value].name
                                                      : g->nodes[g->values[l->value].producer].name;
        if (tier == SN_TIER_DEVICE) note_largest(bill, name, l->class_of, l->bytes);
    }
    if (tier == SN_TIER_HOST)
        for (int k = 0; k < plan->n_programs; k++)
            for (int i = 0; i < plan->programs[k].n_io; i++)
                classes[SN_CLASS_ACTIVATIONS] +=
                    plan->programs[k].io[i].bytes * (plan->programs[k].io[i].input ? (uint64_t)plan->input_slots : 1);
    plan->arena_bytes[tier] = bill->by_tier[tier] = plan->persistent_bytes[tier] + arena;
    for (int c = 0; c < SN_CLASS_GAP; c++) sum += classes[c];
    classes[SN_CLASS_GAP] = bill->by_tier[tier] - sum;
    if (tier == SN_TIER_DEVICE) {
        bill->peak_program = peak_program ? peak_program->program.name : "export";
        bill->peak_op = peak_program && peak_program->program.count ? peak_program->program.instrs[top.at].name : "export";
    }
    return SN_OK;
}

/* What each class holds between uses, wherever the plan puts it. */
static sn_status fill_at_rest(sn_plan *plan, const sn_job *job) {
    uint64_t most[SN_CLASS_COUNT] = {0}; /* of turns, the largest counts */
    for (int turn = -1; turn < job->turns.count; turn++) {
        uint64_t own[SN_CLASS_COUNT] = {0};
        for (size_t i = 0; i < plan->n_persistent; i++) {
            const sn_persistent *e = &job->persistent[i];
            size_t bytes;
            if (plan->persistent[i].turn != turn) continue;
            if (!sn_shape_bytes(&plan->persistent[i].shape, e->rest.form, &bytes))
                return sn_fail(SN_ERR_SHAPE, "%s in form %s has no valid size", e->name, sn_dtype_name(e->rest.form));
            own[e->class_of] += bytes;
        }
        for (int c = 0; c < SN_CLASS_COUNT; c++)
            if (turn < 0) plan->bill.at_rest[c] += own[c];
            else if (own[c] > most[c]) most[c] = own[c];
    }
    for (int c = 0; c < SN_CLASS_COUNT; c++) plan->bill.at_rest[c] += most[c];
    return SN_OK;
}

sn_status sn_plan_fill_bill(sn_plan *plan, const sn_job *job, const sn_plan_request *request) {
    for (int t = 0; t < SN_TIER_COUNT; t++) SN_TRY(fill_tier(plan, job, (sn_tier)t, t == SN_TIER_DEVICE ? request->staging : 0));
    SN_TRY(fill_at_rest(plan, job));
    plan->bill.files = request->files;
    plan->bill.by_tier[SN_TIER_DISK] += request->files;
    size_t tables = sn_job_bytes(job) + plan->n_persistent * sizeof *plan->persistent; /* graphs and programs themselves */
    for (int k = 0; k < plan->n_programs; k++)
        tables += plan->programs[k].program.count * sizeof(sn_instr) + plan->programs[k].program.n_args * sizeof(sn_arg) +
                  plan->programs[k].n_lives * sizeof(sn_life);
    plan->bill.reserved = request->reserved + sn_round_up(tables, 4096);
    plan->bill.total = plan->bill.by_tier[SN_TIER_DEVICE] + plan->bill.by_tier[SN_TIER_HOST] + plan->bill.reserved;
    return SN_OK;
}

static void print_disk(sn_str *out, uint64_t bytes) {
    char x[24];
    if (bytes) sn_str_printf(out, " %16s", sn_bytes_text(bytes, x));
    sn_str_add(out, "\n");
}

static void print_cluster(const sn_plan *plan, sn_str *out) {
    if (plan->ranks <= 1) return;
    sn_str_printf(out, "rank %d, the largest of %d; ", plan->rank, plan->ranks);
    if (plan->ranks_planned == 1) sn_str_add(out, "identical ranks were planned once");
    else sn_str_printf(out, "%d of them differ and were planned, the others are like one of these", plan->ranks_planned);
    sn_str_add(out, "; the collectives of all agree\n");
}

static void print_forecast(const sn_forecast *f, sn_str *out) {
    char x[24], y[24];
    if (!f) return;
    sn_str_printf(out, "estimated: %.3g s a step (%.3g s compute, %.3g s communication, %.3g s disk and copies), %.0f tokens/s a rank",
                  f->step_seconds, f->compute_seconds, f->communication_seconds, f->io_seconds, f->tokens_per_s);
    if (f->ranks > 1) sn_str_printf(out, ", %.0f in all", f->tokens_per_s * f->ranks);
    if (f->disk_read_bytes + f->disk_written_bytes > 0)
        sn_str_printf(out, "\ndisk: %s read and %s written a step", sn_bytes_text((uint64_t)f->disk_read_bytes, x),
                      sn_bytes_text((uint64_t)f->disk_written_bytes, y));
    if (!f->accelerator) {
        sn_str_add(out, "\n");
        return;
    }
    if (f->nodes > 1) sn_str_printf(out, "\nnetwork: %s a step leave each node", sn_bytes_text((uint64_t)f->node_sent_bytes, x));
    sn_str_printf(out, "\n  at peak rates of %s on %d node%s; planned with CPU kernels' scratch\n  rates: %s\n", f->accelerator->name,
                  f->nodes, f->nodes == 1 ? "" : "s", f->accelerator->source);
}

void sn_bill_print(const sn_plan *plan, const sn_forecast *forecast, sn_str *out) {
    const sn_bill *b = &plan->bill;
    char x[24], y[24];
    sn_str_printf(out, "%-16s %16s %16s%17s\n", "", "device", "host", b->by_tier[SN_TIER_DISK] ? "disk" : "");
    for (int c = 0; c < SN_CLASS_COUNT; c++) {
        if (!b->by_class[SN_TIER_DEVICE][c] && !b->by_class[SN_TIER_HOST][c] && !b->by_class[SN_TIER_DISK][c]) continue;
        sn_str_printf(out, "%-16s %16s %16s", sn_class_name((sn_class)c), sn_bytes_text(b->by_class[SN_TIER_DEVICE][c], x),
                      sn_bytes_text(b->by_class[SN_TIER_HOST][c], y));
        print_disk(out, b->by_class[SN_TIER_DISK][c]);
    }
    sn_str_printf(out, "%-16s %16s %16s", "arenas", sn_bytes_text(b->by_tier[SN_TIER_DEVICE], x),
                  sn_bytes_text(b->by_tier[SN_TIER_HOST], y));
    print_disk(out, b->by_tier[SN_TIER_DISK] - b->files);
    sn_str_printf(out, "%-16s %16s %16s\n", "reserved", "", sn_bytes_text(b->reserved, y));
    if (b->files) sn_str_printf(out, "%-16s %16s %16s %16s\n", "files", "", "", sn_bytes_text(b->files, y));
    sn_str_printf(out, "total %s = %llu bytes; the peak is in %s at %s\n", sn_bytes_text(b->total, x), (unsigned long long)b->total,
                  b->peak_program, b->peak_op);
    print_cluster(plan, out);
    print_forecast(forecast, out);
    sn_str_add(out, "largest at the peak:\n");
    for (int i = 0; i < b->n_largest; i++)
        sn_str_printf(out, "  %12s  %-13s %s\n", sn_bytes_text(b->largest[i].bytes, x), sn_class_name(b->largest[i].class_of),
                      b->largest[i].name);
}

static void json_forecast(const sn_forecast *f, sn_str *out) {
    if (!f) return;
    sn_str_printf(
        out,
        ", \"estimated\": {\"step_seconds\": %.6g, \"compute_seconds\": %.6g, \"communication_seconds\": %.6g, \"io_seconds\": %.6g, "
        "\"sent_bytes\": %.0f, \"node_sent_bytes\": %.0f, \"disk_read_bytes\": %.0f, \"disk_written_bytes\": %.0f, \"tokens_per_s\": %.6g",
        f->step_seconds, f->compute_seconds, f->communication_seconds, f->io_seconds, f->sent_bytes, f->node_sent_bytes, f->disk_read_bytes,
        f->disk_written_bytes, f->tokens_per_s);
    if (f->accelerator) {
        sn_str_printf(out, ", \"device_shape\": \"%s\", \"nodes\": %d, \"kernels\": \"cpu\", \"source\": ", f->accelerator->name, f->nodes);
        sn_str_json(out, f->accelerator->source, strlen(f->accelerator->source));
    }
    sn_str_add(out, "}");
}

void sn_bill_json(const sn_plan *plan, const sn_forecast *forecast, sn_str *out) {
    const sn_bill *b = &plan->bill;
    sn_str_printf(out, "{\"total_bytes\": %llu, \"reserved_bytes\": %llu, \"peak_op\": ", (unsigned long long)b->total,
                  (unsigned long long)b->reserved);
    sn_str_json(out, b->peak_op, strlen(b->peak_op));
    sn_str_printf(out, ", \"peak_program\": ");
    sn_str_json(out, b->peak_program, strlen(b->peak_program));
    sn_str_add(out, ", \"by_tier\": {");
    for (int t = 0; t < SN_TIER_COUNT; t++)
        sn_str_printf(out, "%s\"%s\": %llu", t ? ", " : "", sn_tier_name((sn_tier)t), (unsigned long long)b->by_tier[t]);
    sn_str_add(out, "}, \"at_rest\": {");
    for (int c = 0; c < SN_CLASS_COMMUNICATION; c++)
        sn_str_printf(out, "%s\"%s\": %llu", c ? ", " : "", sn_class_name((sn_class)c), (unsigned long long)b->at_rest[c]);
    sn_str_add(out, "}, \"by_class\": {");
    for (int c = 0; c < SN_CLASS_COUNT; c++)
        sn_str_printf(out, "%s\"%s\": %llu", c ? ", " : "", sn_class_name((sn_class)c),
                      (unsigned long long)(b->by_class[SN_TIER_DEVICE][c] + b->by_class[SN_TIER_HOST][c]));
    sn_str_add(out, "}");
    if (plan->ranks > 1)
        sn_str_printf(out, ", \"ranks\": %d, \"ranks_planned\": %d, \"rank\": %d", plan->ranks, plan->ranks_planned, plan->rank);
    json_forecast(forecast, out);
    sn_str_add(out, ", \"largest\": [");
    for (int i = 0; i < b->n_largest; i++) {
        sn_str_add(out, i ? ", {\"name\": " : "{\"name\": ");
        sn_str_json(out, b->largest[i].name, strlen(b->largest[i].name));
        sn_str_printf(out, ", \"class\": \"%s\", \"bytes\": %llu}", sn_class_name(b->largest[i].class_of),
                      (unsigned long long)b->largest[i].bytes);
    }
    sn_str_add(out, "]");
}
