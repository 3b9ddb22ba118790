#include "base/bytes.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool unit_size(const char *unit, uint64_t *size) {
    static const char letters[] = "kmgt";
    *size = 1;
    if (!*unit || !strcasecmp(unit, "b")) return true;
    const char *at = strchr(letters, tolower((unsigned char)*unit));
    if (!at) return false;
    const char *rest = unit + 1;
    bool decimal = !strcasecmp(rest, "b");
    if (!decimal && *rest && strcasecmp(rest, "ib")) return false;
    for (const char *p = letters; p <= at; p++) *size *= decimal ? 1000 : 1024;
    return true;
}

bool sn_bytes_parse(const char *text, uint64_t *out) {
    while (isspace((unsigned char)*text)) text++;
    size_t digits = strspn(text, "0123456789"), fraction = 0;
    if (text[digits] == '.') fraction = strspn(text + digits + 1, "0123456789");
    if (digits + fraction == 0) return false;
    const char *rest = text + digits + (text[digits] == '.' ? fraction + 1 : 0);
    while (isspace((unsigned char)*rest)) rest++;
    char unit[8] = "";
    size_t n = strlen(rest);
    while (n && isspace((unsigned char)rest[n - 1])) n--;
    if (n >= sizeof unit) return false;
    memcpy(unit, rest, n);
    uint64_t size;
    if (!unit_size(unit, &size)) return false;
    errno = 0;
    unsigned long long whole = digits ? strtoull(text, NULL, 10) : 0;
    if (errno || __builtin_mul_overflow(whole, size, out)) return false;
    if (!fraction) return true;
    double part = strtod(text + digits, NULL) * (double)size;
    return !__builtin_add_overflow(*out, (uint64_t)(part + 0.5), out);
}

const char *sn_bytes_text(uint64_t bytes, char buffer[24]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int unit = 0;
    for (; v >= 999.5 && unit < 6; unit++) v /= 1024; /* not 1024: "1000 KiB" would be four digits */
    if (unit == 0) snprintf(buffer, 24, "%llu B", (unsigned long long)bytes);
    else snprintf(buffer, 24, "%.*f %s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[unit]);
    return buffer;
}
