#include "plan/ahead.h"

#include <string.h>

#include "plan/planner.h"

enum { MOST_WAITING = SN_DISK_TRANSFERS - 8 }; /* more would keep the writes between them from being under way */

/* Brings a value into memory, on a queue that does nothing else. */
static bool brings(const sn_graph *g, const sn_node *n) {
    if (n->n_out != 1 || n->out[0] == SN_NONE || g->values[n->out[0]].persistent != SN_NONE || g->values[n->out[0]].output) return false;
    if (n->op == SN_OP_fetch) return true;
    return n->op == SN_OP_copy && sn_plan_tier_of(&g->values[n->in[0].value]) == SN_TIER_HOST &&
           sn_plan_tier_of(&g->values[n->out[0]]) == SN_TIER_DEVICE;
}

static bool is_part(const sn_use *u) { return u->slice_n && !u->has_split; }

/* Whether a node makes or changes what another brings. */
static bool changes_source(const sn_node *n, const sn_use *source) {
    for (int o = 0; o < n->n_out; o++)
        if (n->out[o] == source->value) return true;
    for (int i = 0; i < n->n_in; i++) {
        const sn_use *u = &n->in[i];
        if (u->value != source->value || !(sn_ops[n->op]->mutates >> i & 1)) continue;
        if (!is_part(u) || !is_part(source)) return true;
        if (u->slice_at < source->slice_at + source->slice_n && source->slice_at < u->slice_at + u->slice_n) return true;
    }
    return false;
}

/* The order is written from its end. What is to be brought waits, the latest use first, until it can wait no longer. */
typedef struct writer {
    const sn_ahead *a;
    sn_nid *out; /* of the place before which the next node goes */
    sn_nid waiting[MOST_WAITING];
    size_t n_waiting;
    uint64_t bytes[SN_TIER_COUNT]; /* that wait */
} writer;

static const sn_value *brought(const writer *w, sn_nid n) { return &w->a->g->values[w->a->g->nodes[n].out[0]]; }

static uint64_t bytes_of(const writer *w, sn_nid n) { return w->a->bytes[w->a->g->nodes[n].out[0]]; }

static void place_waiting(writer *w, size_t count) {
    for (size_t i = 0; i < count; i++) {
        *--w->out = w->waiting[i];
        w->bytes[sn_plan_tier_of(brought(w, w->waiting[i]))] -= bytes_of(w, w->waiting[i]);
    }
    w->n_waiting -= count;
    memmove(w->waiting, w->waiting + count, w->n_waiting * sizeof *w->waiting);
}

static void take(writer *w, sn_nid id) {
    const sn_node *n = &w->a->g->nodes[id];
    sn_tier t = sn_plan_tier_of(brought(w, id));
    for (size_t i = w->n_waiting; i-- > 0;)
        if (w->a->g->nodes[w->waiting[i]].in[0].value == n->out[0]) { /* the next leg of its way */
            place_waiting(w, i + 1);
            break;
        }
    while (w->n_waiting && (w->n_waiting == MOST_WAITING || w->bytes[t] + bytes_of(w, id) > w->a->window)) place_waiting(w, 1);
    if (bytes_of(w, id) > w->a->window) {
        *--w->out = id;
        return;
    }
    w->waiting[w->n_waiting++] = id;
    w->bytes[t] += bytes_of(w, id);
}

static void pass_over(writer *w, sn_nid id, size_t k) {
    const sn_node *n = &w->a->g->nodes[id];
    for (size_t i = w->n_waiting; i-- > 0;)
        if (changes_source(n, &w->a->g->nodes[w->waiting[i]].in[0])) {
            place_waiting(w, i + 1);
            break;
        }
    for (int t = 0; t < SN_TIER_DISK; t++)
        while (w->n_waiting && w->bytes[t] && w->a->live[t][k] + w->bytes[t] > w->a->most[t]) place_waiting(w, 1);
    *--w->out = id;
}

sn_status sn_plan_ahead(const sn_ahead *a, sn_nid *order, size_t n, bool *moved) {
    *moved = false;
    sn_nid *before = sn_alloc(n * sizeof *before);
    if (!before) return sn_fail(SN_ERR_NO_MEMORY, "cannot order %s", a->g->name);
    memcpy(before, order, n * sizeof *before);
    writer w = {.a = a, .out = order + n};
    for (size_t k = n; k-- > 0;) {
        if (brings(a->g, &a->g->nodes[before[k]])) take(&w, before[k]);
        else pass_over(&w, before[k], k);
    }
    place_waiting(&w, w.n_waiting);
    *moved = memcmp(before, order, n * sizeof *before) != 0;
    sn_free(before);
    return SN_OK;
}
