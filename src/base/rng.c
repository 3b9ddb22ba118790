#include "base/rng.h"

#include <math.h>

void sn_normal2(uint32_t a, uint32_t b, float out[2]) {
    double u = ((double)a + 1.0) * 0x1p-32, angle = 6.283185307179586 * ((double)b * 0x1p-32);
    double radius = sqrt(-2.0 * log(u));
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}
