/* snug probe: what the machine can do at most. */
#include "cli/cli.h"

static void line(const char *name, double rate, const char *unit) {
    if (rate > 0) printf("%-16s %10.1f %s\n", name, rate / 1e9, unit);
    else printf("%-16s %10s\n", name, "-");
}

int cli_probe(cli *c) {
    snug_probe_result r;
    if (c->n_arguments) return cli_usage("probe takes no arguments");
    snug_status s = snug_probe((int)snug_options_integer(c->options, "threads"), cli_flag(c, "again"), cli_text(c, "disk"), &r);
    if (s != SNUG_OK) return cli_fail(s);
    if (cli_flag(c, "json")) {
        printf("{\"features\": \"%s\", \"threads\": %d, \"f32_flops\": %.6g, \"bf16_flops\": %.6g, \"int8_ops\": %.6g, "
               "\"read_bytes_per_s\": %.6g, \"disk_read_bytes_per_s\": %.6g, \"disk_write_bytes_per_s\": %.6g, \"kernels\": %zu, "
               "\"cached\": %s}\n",
               r.features, r.threads, r.f32_flops, r.bf16_flops, r.int8_ops, r.read_bytes, r.disk_read_bytes, r.disk_write_bytes, r.kernels,
               r.cached ? "true" : "false");
        return CLI_OK;
    }
    printf("%s, %d threads%s\n", r.features, r.threads, r.cached ? " (measured before; --again measures anew)" : "");
    line("f32", r.f32_flops, "GFLOP/s");
    line("bf16", r.bf16_flops, "GFLOP/s");
    line("int8", r.int8_ops, "GOP/s");
    line("memory, reading", r.read_bytes, "GB/s");
    if (cli_text(c, "disk")) line("disk, reading", r.disk_read_bytes, "GB/s");
    if (cli_text(c, "disk")) line("disk, writing", r.disk_write_bytes, "GB/s");
    printf("%zu kernels at their sizes, for time estimates\n", r.kernels);
    return CLI_OK;
}
