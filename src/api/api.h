/* What the files of api/ share: the objects behind snug.h's pointers. */
#ifndef SN_API_API_H
#define SN_API_API_H

#include "base/str.h"
#include "engine/fit.h"
#include "engine/generate.h"
#include "engine/job.h"
#include "engine/model.h"
#include "io/options.h"
#include "snug.h"

typedef struct sn_default {
    const char *key, *text;
} sn_default;

typedef enum sn_inference { SN_INFERENCE_NONE, SN_INFERENCE_EVALUATES, SN_INFERENCE_GENERATES } sn_inference;

/* A verb: which options it has and what it changes about their defaults. Lists are comma-separated. */
typedef struct sn_verb {
    const char *name, *about;
    const char *usage;          /* what follows "snug NAME" */
    const sn_option_group *own; /* options of this verb alone; may be NULL */
    const char *groups;         /* titles of the engine's tables that it has all of; "passes": the tables of all passes */
    const char *keys;           /* further options of the engine's tables */
    const char *often;          /* those that the short help shows, in order; "passes": what passes show; NULL: all */
    const sn_default *defaults; /* ends with a NULL key */
    sn_inference inference;     /* whether it has the options of passes that matter without training, and their defaults */
} sn_verb;

extern const sn_verb sn_verbs[];
extern const size_t sn_n_verbs;
extern const sn_option_group sn_common_options;

/* A store over copies of the tables, in which the verb's defaults stand and what the verb lacks is hidden. */
struct snug_options {
    const sn_verb *verb;
    sn_options *store;
    sn_option_group *tables; /* whose options are the caller's to change */
    const sn_option_group **groups;
    sn_pool texts; /* changed alias lists */
    size_t n_groups;
};

struct snug_model {
    sn_model model;
};

struct snug_plan {
    sn_session session;
    snug_bill bill;
    sn_limits limits; /* those that the recipe states */
    sn_fit fit;
    sn_forecast forecast;
    bool forecasts; /* of a training job whose device's rates are known */
};

/* Whether `word` is in a comma-separated list. */
bool sn_in_list(const char *list, const char *word);

/* The text of s as the caller's; SN_ERR_NO_MEMORY when an append failed. s is emptied. */
sn_status sn_hand_out(sn_str *s, char **out);

/* The option's path of an adapter, or NULL. */
const char *sn_adapter_of(const snug_options *o);

/* The defaults of a verb that generates for the options of passes, where nothing else was said. */
sn_status sn_generation_defaults(sn_options *recipe);

/* SN_ERR_USAGE where the options of a job that generates speak of ranks or nodes. */
sn_status sn_refuse_ranks(const sn_options *recipe);

/* Replaces the recipe by one with the rank, scale and targets of the options' adapter, if there is one. */
sn_status sn_take_adapter(const snug_options *o, sn_options **recipe);

/* The plan's figures and the budget of the recipe. */
void sn_bill_out(const sn_session *s, const sn_options *recipe, snug_bill *out);

/* The text between bos and eos tokens that chat templates may name; NULL when the model has none. *out is in the pool. */
sn_status sn_token_text(const sn_tokenizer *t, int32_t id, sn_pool *pool, const char **out);

/* SN_ERR_UNSUPPORTED when the model has no tokenizer. */
sn_status sn_need_tokenizer(const sn_model *m);
/* SN_ERR_UNSUPPORTED when the model is a bare shape. */
sn_status sn_need_weights(const sn_model *m);

/* Token ids of a whole file as one text: plain text as it is, of JSON lines the rows one after the other. */
sn_status sn_file_ids(const snug_model *m, const char *path, sn_ids *out);

#endif
