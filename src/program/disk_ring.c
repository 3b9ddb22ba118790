/* Several transfers of the disk arena at once: io_uring, through liburing. A transfer past the page cache is cut into parts, all
 * submitted together; a part that comes back short or with an error makes its whole transfer again, one after the other, which then
 * says what is wrong. Without liburing, or where the system forbids io_uring, transfers are made where they are started. */
#include "program/files.h"

#ifdef SNUG_URING
#include <errno.h>
#include <liburing.h>
#include <string.h>

#include "base/mem.h"

enum { ENTRIES = 512, MOST_PARTS = ENTRIES / SN_DISK_TRANSFERS, LEAST_PART = 256 << 10 };

typedef struct transfer {
    uint64_t offset;
    char *data;
    size_t bytes, part; /* of a part; the last is shorter */
    unsigned left;      /* parts that have not ended */
    bool write, failed;
} transfer;

struct sn_disk_ring {
    struct io_uring io;
    bool dead; /* it refused a request: no other is made */
    transfer transfers[SN_DISK_TRANSFERS];
};

sn_status sn_disk_ring_open(sn_disk *d) {
    if (d->direct < 0) return SN_OK;
    struct sn_disk_ring *r = sn_alloc_zero(1, sizeof *r);
    if (!r) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate transfers of the disk tier");
    if (io_uring_queue_init(ENTRIES, &r->io, 0)) sn_free(r);
    else d->ring = r;
    return SN_OK;
}

void sn_disk_ring_close(sn_disk *d) {
    if (!d->ring) return;
    for (unsigned t = 0; t < SN_DISK_TRANSFERS; t++) (void)sn_disk_finish(d, t); /* nothing may be written behind our back */
    io_uring_queue_exit(&d->ring->io);
    sn_free(d->ring);
    d->ring = NULL;
}

static size_t part_bytes(const transfer *t, unsigned part) {
    size_t at = part * t->part;
    return t->bytes - at < t->part ? t->bytes - at : t->part;
}

static void part_ended(struct sn_disk_ring *r, struct io_uring_cqe *e) {
    uint64_t mark = io_uring_cqe_get_data64(e);
    transfer *t = &r->transfers[mark >> 32];
    if (e->res < 0 || (size_t)e->res != part_bytes(t, (unsigned)(mark & UINT32_MAX))) t->failed = true;
    t->left--;
    io_uring_cqe_seen(&r->io, e);
}

bool sn_disk_under_way(const sn_disk *d, unsigned ticket) {
    struct io_uring_cqe *e;
    if (!d->ring) return false;
    while (d->ring->transfers[ticket].left && !io_uring_peek_cqe(&d->ring->io, &e)) part_ended(d->ring, e);
    return d->ring->transfers[ticket].left > 0;
}

static sn_status again(const sn_disk *d, const transfer *t) {
    return t->write ? sn_disk_write(d, t->offset, t->data, t->bytes) : sn_disk_read(d, t->offset, t->data, t->bytes);
}

/* Hands all prepared entries to the kernel. */
static sn_status submit(const sn_disk *d, transfer *t) {
    struct sn_disk_ring *r = d->ring;
    for (unsigned ready; (ready = io_uring_sq_ready(&r->io));) {
        int sent = io_uring_submit(&r->io);
        if (sent >= 0 || sent == -EINTR || sent == -EAGAIN || sent == -EBUSY) continue;
        r->dead = true;
        t->left -= ready;
        return sn_fail(SN_ERR_FILE, "cannot reach the disk tier in %s: %s", d->path, strerror(-sent));
    }
    return SN_OK;
}

sn_status sn_disk_start(const sn_disk *d, bool write, uint64_t offset, void *data, size_t n, unsigned ticket) {
    bool whole_blocks = !(offset % SN_DISK_ALIGN) && !((uintptr_t)data % SN_DISK_ALIGN) && !(n % SN_DISK_ALIGN);
    bool inside = offset <= d->bytes && n <= d->bytes - offset;
    size_t part = sn_round_up((n + MOST_PARTS - 1) / MOST_PARTS, SN_DISK_ALIGN);
    transfer t = {.offset = offset, .data = data, .bytes = n, .part = part < LEAST_PART ? LEAST_PART : part, .write = write};
    if (!d->ring || d->ring->dead || !whole_blocks || !n || !inside || t.part > 1 << 30) return again(d, &t);
    for (size_t at = 0; at < n; at += t.part) {
        struct io_uring_sqe *e = io_uring_get_sqe(&d->ring->io); /* there are entries for the parts of all transfers */
        if (write) io_uring_prep_write(e, d->direct, t.data + at, (unsigned)part_bytes(&t, t.left), offset + at);
        else io_uring_prep_read(e, d->direct, t.data + at, (unsigned)part_bytes(&t, t.left), offset + at);
        io_uring_sqe_set_data64(e, (uint64_t)ticket << 32 | t.left++);
    }
    d->ring->transfers[ticket] = t;
    return submit(d, &d->ring->transfers[ticket]);
}

sn_status sn_disk_finish(const sn_disk *d, unsigned ticket) {
    if (!d->ring) return SN_OK;
    transfer *t = &d->ring->transfers[ticket];
    while (t->left) {
        struct io_uring_cqe *e;
        int bad = io_uring_wait_cqe(&d->ring->io, &e);
        if (!bad) part_ended(d->ring, e);
        else if (bad != -EINTR) return sn_fail(SN_ERR_FILE, "cannot wait for the disk tier in %s: %s", d->path, strerror(-bad));
    }
    if (!t->failed) return SN_OK;
    t->failed = false;
    return again(d, t);
}

#else

sn_status sn_disk_ring_open(sn_disk *d) {
    (void)d;
    return SN_OK;
}

void sn_disk_ring_close(sn_disk *d) { (void)d; }

bool sn_disk_under_way(const sn_disk *d, unsigned ticket) {
    (void)d, (void)ticket;
    return false;
}

sn_status sn_disk_start(const sn_disk *d, bool write, uint64_t offset, void *data, size_t n, unsigned ticket) {
    (void)ticket;
    return write ? sn_disk_write(d, offset, data, n) : sn_disk_read(d, offset, data, n);
}

sn_status sn_disk_finish(const sn_disk *d, unsigned ticket) {
    (void)d, (void)ticket;
    return SN_OK;
}
#endif
