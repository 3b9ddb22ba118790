/* Reading of zip archives, such as Python wheels.
 *
 * Source: PKWARE APPNOTE 6.3. Stored and deflated members; encrypted, multi-disk and ZIP64 archives are
 * SN_ERR_UNSUPPORTED. Every size and offset is checked against the file, every member against its CRC-32. */
#ifndef SN_IO_ZIP_H
#define SN_IO_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sn_zip_member {
    const char *name;       /* NUL-terminated, without NUL inside */
    uint64_t bytes, packed; /* unpacked and stored sizes */
    uint64_t offset;        /* of the local header */
    uint32_t crc;           /* CRC-32 of the unpacked bytes */
    int method;             /* 0 stored, 8 deflated, others cannot be unpacked */
} sn_zip_member;

typedef struct sn_zip sn_zip;

sn_status sn_zip_open(const char *path, sn_zip **out);
void sn_zip_close(sn_zip *zip); /* NULL is fine */

size_t sn_zip_count(const sn_zip *zip);
const sn_zip_member *sn_zip_member_at(const sn_zip *zip, size_t i);
const sn_zip_member *sn_zip_find(const sn_zip *zip, const char *name); /* NULL: no such member */

/* Receives the unpacked bytes in order, in pieces; what it returns other than SN_OK ends the unpacking. */
typedef sn_status (*sn_zip_sink)(void *context, const void *data, size_t n);

/* Unpacks a member through `sink`. SN_ERR_FORMAT when its size or CRC is not what the archive states; the bytes
 * given to the sink before that are then worthless. */
sn_status sn_zip_read(const sn_zip *zip, const sn_zip_member *m, sn_zip_sink sink, void *context);

#endif
