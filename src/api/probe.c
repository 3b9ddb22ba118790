#include "engine/probe.h"

#include <stdio.h>

#include "api/api.h"

snug_status snug_probe(int threads, bool again, const char *folder, snug_probe_result *out) {
    sn_probe p;
    bool cached;
    if (threads < 0 || threads > 1024) return (snug_status)sn_fail(SN_ERR_USAGE, "threads is %d, wanted 0 to 1024", threads);
    sn_status s = sn_probe_get(threads, again, folder, &p, &cached);
    if (s != SN_OK) return (snug_status)s;
    *out = (snug_probe_result){.threads = p.threads,
                               .f32_flops = p.f32_flops,
                               .bf16_flops = p.bf16_flops,
                               .int8_ops = p.int8_ops,
                               .read_bytes = p.read_bytes,
                               .kernels = p.profile.n,
                               .cached = cached};
    const sn_probe_disk *d = sn_probe_find_disk(&p, folder);
    if (d) out->disk_read_bytes = d->read_bytes;
    if (d) out->disk_write_bytes = d->write_bytes;
    snprintf(out->features, sizeof out->features, "%s", p.features);
    return SNUG_OK;
}
