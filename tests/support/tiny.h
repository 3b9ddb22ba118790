/* A small random model taken through the whole path: graph, passes, plan, run. */
#ifndef SN_TESTS_TINY_H
#define SN_TESTS_TINY_H

#include "engine/job.h"
#include "engine/model.h"
#include "run/run.h"
#include "support/support.h"

typedef struct tiny {
    sn_model_config config;
    sn_options *recipe;
    sn_cluster cluster;
    sn_job *job;
    sn_device device;
    sn_plan *plan;
    sn_run *run;
    int64_t tokens;
    bool one_batch; /* every step sees the data of step 0 */
} tiny;

enum { TINY_VOCAB = 97 };

sn_model_config tiny_llama(void);           /* 2 layers, 4 heads of 8, 2 KV heads, hidden 32, feed-forward 56, tied */
sn_model_config tiny_llama_of_blocks(void); /* the same with 6 heads of 16, 3 KV heads, hidden 96, feed-forward 224: rows of whole 32s */
sn_model_config tiny_gpt2(void);

/* options: "lora=on lora_rank=4 recompute=all"; device: "cpu", "cpu-split"; reuse: as sn_plan_request. */
void tiny_open(tiny *t, const sn_model_config *config, const char *options, const char *device, bool reuse);

/* The same with the weights of an opened model. */
void tiny_open_model(tiny *t, sn_model *model, const char *options, const char *device);
void tiny_close(tiny *t);

/* Writes a random model as a Hugging Face folder in f32 and, from that, as a GGUF with matrices in this form. */
void tiny_write(const sn_model_config *config, const char *folder, const char *gguf, int form);

/* A recipe with these options set: "lora=on lora_rank=4". */
sn_options *tiny_recipe(const char *options);

/* Fills the inputs of a program, by its index, with the batch numbered `step`: packed rows of varied length, some labels -100. */
void tiny_fill(tiny *t, int program, int step, int slot);

/* Runs one whole optimizer step (all micro-batches, then the update). Returns the mean loss; *norm: gradient norm. */
double tiny_step(tiny *t, int step, float *norm);

/* SHA-256 of all persistent bytes on the device tier. */
void tiny_digest(tiny *t, char hex[65]);

#endif
