/* libFuzzer target: any bytes as a zip archive, every member of which is unpacked. */
#define _GNU_SOURCE /* memfd_create */
#include "io/zip.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static sn_status pass(void *context, const void *data, size_t n) {
    (void)context, (void)data, (void)n;
    return SN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[40];
    sn_zip *zip;
    int fd = memfd_create("zip", 0);
    if (fd < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size && sn_zip_open(path, &zip) == SN_OK) {
        for (size_t i = 0; i < sn_zip_count(zip) && i < 100; i++) sn_zip_read(zip, sn_zip_member_at(zip, i), pass, NULL);
        sn_zip_close(zip);
    }
    close(fd);
    return 0;
}
