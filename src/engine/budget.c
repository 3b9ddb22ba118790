#include "engine/budget.h"

#include <string.h>

#include "base/bytes.h"
#include "base/str.h"
#include "base/system.h"

static uint64_t budget_here(const sn_options *recipe, int ranks) {
    sn_budget b = sn_options_budget(recipe, "memory");
    if (b.bare == UINT64_MAX && b.device == UINT64_MAX && b.host == UINT64_MAX)
        return sn_memory_free() / (uint64_t)ranks; /* unset, or disk= alone */
    return b.bare != UINT64_MAX ? b.bare : b.device;
}

uint64_t sn_budget_bytes(const sn_options *recipe, int ranks) {
    const sn_accelerator *a = sn_accelerator_find(sn_options_string(recipe, "device_shape"));
    if (sn_options_given(recipe, "memory")) return budget_here(recipe, ranks);
    if (a) return a->bytes;
    return sn_options_int(recipe, "ranks") > 1 ? UINT64_MAX : budget_here(recipe, ranks);
}

/* Ranks that share a node's memory and disk. */
static int ranks_of_node(const sn_session *s) {
    if (s->world && s->world->comm) return s->world->local;
    return s->whole_cluster && s->nodes > 1 ? s->ranks / s->nodes : s->ranks;
}

static uint64_t free_below(const char *folder) {
    uint64_t bytes;
    return folder && *folder && sn_disk_free(folder, &bytes) == SN_OK ? bytes : UINT64_MAX;
}

sn_limits sn_limits_of(const sn_session *s, const sn_options *recipe) {
    bool addresses = s->device.shape.addresses >> SN_TIER_HOST & 1;
    sn_budget b = sn_options_budget(recipe, "memory");
    sn_limits l = {.most = {UINT64_MAX, b.host, b.disk}, .one_memory = addresses, .sharing = ranks_of_node(s)};
    l.stated[SN_HOLD_HOST] = b.host != UINT64_MAX;
    l.stated[SN_HOLD_DISK] = b.disk != UINT64_MAX;
    l.most[SN_HOLD_DEVICE] = sn_budget_bytes(recipe, l.sharing);
    l.stated[SN_HOLD_DEVICE] = s->accelerator || b.bare != UINT64_MAX || b.device != UINT64_MAX;
    bool named = b.bare == UINT64_MAX && b.device != UINT64_MAX;
    l.whole = !addresses && s->device.shape.kind == SN_DEVICE_CPU && !s->accelerator && !named;
    l.disk_free = s->accelerator || s->whole_cluster
                      ? UINT64_MAX
                      : free_below(sn_passes_folder(recipe, NULL)); /* another machine's disk is not this one */
    if (!strcmp(s->device.shape.name, "null"))
        l = (sn_limits){.most = {UINT64_MAX, UINT64_MAX, UINT64_MAX}, .disk_free = UINT64_MAX, .sharing = l.sharing};
    return l;
}

sn_limits sn_limits_stated(const sn_session *s, const sn_options *recipe) {
    sn_limits l = sn_limits_of(s, recipe);
    for (int h = 0; h < SN_HOLD_COUNT; h++)
        if (!l.stated[h]) l.most[h] = UINT64_MAX;
    l.disk_free = UINT64_MAX;
    return l;
}

void sn_limits_agree(sn_limits *l, const sn_world *w) {
    if (!w) return;
    for (int h = 0; h < SN_HOLD_COUNT; h++) l->most[h] = sn_world_least(w, l->most[h]);
    l->disk_free = sn_world_least(w, l->disk_free);
    l->sharing = SN_RANKS_MOST - (int)sn_world_least(w, (uint64_t)(SN_RANKS_MOST - l->sharing)); /* of the fullest node */
}

static uint64_t times(uint64_t bytes, int ranks) { return bytes > UINT64_MAX / (uint64_t)ranks ? UINT64_MAX : bytes * (uint64_t)ranks; }

static uint64_t disk_arenas(const sn_limits *l, const sn_bill *b) { return times(b->by_tier[SN_TIER_DISK] - b->files, l->sharing); }

void sn_needs_of(const sn_limits *l, const sn_bill *b, uint64_t need[SN_HOLD_COUNT]) {
    uint64_t arenas = disk_arenas(l, b);
    need[SN_HOLD_DEVICE] = l->one_memory || l->whole ? b->total : b->by_tier[SN_TIER_DEVICE];
    need[SN_HOLD_HOST] = times(l->one_memory ? b->total : b->by_tier[SN_TIER_HOST] + b->reserved, l->sharing);
    need[SN_HOLD_DISK] = arenas > UINT64_MAX - b->files ? UINT64_MAX : arenas + b->files; /* one rank writes the files */
}

bool sn_limits_hold(const sn_limits *l, const sn_bill *b) {
    uint64_t need[SN_HOLD_COUNT];
    sn_needs_of(l, b, need);
    for (int h = 0; h < SN_HOLD_COUNT; h++)
        if (need[h] > l->most[h]) return false;
    return disk_arenas(l, b) <= l->disk_free;
}

/* "host: the 2 ranks of a node need 3.1 GiB (N bytes), the budget is 2.0 GiB: N bytes (1.1 GiB) missing". */
static void describe(const sn_limits *l, sn_hold h, uint64_t need, sn_str *out) {
    char a[24], b[24], c[24];
    uint64_t missing = need - l->most[h];
    bool bare = h == SN_HOLD_DEVICE && (l->one_memory || l->whole);
    if (out->size) sn_str_add(out, "; ");
    if (!bare) sn_str_printf(out, "%s: ", sn_tier_name((sn_tier)h));
    if (h == SN_HOLD_DEVICE || l->sharing == 1) sn_str_add(out, "the plan needs");
    else sn_str_printf(out, "the %d ranks of a node need", l->sharing);
    sn_str_printf(out, " %s (%llu bytes), the budget is %s: %llu bytes (%s) missing", sn_bytes_text(need, a), (unsigned long long)need,
                  sn_bytes_text(l->most[h], b), (unsigned long long)missing, sn_bytes_text(missing, c));
}

sn_status sn_limits_check(const sn_limits *l, const sn_bill *b, const char *change) {
    uint64_t need[SN_HOLD_COUNT];
    sn_str text = {0};
    bool memory = false;
    char largest[24];
    sn_needs_of(l, b, need);
    for (int h = 0; h < SN_HOLD_COUNT; h++) {
        if (need[h] <= l->most[h]) continue;
        describe(l, (sn_hold)h, need[h], &text);
        memory |= h != SN_HOLD_DISK;
    }
    if (disk_arenas(l, b) > l->disk_free)
        sn_str_printf(&text, "%s%llu bytes are to rest on disk, %llu are free there", text.size ? "; " : "",
                      (unsigned long long)disk_arenas(l, b), (unsigned long long)l->disk_free);
    if (!text.size) return SN_OK;
    if (memory)
        sn_str_printf(&text, ". The peak is in %s at %s, the largest value there is %s (%s)", b->peak_program, b->peak_op,
                      b->n_largest ? b->largest[0].name : "?", sn_bytes_text(b->n_largest ? b->largest[0].bytes : 0, largest));
    sn_status s = sn_fail(SN_ERR_BUDGET, "%s%s%s", text.data ? text.data : "over budget", change ? "; " : "", change ? change : "");
    sn_str_free(&text);
    return s;
}

sn_status sn_session_check_budget(const sn_session *s, const sn_options *recipe) {
    sn_limits l = sn_limits_of(s, recipe);
    return sn_limits_check(&l, &s->most, NULL);
}
