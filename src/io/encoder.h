/* Text to token ids, through function pointers: what training data and chat prompts need of a tokenizer. */
#ifndef SN_IO_ENCODER_H
#define SN_IO_ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "io/chat_template.h"
#include "io/tokenizer.h"

enum {
    SN_ENCODE_SPECIAL = 1, /* control tokens written in the text become their ids */
    SN_ENCODE_INSIDE = 2,  /* the text does not begin its document: no prefix space */
};

typedef struct sn_encoder {
    const void *state;
    /* Appends the ids of n bytes, without BOS or EOS. Called from several threads at once if the owner does so. */
    sn_status (*encode)(const struct sn_encoder *e, const char *text, size_t n, unsigned flags, sn_ids *out);
    bool (*is_special)(const struct sn_encoder *e, int32_t id);
    int32_t bos;          /* begins a plain document; -1: none */
    int32_t eos;          /* ends a document; needed */
    uint64_t fingerprint; /* differs when the ids differ */
    bool prefix_space;    /* sn_encoder_of_tokenizer's own */
} sn_encoder;

/* The encoder of a tokenizer, which must outlive it. SN_ERR_UNSUPPORTED when the tokenizer has no EOS. */
sn_status sn_encoder_of_tokenizer(const sn_tokenizer *t, sn_encoder *out);

/* Appends the ids of bytes [begin, end) of a rendered conversation. Control tokens count where the template wrote them, not
 * inside text->data: "<|im_end|>" in a user's message stays text. */
sn_status sn_encode_chat(const sn_encoder *e, const sn_chat_text *text, size_t begin, size_t end, sn_ids *out);

#endif
