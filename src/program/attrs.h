/* Attributes of an instruction: plain numbers, fixed when the graph is built. What changes from step to step
 * (learning rate, lengths, positions, keys) is an input, never an attribute. Each op's header names its slots. */
#ifndef SN_PROGRAM_ATTRS_H
#define SN_PROGRAM_ATTRS_H

#include <stdint.h>

enum { SN_ATTR_INTS = 10, SN_ATTR_FLOATS = 6 };

typedef struct sn_attrs {
    int64_t i[SN_ATTR_INTS];
    double f[SN_ATTR_FLOATS];
} sn_attrs;

#endif
