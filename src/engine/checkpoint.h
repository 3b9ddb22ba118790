/* Training checkpoints: OUT/checkpoint-N with state.safetensors and manifest.json.
 *
 * The state is every trained weight (its f32 master where there is one) and every optimizer state under its name, in
 * logical coordinates. The folder is written as checkpoint-N.partial; the manifest, with the length and CRC-32C of every
 * tensor, is written last; then the folder is renamed. A torn checkpoint has no manifest or does not match it, and is
 * passed over. */
#ifndef SN_ENGINE_CHECKPOINT_H
#define SN_ENGINE_CHECKPOINT_H

#include "engine/session.h"
#include "io/dataset.h"

typedef struct sn_counters {
    int64_t batch_step;  /* steps of data used; always advances */
    int64_t update_step; /* optimizer steps applied */
    double loss_scale;
    int64_t scale_growth; /* steps since the scale last changed */
    double first_loss;
    int64_t tokens;
    sn_data_cursor cursor; /* the next step's data */
} sn_counters;

/* Writes the checkpoint of counters->batch_step and removes the oldest beyond `keep` (0: keeps all). `digest` names the
 * data and the rows of a step: a resume under another one is refused. Ranks, shards and micro-batches may change. */
sn_status sn_checkpoint_save(const sn_session *s, const char *out_dir, const sn_counters *counters, const char *digest, int64_t keep);

/* Loads the newest whole checkpoint below out_dir. *found is false when there is none. */
sn_status sn_checkpoint_load(const sn_session *s, const char *out_dir, sn_counters *counters, const char *digest, bool *found);

/* Bytes that one checkpoint takes on disk. */
uint64_t sn_checkpoint_bytes(const sn_job *job);

#endif
