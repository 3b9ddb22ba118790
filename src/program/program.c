#include "program/program.h"

const char *sn_tier_name(sn_tier t) {
    static const char *const names[] = {"device", "host", "disk"};
    return (unsigned)t < SN_TIER_COUNT ? names[t] : "?";
}

const char *sn_class_name(sn_class c) {
    static const char *const names[] = {
#define X(id, name) name,
        SN_CLASS_LIST(X)
#undef X
    };
    return (unsigned)c < SN_CLASS_COUNT ? names[c] : "?";
}

const char *sn_queue_name(sn_queue q) {
    static const char *const names[] = {"compute", "copy", "comm", "io"};
    return (unsigned)q < SN_QUEUE_COUNT ? names[q] : "?";
}
