/* snug detokenize: token ids to text. A file has a row of ids a line: numbers, or {"input_ids": [...]}. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

typedef struct ids {
    int32_t *data;
    size_t n, capacity;
} ids;

static bool push(ids *list, const char *text, char **end) {
    errno = 0;
    long id = strtol(text, end, 10);
    if (*end == text || errno || id < 0 || id > INT32_MAX) return false;
    if (list->n == list->capacity) {
        size_t more = list->capacity ? list->capacity * 2 : 64;
        int32_t *data = realloc(list->data, more * sizeof *data);
        if (!data) return false;
        list->data = data;
        list->capacity = more;
    }
    list->data[list->n++] = (int32_t)id;
    return true;
}

/* Whole numbers between any of: space, comma, brackets. */
static bool read_line(char *line, ids *list) {
    char *at = line, *key = strstr(line, "\"input_ids\"");
    char *end = line + strlen(line);
    if (key) {
        at = key + strlen("\"input_ids\"") + strspn(key + strlen("\"input_ids\""), " \t:");
        char *close = strchr(at, ']');
        if (*at != '[' || !close) return false;
        end = close;
        *end = 0;
    }
    list->n = 0;
    for (;;) {
        at += strspn(at, " \t\r,[]");
        if (at >= end || !*at) return true;
        if (!push(list, at, &at)) return false;
    }
}

static int print_ids(const cli *c, const snug_model *model, const ids *list) {
    char *text;
    size_t n;
    snug_status s = snug_detokenize(model, list->data, list->n, &text, &n);
    if (s != SNUG_OK) return cli_fail(s);
    if (cli_flag(c, "json")) {
        printf("{\"text\": ");
        cli_json_string(stdout, text, n);
        printf("}\n");
    } else {
        fwrite(text, 1, n, stdout);
        putchar('\n');
    }
    snug_free(text);
    return CLI_OK;
}

static int print_file(const cli *c, const snug_model *model, const char *path, ids *list) {
    char *text;
    size_t size;
    int status = CLI_OK;
    if (!cli_read_file(path, &text, &size)) return CLI_FAILED;
    long line = 0;
    for (char *at = text; *at && status == CLI_OK;) {
        size_t n = strcspn(at, "\n");
        bool more = at[n] == '\n';
        at[n] = 0;
        line++;
        if (!read_line(at, list)) {
            fprintf(stderr, "snug: %s:%ld: wanted token ids\n", path, line);
            status = CLI_FAILED;
        } else {
            status = print_ids(c, model, list);
        }
        at += n + more;
    }
    free(text);
    return status;
}

int cli_detokenize(cli *c) {
    const char *file = cli_text(c, "data");
    snug_model *model = NULL;
    ids list = {0};
    char *end;
    if (!c->n_arguments || (!file && c->n_arguments < 2) || (file && c->n_arguments > 1))
        return cli_usage("detokenize needs a model and either --data FILE or ids");
    for (size_t i = 1; i < c->n_arguments; i++)
        if (!push(&list, c->arguments[i], &end) || *end) {
            free(list.data);
            return cli_usage("'%s' is no token id", c->arguments[i]);
        }
    snug_status s = snug_model_open(c->arguments[0], &model);
    int status = s != SNUG_OK ? cli_fail(s) : file ? print_file(c, model, file, &list) : print_ids(c, model, &list);
    free(list.data);
    snug_model_close(model);
    return status;
}
