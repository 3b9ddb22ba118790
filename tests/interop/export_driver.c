/* A small program for tests/interop/export_interop.py: exports what a session of snug holds.
 *
 *     export_driver adapter MODEL OUT_DIR "OPTIONS"        random LoRA factors (B is not zero) as a PEFT folder
 *     export_driver hf      MODEL OUT_DIR FORM "OPTIONS"   a run's model, with such factors when OPTIONS says lora=on
 *     export_driver gguf    MODEL OUT     FORM "OPTIONS"
 *     export_driver merge   MODEL ADAPTER OUT hf|gguf FORM   ADAPTER may be "none"
 *     export_driver logits  MODEL ADAPTER OUT IDS          IDS: comma-separated; a safetensors file with "logits"
 *     export_driver encode  MODEL TEXTS                    ids of every line, one line each
 *
 * OPTIONS: "lora=on lora_rank=4", as a recipe's keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/evaluate.h"
#include "engine/export.h"

static sn_status set_options(sn_options *recipe, const char *text) {
    char copy[512];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        if (!value) return sn_fail(SN_ERR_USAGE, "wanted key=value, found %s", word);
        *value++ = 0;
        SN_TRY(sn_options_set(recipe, word, value, SN_FROM_COMMAND_LINE, "options"));
    }
    return SN_OK;
}

/* Every LoRA factor gets numbers that a fresh adapter would not have: B is not zero. */
static void fill_factors(const sn_session *s) {
    uint32_t state = 1;
    for (size_t p = 0; p < s->job->n_persistent; p++) {
        const sn_persistent *e = &s->job->persistent[p];
        if (e->class_of != SN_CLASS_WEIGHTS || !strstr(e->name, ".lora_")) continue;
        float *x = sn_run_persistent(s->run, (sn_pid)p), scale = strstr(e->name, ".lora_A.") ? 0.05f : 0.02f;
        for (int64_t i = 0; i < e->shape.d[0] * e->shape.d[1]; i++) {
            state = state * 1664525u + 1013904223u;
            x[i] = scale * ((float)(state >> 8) / 8388608.0f - 1);
        }
    }
}

static sn_status open_session(sn_model *model, const sn_options *recipe, sn_session *s) {
    sn_parameters parameters = sn_model_parameters(model);
    *s = (sn_session){.model = model, .exports = true};
    SN_TRY(sn_session_machine(s, recipe));
    SN_TRY(sn_job_for_evaluation(model->config, &parameters, 8, false, recipe, &s->cluster, &s->job));
    SN_TRY(sn_session_plan(s));
    SN_TRY(sn_session_open(s, recipe, NULL, NULL));
    fill_factors(s);
    return SN_OK;
}

static sn_status logits(sn_model *model, const sn_options *recipe, const char *adapter, const char *out, const char *list) {
    int32_t ids[512];
    int64_t n = 0;
    for (const char *at = list; *at && n < 512; at += *at == ',') {
        char *end;
        ids[n++] = (int32_t)strtol(at, &end, 10);
        at = end;
    }
    return sn_evaluate_dump_logits(model, recipe, strcmp(adapter, "none") ? adapter : NULL, ids, n, out);
}

static sn_status encode(const sn_model *model, const char *path) {
    char line[4096];
    FILE *f = fopen(path, "r");
    sn_status s = f ? SN_OK : sn_fail(SN_ERR_FILE, "cannot open %s", path);
    while (s == SN_OK && fgets(line, sizeof line, f)) {
        sn_ids ids = {0};
        line[strcspn(line, "\n")] = 0;
        s = sn_tokenizer_encode(model->tokenizer, line, strlen(line), SN_TOKENIZER_ADD_SPECIAL | SN_TOKENIZER_PARSE_SPECIAL, &ids);
        for (size_t i = 0; i < ids.size; i++) printf(i ? " %d" : "%d", ids.data[i]);
        printf("\n");
        sn_ids_free(&ids);
    }
    if (f) fclose(f);
    return s;
}

static sn_status run(int argc, char **argv) {
    const char *verb = argv[1];
    sn_model model;
    sn_options *recipe;
    sn_session s = {0};
    sn_export_report report;
    int form = SN_F32;
    SN_TRY(sn_recipe_new(&recipe));
    sn_status status = sn_model_open(argv[2], &model);
    if (status != SN_OK) {
        sn_options_close(recipe);
        return status;
    }
    bool adapter = !strcmp(verb, "adapter"), hf = !strcmp(verb, "hf"), gguf = !strcmp(verb, "gguf");
    if (adapter || hf || gguf) {
        if (argc > (adapter ? 4 : 5)) status = set_options(recipe, argv[adapter ? 4 : 5]);
        if (status == SN_OK && !adapter) status = sn_export_form(argv[4], &form);
        if (status == SN_OK) status = open_session(&model, recipe, &s);
        if (status == SN_OK && adapter) status = sn_export_adapter(&s, recipe, argv[2], argv[3]);
        if (status == SN_OK && hf) status = sn_export_hf(&s, argv[3], form, &report);
        if (status == SN_OK && gguf) status = sn_export_gguf(&s, argv[3], form, &report);
        sn_session_close(&s);
    } else if (!strcmp(verb, "merge") && argc > 6) {
        status = sn_export_form(argv[6], &form);
        if (status == SN_OK)
            status =
                sn_merge_adapter(&model, strcmp(argv[3], "none") ? argv[3] : NULL, argv[4], !strcmp(argv[5], "gguf"), form, 2, &report);
    } else if (!strcmp(verb, "logits") && argc > 5) {
        status = logits(&model, recipe, argv[3], argv[4], argv[5]);
    } else if (!strcmp(verb, "encode")) {
        status = encode(&model, argv[3]);
    } else {
        status = sn_fail(SN_ERR_USAGE, "unknown verb %s", verb);
    }
    sn_model_close(&model);
    sn_options_close(recipe);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "see the head of tests/interop/export_driver.c\n");
        return 2;
    }
    if (run(argc, argv) == SN_OK) return 0;
    fprintf(stderr, "export_driver: %s\n", sn_error_text());
    return 1;
}
