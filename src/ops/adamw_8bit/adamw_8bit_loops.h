/* The loops of adamw_8bit, compiled for each processor feature. */
#ifndef SN_OPS_ADAMW_8BIT_LOOPS_H
#define SN_OPS_ADAMW_8BIT_LOOPS_H

#include "ops/adamw/adamw_step.h"
#include "ops/adamw_8bit/adamw_8bit.h"

/* Codes of n <= SN_PIECE elements from the start of a block on, as f32. */
static void decode_blocks(const sn_dynamic_map *map, const uint8_t *code, const float *largest, int64_t n, float *out) {
    for (int64_t at = 0; at < n; at += SN_DYNAMIC_BLOCK) {
        const float scale = *largest++;
        const uint8_t *from = code + at;
        float *to = out + at;
        SN_EACH(i, sn_min_i64(SN_DYNAMIC_BLOCK, n - at), to[i] = map->value[from[i]] * scale;);
    }
}

static float absolute_maximum(const float *x, int64_t n) {
    float lane[SN_LANES] = {0}, most = 0;
    int64_t at = 0;
    for (; at + SN_LANES <= n; at += SN_LANES)
        for (int l = 0; l < SN_LANES; l++) {
            const float a = sn_bits_f32(sn_f32_bits(x[at + l]) & 0x7fffffffu);
            lane[l] = a > lane[l] ? a : lane[l];
        }
    for (; at < n; at++) lane[0] = fabsf(x[at]) > lane[0] ? fabsf(x[at]) : lane[0];
    for (int l = 0; l < SN_LANES; l++) most = lane[l] > most ? lane[l] : most;
    return most;
}

/* The place of a >= 0 among the map's numbers >= 0, the nearest; of a NaN some place. */
#define SN_PLACE(map, a, place)                                                                                     \
    const int32_t key_##place = (int32_t)(sn_f32_bits(a) >> SN_DYNAMIC_KEY_SHIFT) - SN_DYNAMIC_KEY_FIRST;           \
    const int32_t low_##place = key_##place < 0 ? 0 : key_##place;                                                  \
    const int32_t floor_##place = (map)->place[low_##place >= SN_DYNAMIC_KEYS ? SN_DYNAMIC_KEYS - 1 : low_##place]; \
    const int32_t place = floor_##place + ((a) > (map)->middle[floor_##place] ? 1 : 0)

static void encode_signed(const sn_dynamic_map *map, const float *x, int64_t n, float *largest, uint8_t *code) {
    for (int64_t at = 0; at < n; at += SN_DYNAMIC_BLOCK) {
        const int64_t count = sn_min_i64(SN_DYNAMIC_BLOCK, n - at);
        const float *from = x + at;
        uint8_t *to = code + at;
        const float most = absolute_maximum(from, count), divisor = most > 0 ? most : 1;
        *largest++ = most;
        SN_EACH(i, count, const float q = from[i] / divisor; const float a = sn_bits_f32(sn_f32_bits(q) & 0x7fffffffu);
                SN_PLACE(map, a, place); const int32_t below = SN_DYNAMIC_ZERO - (place > SN_DYNAMIC_ZERO ? SN_DYNAMIC_ZERO : place);
                to[i] = (uint8_t)(q < 0 ? below : SN_DYNAMIC_ZERO + place););
    }
}

static void encode_unsigned(const sn_dynamic_map *map, const float *x, int64_t n, float *largest, uint8_t *code) {
    for (int64_t at = 0; at < n; at += SN_DYNAMIC_BLOCK) {
        const int64_t count = sn_min_i64(SN_DYNAMIC_BLOCK, n - at);
        const float *from = x + at;
        uint8_t *to = code + at;
        const float most = absolute_maximum(from, count), divisor = most > 0 ? most : 1;
        *largest++ = most;
        SN_EACH(i, count, const float a = from[i] / divisor; SN_PLACE(map, a, place); to[i] = (uint8_t)place;);
    }
}

static void adamw_8bit_task(void *context, int64_t task, int member) {
    (void)member;
    const sn_call *c = context;
    const sn_tensor *w = &c->in[0], *g = &c->in[1], *w16 = &c->in[8];
    const sn_dynamic_map *m_map = sn_dynamic_map_signed(), *v_map = sn_dynamic_map_unsigned();
    const float *hyper = c->in[6].data;
    const adamw_numbers numbers = adamw_prepare(c->attrs.f, hyper, c->in[7].data);
    const sn_random random = sn_update_random(hyper, c->attrs.i[SN_ADAMW_PARAMETER], 0);
    float w_buffer[SN_PIECE], g_buffer[SN_PIECE], m_buffer[SN_PIECE], v_buffer[SN_PIECE];
    SN_EACH_PIECE(at, n, task, sn_elements(w)) {
        uint8_t *m = (uint8_t *)c->in[2].data + at, *v = (uint8_t *)c->in[4].data + at;
        float *m_max = (float *)c->in[3].data + at / SN_DYNAMIC_BLOCK, *v_max = (float *)c->in[5].data + at / SN_DYNAMIC_BLOCK;
        const float *grad = sn_load_f32(g->dtype, sn_element(g, at), n, g_buffer);
        const float *weight = sn_load_f32(w->dtype, sn_element(w, at), n, w_buffer);
        float *w_new = sn_result_f32(w->dtype, sn_element(w, at), w_buffer);
        decode_blocks(m_map, m, m_max, n, m_buffer);
        decode_blocks(v_map, v, v_max, n, v_buffer);
        adamw_piece(&numbers, grad, weight, m_buffer, v_buffer, n, w_new, m_buffer, v_buffer);
        sn_store_updated(w, at, n, w_new, &random, c->attrs.i[SN_ADAMW_FIRST]);
        encode_signed(m_map, m_buffer, n, m_max, m);
        encode_unsigned(v_map, v_buffer, n, v_max, v);
        if (sn_has(c, 8)) sn_store_copy(w16, at, n, w_new, hyper, c->attrs.i[SN_ADAMW_PARAMETER], c->attrs.i[SN_ADAMW_FIRST]);
    }
}

static void adamw_8bit_run(const sn_call *c) {
    if (((const float *)c->in[7].data)[SN_CLIP_APPLIED] == 0) return;
    sn_team_run(c->team, sn_tasks(sn_elements(&c->in[0]), SN_TASK), adamw_8bit_task, (void *)c);
}

#endif
