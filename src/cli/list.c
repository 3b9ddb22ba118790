/* snug list: named and pulled models. */
#include "cli/cli.h"

static void print_json(const snug_listed *m, size_t n) {
    putchar('[');
    for (size_t i = 0; i < n; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        cli_json_string(stdout, m[i].name, SIZE_MAX);
        printf(", \"path\": ");
        if (m[i].path) cli_json_string(stdout, m[i].path, SIZE_MAX);
        else printf("null");
        printf(", \"bytes\": %llu, \"about\": ", (unsigned long long)m[i].bytes);
        cli_json_string(stdout, m[i].about, SIZE_MAX);
        putchar('}');
    }
    printf("]\n");
}

int cli_list(cli *c) {
    snug_listed *models;
    size_t n;
    char size[24];
    if (c->n_arguments) return cli_usage("list takes no arguments");
    snug_status s = snug_list(&models, &n);
    if (s != SNUG_OK) return cli_fail(s);
    if (cli_flag(c, "json")) {
        print_json(models, n);
    } else {
        printf("%-32s %9s  %-7s %s\n", "NAME", "SIZE", "", "");
        for (size_t i = 0; i < n; i++)
            printf("%-32s %9s  %-7s %s\n", models[i].name, cli_bytes(models[i].bytes, size), models[i].path ? "pulled" : "-",
                   models[i].about);
    }
    snug_free(models);
    return CLI_OK;
}
