/* Sizes in bytes as people write them. */
#ifndef SN_BASE_BYTES_H
#define SN_BASE_BYTES_H

#include <stdbool.h>
#include <stdint.h>

/* "8GiB", "1.5 GB", "512", "4G": a number that is not negative and a unit, in any case of letters. KiB, MiB, GiB, TiB
 * and K, M, G, T are powers of 1024; KB, MB, GB, TB powers of 1000; B or nothing: bytes. False for anything else, and for
 * what does not fit. */
bool sn_bytes_parse(const char *text, uint64_t *out);

/* "512 B", "1.5 KiB", "93.8 MiB", "7.99 GiB": three digits that count; for people. Returns buffer. */
const char *sn_bytes_text(uint64_t bytes, char buffer[24]);

#endif
