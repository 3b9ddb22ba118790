/* SHA-256 (FIPS 180-4), for files that were downloaded or saved; CRC-32C (RFC 3720), for TensorBoard records. */
#ifndef SN_BASE_HASH_H
#define SN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sn_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} sn_sha256;

void sn_sha256_start(sn_sha256 *h);
void sn_sha256_add(sn_sha256 *h, const void *data, size_t n);
void sn_sha256_end(sn_sha256 *h, char hex[65]); /* lower case, NUL-terminated */
sn_status sn_sha256_file(const char *path, char hex[65]);

uint32_t sn_crc32c(uint32_t crc, const void *data, size_t n); /* start with 0 */

/* The CRC-32C of A followed by the n bytes of B, from those of A and of B. */
uint32_t sn_crc32c_join(uint32_t a, uint32_t b, uint64_t n);

#endif
