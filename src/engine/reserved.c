/* The line of the bill that no plan owns: loaded code, thread stacks, page tables, tokenizer tables, plans and graphs
 * themselves, file buffers. A formula whose constants were measured (docs/memory.md), so that `plan` and `train` say the
 * same bytes. */
#include "engine/session.h"

uint64_t sn_reserved_bytes(const sn_model *m, const sn_options *recipe) {
    (void)recipe;
    return (UINT64_C(12) << 20) + (m->tokenizer ? sn_tokenizer_bytes(m->tokenizer) : 0);
}
