/* Continues a text: generate MODEL TEXT. Build: cc generate.c $(pkg-config --cflags --libs snug) */
#include <snug.h>
#include <stdio.h>
#include <string.h>

static bool on_piece(void *context, const char *text, size_t n) {
    (void)context;
    fwrite(text, 1, n, stdout);
    return true; /* false would end it here */
}

int main(int argc, char **argv) {
    snug_options *options = NULL;
    snug_model *model = NULL;
    snug_session *session = NULL;
    if (argc != 3) return fprintf(stderr, "usage: generate MODEL TEXT\n"), 2;
    snug_status s = snug_options_new("generate", &options);
    if (s == SNUG_OK) s = snug_options_set(options, "max_tokens", "16");
    if (s == SNUG_OK) s = snug_options_set(options, "ctx_size", "256");
    if (s == SNUG_OK) s = snug_model_open(argv[1], &model);
    if (s == SNUG_OK) s = snug_session_open(model, options, &session); /* the budget is checked, then memory is taken */
    if (s == SNUG_OK) s = snug_generate(session, argv[2], strlen(argv[2]), on_piece, NULL, NULL);
    if (s != SNUG_OK) fprintf(stderr, "generate: %s\n", snug_error());
    snug_session_close(session);
    snug_model_close(model);
    snug_options_free(options);
    return s != SNUG_OK;
}
