/* A session's inside. Internal to session.c and chat.c. */
#ifndef SN_API_SESSION_H
#define SN_API_SESSION_H

#include "api/api.h"
#include "engine/sampler.h"
#include "io/chat_template.h"
#include "io/encoder.h"

struct snug_session {
    snug_model *model;
    sn_options *recipe;
    sn_generator generator;
    bool open; /* generator is */
    sn_sampling sampling;
    int64_t max_tokens;
    uint64_t drawn; /* tokens drawn in this answer: the sampler's position */
    void *workspace;
    sn_ids cached; /* the tokens whose keys and values the cache holds */
    /* conversation */
    char *system;
    sn_chat_template *template; /* NULL: the model has none */
    sn_encoder encoder;
    const char *bos, *eos; /* their texts; NULL when absent */
    sn_pool pool;          /* of these texts */
    sn_str history;        /* ", {...}, {...}": messages as JSON, each after a comma */
};

typedef struct sn_answer {
    snug_piece_fn on_piece; /* may be NULL */
    void *context;
    snug_usage *usage;
    sn_str *text;   /* receives the answer; may be NULL */
    bool continues; /* the answer goes on with the prompt's text: a space at its beginning counts */
} sn_answer;

/* Prompt ids to text. */
sn_status sn_session_answer(snug_session *s, const sn_ids *ids, const sn_answer *a);

sn_status sn_chat_prepare(snug_session *s); /* template and encoder, where the model has them */
void sn_chat_close(snug_session *s);

#endif
