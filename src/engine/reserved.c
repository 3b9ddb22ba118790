/* The line of the bill that no plan owns: loaded code and its data, thread stacks, the tokenizer's tables, file buffers, what
 * exporting a whole model builds for its metadata. A formula whose constants were measured (docs/plan.md), so that `plan`
 * and `train` say the same bytes; plan/ adds the graphs and programs themselves, which it knows exactly. */
#include "engine/session.h"

enum {
    CODE = 14 << 20,          /* program and shared libraries that are touched, heap of start-up, stacks: 11 to 12.5 MiB seen */
    MODEL_METADATA = 8 << 20, /* tokenizer.json, or the keys of a GGUF, as one text */
};

uint64_t sn_reserved_bytes(const sn_model *m, bool exports) {
    return CODE + (m->tokenizer ? sn_tokenizer_bytes(m->tokenizer) + (exports ? MODEL_METADATA : 0) : 0);
}
