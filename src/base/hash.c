#include "base/hash.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static const uint32_t sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha_block(uint32_t state[8], const uint8_t *p) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t e = rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25), choose = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t t1 = s[7] + e + choose + sha_k[i] + w[i];
        uint32_t a = rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22), most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + a + most;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void sn_sha256_start(sn_sha256 *h) {
    *h = (sn_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sn_sha256_add(sn_sha256 *h, const void *data, size_t n) {
    const uint8_t *p = data;
    size_t have = h->bytes % 64;
    h->bytes += n;
    while (n) {
        if (!have && n >= 64) {
            sha_block(h->state, p);
            p += 64;
            n -= 64;
            continue;
        }
        size_t take = 64 - have < n ? 64 - have : n;
        memcpy(h->block + have, p, take);
        p += take;
        n -= take;
        have += take;
        if (have == 64) {
            sha_block(h->state, h->block);
            have = 0;
        }
    }
}

void sn_sha256_end(sn_sha256 *h, char hex[65]) {
    uint64_t bits = h->bytes * 8;
    uint8_t pad[72] = {0x80}, length[8];
    size_t n = (h->bytes % 64 < 56 ? 56 : 120) - h->bytes % 64;
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sn_sha256_add(h, pad, n);
    sn_sha256_add(h, length, 8);
    for (int i = 0; i < 64; i++) hex[i] = "0123456789abcdef"[h->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    hex[64] = 0;
}

sn_status sn_sha256_file(const char *path, char hex[65]) {
    enum { CHUNK = 1 << 20 };
    int fd;
    uint64_t size;
    SN_TRY(sn_file_open(path, &fd, &size));
    char *buffer = sn_alloc(CHUNK);
    sn_status s = buffer ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a read buffer");
    sn_sha256 h;
    sn_sha256_start(&h);
    for (uint64_t at = 0; s == SN_OK && at < size;) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        s = sn_file_read_at(fd, path, at, buffer, n);
        if (s == SN_OK) sn_sha256_add(&h, buffer, n);
        at += n;
    }
    if (s == SN_OK) sn_sha256_end(&h, hex);
    sn_free(buffer);
    close(fd);
    return s;
}

static uint32_t crc_plain(uint32_t crc, const uint8_t *p, size_t n) {
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t c = crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    crc = (uint32_t)c;
    while (n--) crc = __builtin_ia32_crc32qi(crc, *p++);
    return crc;
}
#endif

uint32_t sn_crc32c(uint32_t crc, const void *data, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return ~crc_sse42(~crc, data, n);
#endif
    return ~crc_plain(~crc, data, n);
}

/* a times b as polynomials over GF(2), modulo that of CRC-32C; bit 31 is the coefficient of x^0. */
static uint32_t times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b & 1 ? b >> 1 ^ 0x82f63b78 : b >> 1;
    }
    return product;
}

/* n zero bytes behind A multiply its remainder by x^(8 n); the inversions at both ends cancel. */
uint32_t sn_crc32c_join(uint32_t a, uint32_t b, uint64_t n) {
    uint32_t shift = 1u << 31, square = 1u << 23; /* x^0, x^8 */
    for (; n; n >>= 1, square = times(square, square))
        if (n & 1) shift = times(shift, square);
    return times(shift, a) ^ b;
}
