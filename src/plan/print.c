/* A program as text: one line an instruction, stable from run to run. */
#include "base/str.h"
#include "plan/plan.h"

static void print_arg(const sn_arg *a, sn_str *out) {
    char text[96];
    if (a->arena == SN_NO_ARENA) {
        sn_str_add(out, " -");
        return;
    }
    sn_str_printf(out, " %c+0x%llx %s%s%s", "dhk"[a->arena], (unsigned long long)a -> offset, sn_dtype_name(a->dtype),
                  sn_shape_text(&a->shape, text), a -> writes ? "!" : "");
}

void sn_program_print(const sn_program *p, sn_str *out) {
    sn_str_printf(out, "program %s, %u instructions\n", p->name, p->count);
    for (uint32_t k = 0; k < p->count; k++) {
        const sn_instr *in = &p->instrs[k];
        sn_str_printf(out, "%04u %-7s %s %s  in", k, sn_queue_name((sn_queue)in->queue), in->op, in->kernel->name);
        for (int i = 0; i < in->n_in; i++) print_arg(&in->in[i], out);
        if (in->n_out) sn_str_add(out, "  out");
        for (int i = 0; i < in->n_out; i++) print_arg(&in->out[i], out);
        if (in->scratch_bytes)
            sn_str_printf(out, "  scratch d+0x%llx %llu", (unsigned long long)in->scratch_offset, (unsigned long long)in->scratch_bytes);
        for (int q = 0; q < SN_QUEUE_COUNT; q++)
            if (in->wait[q]) sn_str_printf(out, "  waits %s:%u", sn_queue_name((sn_queue)q), in->wait[q]);
        if (in->turns.last < UINT16_MAX) sn_str_printf(out, "  turns %u-%u", in->turns.first, in->turns.last);
        sn_str_printf(out, "  # %s (%s)\n", in->name, in->made_by);
    }
}
