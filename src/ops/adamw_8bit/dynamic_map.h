/* The dynamic 8-bit map: 256 numbers in [-1, 1] whose leading zeros in decimal are the exponent and whose other bits divide
 * that decade evenly, so that small numbers keep a few digits. A block of numbers is divided by its absolute maximum and each
 * quotient takes the code of the nearest number. Source: Dettmers et al. 2021 (arXiv 2110.02861), section 2; the values are those
 * of bitsandbytes' create_dynamic_map.
 *
 * With n exponent zeros (0 .. 6) the decade (10^-(n+1), 10^-n) is cut into 2^(6-n) equal parts (2^(7-n) without a sign), and a
 * part stands for its middle; besides there are 0 and 1, but not -1. Codes are in rising order. */
#ifndef SN_OPS_DYNAMIC_MAP_H
#define SN_OPS_DYNAMIC_MAP_H

#include <stdint.h>

enum {
    SN_DYNAMIC_BLOCK = 256, /* elements that share an absolute maximum */
    SN_DYNAMIC_ZERO = 127,  /* code of 0 in the signed map; in the unsigned map it is 0 */
    SN_DYNAMIC_KEY_SHIFT = 16,
    SN_DYNAMIC_KEY_FIRST = (127 - 24) << 7, /* 2^-24, far below half of the smallest number */
    SN_DYNAMIC_KEYS = 24 * 128 + 1          /* to 1.0 */
};

typedef struct sn_dynamic_map {
    float value[256];  /* by code */
    float middle[256]; /* by place among the numbers >= 0: halfway to the next; infinite after the last */
    /* By the upper bits of a number's pattern less SN_DYNAMIC_KEY_FIRST: the place of the smallest number with them. None has more
     * than one middle among its numbers, so one comparison finds the place. */
    int32_t place[SN_DYNAMIC_KEYS];
} sn_dynamic_map;

/* Tables that are made at the first call, of any thread. */
const sn_dynamic_map *sn_dynamic_map_signed(void);
const sn_dynamic_map *sn_dynamic_map_unsigned(void);

#endif
