/* The parts of the tokenizer.json reader. Only tokenizer_json*.c include this. */
#ifndef SN_IO_TOKENIZER_JSON_H
#define SN_IO_TOKENIZER_JSON_H

#include "io/json.h"
#include "io/tokenizer_spec.h"

/* The four places of tokenizer.json that hold components: objects with a "type", which may be a Sequence of others. */
typedef enum sn_component_role { SN_ROLE_NORMALIZER, SN_ROLE_PRE_TOKENIZER, SN_ROLE_POST_PROCESSOR, SN_ROLE_DECODER } sn_component_role;

/* Reads the value after the current key, null included, into the spec. */
sn_status sn_read_component(sn_json *r, sn_component_role role, sn_tokenizer_spec *s);

/* The id of a token by its text as the file writes it, in added tokens, then the vocabulary; -1 if there is none. */
int32_t sn_spec_find(const sn_tokenizer_spec *s, const char *text, size_t n);

#endif
