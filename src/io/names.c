#include "io/names.h"

#include <string.h>

/* FNV-1a, then the finaliser of MurmurHash3 so that the low bits depend on all. */
static uint64_t hash_of(const char *text, size_t size) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
}

/* The slot that holds the name, or the free one where it would go. */
static size_t slot_of(const sn_names *set, const char *text, size_t size, uint64_t hash) {
    size_t slot = hash & (set->slot_count - 1);
    for (; set->slots[slot]; slot = (slot + 1) & (set->slot_count - 1)) {
        const sn_name_entry *n = &set->items[set->slots[slot] - 1];
        if (n->hash == hash && n->size == size && !memcmp(n->text, text, size)) break;
    }
    return slot;
}

static sn_status make_room(sn_names *set) {
    SN_TRY(SN_GROW(set->items, set->count, set->capacity));
    if ((set->count + 1) * 2 <= set->slot_count) return SN_OK;
    if (set->count >= UINT32_MAX / 4) return sn_fail(SN_ERR_NO_MEMORY, "more than %zu names", set->count);
    size_t slot_count = set->slot_count ? set->slot_count * 2 : 64;
    uint32_t *slots = sn_alloc_zero(slot_count, sizeof *slots);
    if (!slots) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a table of %zu names", slot_count);
    sn_free(set->slots);
    set->slots = slots;
    set->slot_count = slot_count;
    for (size_t i = 0; i < set->count; i++) {
        size_t slot = set->items[i].hash & (slot_count - 1);
        while (slots[slot]) slot = (slot + 1) & (slot_count - 1);
        slots[slot] = (uint32_t)i + 1;
    }
    return SN_OK;
}

sn_status sn_names_add(sn_names *set, const char *text, size_t size, size_t *index, bool *added) {
    SN_TRY(make_room(set));
    uint64_t hash = hash_of(text, size);
    size_t slot = slot_of(set, text, size, hash);
    *added = !set->slots[slot];
    if (!*added) {
        *index = set->slots[slot] - 1;
        return SN_OK;
    }
    char *copy = sn_pool_alloc(&set->pool, size + 1);
    if (!copy) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a name of %zu bytes", size);
    memcpy(copy, text, size);
    *index = set->count;
    set->items[set->count++] = (sn_name_entry){.text = copy, .size = size, .hash = hash};
    set->slots[slot] = (uint32_t)set->count;
    return SN_OK;
}

bool sn_names_find(const sn_names *set, const char *text, size_t size, size_t *index) {
    if (!set->count) return false;
    size_t slot = slot_of(set, text, size, hash_of(text, size));
    if (!set->slots[slot]) return false;
    *index = set->slots[slot] - 1;
    return true;
}

void sn_names_free(sn_names *set) {
    sn_free(set->items);
    sn_free(set->slots);
    sn_pool_free(&set->pool);
    *set = (sn_names){0};
}
