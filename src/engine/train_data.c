/* Training data: from a file to the inputs of the programs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/train_state.h"

static sn_status open_dataset(sn_training *t, const char *path, sn_dataset **out) {
    sn_dataset_options o = {.path = path,
                            .cutoff_len = t->cutoff,
                            .encoder = t->model->tokenizer ? &t->encoder : NULL,
                            .chat_template = t->chat_template,
                            .eos_token = t->eos_text,
                            .threads = t->session.device.shape.threads * t->here};
    SN_TRY(sn_dataset_open(&o, out));
    const sn_dataset_info *info = sn_dataset_get_info(*out);
    sn_info("%s: %llu rows, %llu tokens, %llu of them labels", path, (unsigned long long)info->rows, (unsigned long long)info->tokens,
            (unsigned long long)info->labels);
    if (info->empty) sn_warn("%s: %llu empty rows are left out", path, (unsigned long long)info->empty);
    if (info->no_loss)
        sn_warn("%s: %llu rows have no label within %lld tokens and are left out", path, (unsigned long long)info->no_loss,
                (long long)t->cutoff);
    if (info->truncated) sn_warn("%s: %llu rows are cut to %lld tokens", path, (unsigned long long)info->truncated, (long long)t->cutoff);
    return SN_OK;
}

static sn_status open_tokenizer(sn_training *t) {
    sn_tokenizer *k = t->model->tokenizer;
    if (!k) return SN_OK; /* ready-made ids need none */
    SN_TRY(sn_encoder_of_tokenizer(k, &t->encoder));
    size_t n = 0;
    const char *eos = sn_tokenizer_eos(k) >= 0 ? sn_tokenizer_token(k, sn_tokenizer_eos(k), &n) : NULL;
    if (eos && !(t->eos_text = sn_strndup(eos, n))) return sn_fail(SN_ERR_NO_MEMORY, "cannot copy the EOS text");
    return t->model->chat_template ? sn_chat_template_parse(t->model->chat_template, strlen(t->model->chat_template), &t->chat_template)
                                   : SN_OK;
}

static sn_status open_loader(sn_training *t, const sn_dataset *d, sn_data_part part, sn_loader **out) {
    const sn_options *r = t->recipe;
    bool evaluate = part == SN_DATA_EVAL || d != t->dataset;
    sn_loader_options o = {.dataset = d,
                           .micro_rows = t->micro_rows,
                           .accumulation = evaluate ? 1 : t->accumulation,
                           .ranks = t->rows_ranks,
                           .packing = sn_options_bool(r, "packing") && !evaluate,
                           .shuffle = sn_options_bool(r, "shuffle") && !evaluate,
                           .seed = (uint64_t)sn_options_int(r, "seed"),
                           .part = part,
                           .eval_fraction = sn_options_float(r, "eval_fraction")};
    return sn_loader_open(&o, out);
}

static sn_status count_steps(sn_training *t) {
    double epochs = sn_options_float(t->recipe, "num_train_epochs");
    uint64_t steps = 0;
    t->total_steps = sn_options_int(t->recipe, "max_steps");
    if (t->total_steps <= 0) {
        SN_TRY(sn_loader_steps(t->loader, 0, &steps));
        t->total_steps = (int64_t)ceil((double)steps * epochs - 1e-9);
    }
    if (t->total_steps < 1) return sn_fail(SN_ERR_DATA, "nothing to do: %llu steps an epoch, %g epochs", (unsigned long long)steps, epochs);
    return sn_schedule_from_options(t->recipe, t->total_steps, &t->schedule);
}

static sn_status open_data(sn_training *t, const char *data) {
    const char *eval_data = sn_options_string(t->recipe, "eval_data");
    bool split = sn_options_float(t->recipe, "eval_fraction") > 0;
    SN_TRY(open_tokenizer(t));
    SN_TRY(open_dataset(t, data, &t->dataset));
    SN_TRY(open_loader(t, t->dataset, split ? SN_DATA_TRAIN : SN_DATA_ALL, &t->loader));
    if (eval_data && *eval_data) {
        SN_TRY(open_dataset(t, eval_data, &t->eval_dataset));
        SN_TRY(open_loader(t, t->eval_dataset, SN_DATA_ALL, &t->eval_loader));
    } else if (split) {
        SN_TRY(open_loader(t, t->dataset, SN_DATA_EVAL, &t->eval_loader));
    }
    SN_TRY(count_steps(t));
    /* Rows a step, however they are divided: the same rows in the same step on another number of ranks. */
    snprintf(t->digest, sizeof t->digest, "data %016llx cutoff %lld batch %lld packing %d shuffle %d seed %lld",
             (unsigned long long)sn_dataset_get_info(t->dataset)->identity, (long long)t->cutoff,
             (long long)(t->micro_rows * t->accumulation * t->rows_ranks), sn_options_bool(t->recipe, "packing"),
             sn_options_bool(t->recipe, "shuffle"), (long long)sn_options_int(t->recipe, "seed"));
    return SN_OK;
}

/* Rank 0 opens first, so that an index is built once; the others then find it. */
sn_status sn_training_open_data(sn_training *t, const char *data) {
    int64_t tokens = t->micro_rows * t->cutoff; /* fits, as the plan was made for it */
    t->tokens[0] = sn_alloc(4 * (size_t)tokens * sizeof *t->tokens[0]);
    if (!t->tokens[0]) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the tokens of a micro-batch");
    for (int i = 1; i < 4; i++) t->tokens[i] = t->tokens[0] + i * tokens;
    sn_status s = t->world.rank ? SN_OK : open_data(t, data);
    SN_TRY(sn_world_agree(&t->world, s));
    s = t->world.rank ? open_data(t, data) : SN_OK;
    return sn_world_agree(&t->world, s);
}

void sn_training_close_data(sn_training *t) {
    sn_loader_close(t->loader);
    sn_loader_close(t->eval_loader);
    sn_dataset_close(t->dataset);
    sn_dataset_close(t->eval_dataset);
    sn_chat_template_free(t->chat_template);
    sn_free(t->eos_text);
    sn_free(t->tokens[0]);
}
