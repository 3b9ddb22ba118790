/* The inside of training, shared by train*.c. */
#ifndef SN_ENGINE_TRAIN_STATE_H
#define SN_ENGINE_TRAIN_STATE_H

#include "engine/checkpoint.h"
#include "engine/fit.h"
#include "engine/schedule.h"
#include "engine/train.h"
#include "io/dataset.h"
#include "io/events.h"
#include "io/metrics.h"

typedef struct sn_training {
    sn_model *model;
    const sn_options *recipe; /* effective: of a given adapter, too */
    sn_options *own_recipe;
    const sn_train_hooks *hooks;
    sn_train_summary *summary;
    const char *out_dir;

    /* Ranks first .. first + here - 1 are in this process: all, as threads, or one, where ranks are processes. The session owns
     * job and plan of the first, the others have runs of their own. */
    sn_world world;
    int ranks, first, here;
    int rows_ranks; /* data-parallel ones: each has rows of its own */
    sn_session session;
    sn_forecast forecast;
    sn_fit fit;
    sn_run **runs;   /* of the ranks here */
    sn_plan **plans; /* the first is the session's */
    sn_comm *comms;
    sn_team *rank_team;                          /* a thread for each rank here */
    bool stop;                                   /* some rank was asked to end after this step */
    int program, program_next, update, evaluate; /* indices; update -1: part of program */
    sn_pid loss;

    /* data */
    sn_encoder encoder;
    sn_chat_template *chat_template;
    char *eos_text;
    sn_dataset *dataset, *eval_dataset;
    sn_loader *loader, *eval_loader;
    sn_data_cursor cursor;
    int64_t micro_rows, accumulation, cutoff, total_steps;
    int32_t *tokens[4]; /* of one micro-batch's rows: ids, positions, seq_start, labels; one block */
    sn_schedule schedule;
    char digest[160];

    /* progress */
    sn_counters counters;
    bool scaled;      /* fp16: dynamic loss scale */
    int64_t failures; /* skipped updates in a row */
    sn_metrics *metrics;
    sn_events *events;
    double step_loss, step_norm, step_rate;
    int64_t clock_steps;
    double clock; /* seconds spent in steps since the start, without the first */
    int64_t clock_tokens;
    double recent_seconds;
    int64_t recent_tokens;
} sn_training;

/* Data: tokenizer, template, dataset, loaders, number of steps. */
sn_status sn_training_open_data(sn_training *t, const char *data);
void sn_training_close_data(sn_training *t);

/* Runs all micro-batches of the next step and its update; sets step_loss, step_norm, step_rate, advances the counters. */
sn_status sn_training_step(sn_training *t, int64_t *tokens);

/* Mean loss over the evaluation rows. */
sn_status sn_training_evaluate(sn_training *t, double *loss);

#endif
