#include "tensor/shape.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

sn_shape sn_shape_from(int rank, const int64_t *d) {
    sn_shape s = {.rank = rank < SN_MAX_DIMS ? rank : SN_MAX_DIMS};
    memcpy(s.d, d, (size_t)s.rank * sizeof *d);
    return s;
}

bool sn_shape_equal(const sn_shape *a, const sn_shape *b) {
    return a->rank == b->rank && !memcmp(a->d, b->d, (size_t)a->rank * sizeof a->d[0]);
}

bool sn_shape_elements(const sn_shape *s, int64_t *out) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        if (s->d[i] < 0 || !sn_mul_i64(n, s->d[i], &n)) return false;
    *out = n;
    return true;
}

bool sn_shape_bytes(const sn_shape *s, sn_dtype t, size_t *out) {
    int64_t elements;
    size_t row;
    if (!s->rank || !sn_shape_elements(s, &elements)) return false;
    int64_t columns = s->d[s->rank - 1], rows = columns ? elements / columns : 0;
    return sn_dtype_row_bytes(t, columns, &row) && sn_mul((size_t)rows, row, out);
}

const char *sn_shape_text(const sn_shape *s, char buffer[96]) {
    size_t at = 0;
    buffer[at++] = '[';
    for (int i = 0; i < s->rank && at < 80; i++) at += (size_t)snprintf(buffer + at, 96 - at, "%s%lld", i ? "," : "", (long long)s->d[i]);
    snprintf(buffer + at, 96 - at, "]");
    return buffer;
}
