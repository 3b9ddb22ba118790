#include "ops/adamw_8bit/dynamic_map.h"

#include <math.h>
#include <pthread.h>

#include "tensor/convert.h"

enum { DECADES = 7 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sn_dynamic_map with_sign, without_sign;

/* The numbers >= 0 in rising order; returns how many. */
static int positive_half(int first_parts, float *out) {
    int n = 0;
    out[n++] = 0;
    for (int decade = 0; decade < DECADES; decade++) {
        const int parts = first_parts << decade;
        const double top = pow(10, decade - (DECADES - 1));
        for (int i = 0; i < parts; i++) out[n++] = (float)(top * (0.1 + 0.9 * (i + 0.5) / parts));
    }
    out[n++] = 1;
    return n;
}

static void fill_places(sn_dynamic_map *m, const float *half, int n) {
    for (int i = 0; i < 256; i++) m->middle[i] = i + 1 < n ? (half[i] + half[i + 1]) * 0.5f : INFINITY;
    for (int key = 0, place = 0; key < SN_DYNAMIC_KEYS; key++) {
        const float least = key ? sn_bits_f32((uint32_t)(key + SN_DYNAMIC_KEY_FIRST) << SN_DYNAMIC_KEY_SHIFT) : 0;
        while (least > m->middle[place]) place++;
        m->place[key] = place;
    }
}

static void fill(void) {
    float half[256];
    int n = positive_half(1, half);
    for (int i = 0; i < n; i++) with_sign.value[SN_DYNAMIC_ZERO + i] = half[i];
    for (int i = 1; i <= SN_DYNAMIC_ZERO; i++) with_sign.value[SN_DYNAMIC_ZERO - i] = -half[i];
    fill_places(&with_sign, half, n);
    n = positive_half(2, half);
    for (int i = 0; i < n; i++) without_sign.value[i] = half[i];
    fill_places(&without_sign, half, n);
}

const sn_dynamic_map *sn_dynamic_map_signed(void) {
    pthread_once(&once, fill);
    return &with_sign;
}

const sn_dynamic_map *sn_dynamic_map_unsigned(void) {
    pthread_once(&once, fill);
    return &without_sign;
}
