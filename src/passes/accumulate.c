/* Gradient accumulation: a step of several micro-batches. The program of the first writes the gradients, a second one, for
 * the later micro-batches, adds to them, and the update becomes a program of its own. Gradients then live between programs.
 * The loss of every micro-batch is divided by the labels of the whole step, so that the sum is one big batch's gradient. */
#include "graph/op.h"
#include "passes/pass.h"

static const sn_option options[] = {{.key = "gradient_accumulation_steps",
                                     .often = true,
                                     .deepspeed = "gradient_accumulation_steps",
                                     .kind = SN_OPTION_INT,
                                     .default_text = "1",
                                     .metavar = "N",
                                     .help = "micro-batches of a step"}};

/* Every gradient that the program writes is added to instead. */
static void add_instead(sn_graph *g) {
    for (size_t k = 0; k < g->n_order; k++) {
        sn_node *n = &g->nodes[g->order[k]];
        if (n->op != SN_OP_copy) continue;
        sn_vid to = n->out[0], from = n->in[0].value;
        sn_pid p = g->values[to].persistent;
        if (p == SN_NONE || g->job->persistent[p].class_of != SN_CLASS_GRADIENTS) continue;
        g->values[to].producer = SN_NONE;
        n->op = SN_OP_accumulate;
        n->n_in = 2;
        n->in[0] = (sn_use){.value = to, .form = SN_DTYPE_COUNT};
        n->in[1] = (sn_use){.value = from, .form = SN_DTYPE_COUNT};
        n->n_out = 0;
        n->out[0] = SN_NONE;
        n->made_by = "accumulate";
    }
}

static sn_status run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster) {
    (void)cluster;
    int k = sn_job_role_index(job, SN_ROLE_TRAIN);
    int64_t steps = sn_options_int(recipe, "gradient_accumulation_steps");
    if (steps < 1) return sn_fail(SN_ERR_USAGE, "gradient_accumulation_steps is %lld, wanted at least 1", (long long)steps);
    if (k < 0 || steps == 1) return SN_OK;
    sn_graph *next = sn_job_copy_graph(job->graphs[k], "forward_backward_next", SN_ROLE_TRAIN_NEXT);
    job->graphs[k]->name = "forward_backward";
    if (!next || !sn_job_add_graph(job, "update", SN_ROLE_UPDATE)) return SN_ERR_NO_MEMORY;
    next->times = steps - 1;
    add_instead(next);
    return SN_OK;
}

const sn_pass sn_pass_accumulate = {.name = "accumulate",
                                    .saves = "a large batch in the activations of a small one",
                                    .run = run,
                                    .options = SN_OPTION_GROUP("Accumulation", options)};
