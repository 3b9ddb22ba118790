/* In which turns an instruction runs, and a value is touched, where a job trains in turns (graph/graph.h). An instruction can run only
 * where what it reads or changes exists, and runs only where somebody needs what it makes: so backward ends at what is trained in this
 * turn. */
#include "base/mem.h"
#include "plan/planner.h"

static const sn_turn_span every = {0, UINT16_MAX}, never = {1, 0};

static sn_turn_span only(int32_t turn) { return (sn_turn_span){(uint16_t)turn, (uint16_t)turn}; }

/* Who needs that a persistent value changes: its turn's steps, or all. */
static sn_turn_span effect(const sn_job *job, sn_pid p) {
    const int32_t turn = job->persistent[p].parent == SN_NONE ? job->persistent[p].turn : sn_job_turn(job, p);
    return turn < 0 ? every : only(turn);
}

/* The turn in which alone a value exists; -1: in every. exists: of transient values. */
static int32_t turn_of(const sn_graph *g, const int32_t *exists, sn_vid v) {
    return g->values[v].persistent == SN_NONE ? exists[v] : sn_job_turn(g->job, g->values[v].persistent);
}

static int32_t turn_of_node(const sn_graph *g, const int32_t *exists, const sn_node *n) {
    int32_t turn = -1, made = -1;
    int outputs = 0;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].value != SN_NONE && turn_of(g, exists, n->in[i].value) >= 0) turn = turn_of(g, exists, n->in[i].value);
    for (int o = 0; o < n->n_out; o++) {
        if (n->out[o] == SN_NONE) continue;
        outputs++;
        if (g->values[n->out[o]].persistent != SN_NONE) made = sn_job_turn(g->job, g->values[n->out[o]].persistent);
    }
    return outputs == 1 && made >= 0 ? made : turn;
}

static sn_turn_span needed(const sn_graph *g, const sn_turn_span *need, const sn_node *n) {
    sn_turn_span s = never;
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const sn_vid v = i < n->n_in ? n->in[i].value : n->out[i - n->n_in];
        if (v == SN_NONE || (i < n->n_in && !(sn_ops[n->op]->mutates >> i & 1))) continue;
        const sn_pid p = g->values[v].persistent;
        s = sn_turn_hull(s, g->values[v].output ? every : p != SN_NONE ? effect(g->job, p) : need[v]);
    }
    return s;
}

/* An output that its op may leave out is made, of the turns in which that runs, where it is kept behind the program; else where somebody
 * reads it. */
static sn_turn_span wanted(const sn_graph *g, sn_vid v, sn_turn_span runs) {
    if (g->values[v].persistent == SN_NONE) return never;
    const sn_turn_span kept = effect(g->job, g->values[v].persistent);
    return kept.first == kept.last && !sn_in_turn(runs, kept.first) ? never : kept.first == kept.last ? kept : runs;
}

static void touch(const sn_graph *g, const sn_turn_span *nodes, sn_turn_span *values) {
    for (size_t k = 0; k < g->n_order; k++) {
        const sn_node *n = &g->nodes[g->order[k]];
        const sn_turn_span s = nodes[g->order[k]];
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i].value != SN_NONE) values[n->in[i].value] = sn_turn_hull(values[n->in[i].value], s);
        for (int o = 0; o < n->n_out; o++)
            if (n->out[o] != SN_NONE)
                values[n->out[o]] = sn_turn_hull(values[n->out[o]], sn_ops[n->op]->leaves_out >> o & 1 ? wanted(g, n->out[o], s) : s);
    }
}

sn_status sn_plan_turns(const sn_graph *g, sn_turn_span *nodes, sn_turn_span *values) {
    const bool turns = g->job->turns.count && (sn_role_trains(g->role) || g->role == SN_ROLE_UPDATE);
    for (size_t i = 0; i < g->n_nodes; i++) nodes[i] = every;
    for (size_t v = 0; v < g->n_values; v++) values[v] = turns ? never : every;
    if (!turns) return SN_OK;
    int32_t *exists = sn_alloc(g->n_values * sizeof *exists), *alone = sn_alloc(g->n_nodes * sizeof *alone);
    sn_status s = exists && alone ? SN_OK : sn_fail(SN_ERR_NO_MEMORY, "cannot plan turns");
    if (s == SN_OK) {
        for (size_t v = 0; v < g->n_values; v++) exists[v] = -1;
        for (size_t k = 0; k < g->n_order; k++) {
            const sn_node *n = &g->nodes[g->order[k]];
            alone[g->order[k]] = turn_of_node(g, exists, n);
            for (int o = 0; o < n->n_out; o++)
                if (n->out[o] != SN_NONE) exists[n->out[o]] = alone[g->order[k]];
        }
        for (size_t k = g->n_order; k-- > 0;) { /* values[v]: by whom it is needed so far */
            const sn_node *n = &g->nodes[g->order[k]];
            sn_turn_span span = needed(g, values, n);
            const int32_t turn = alone[g->order[k]];
            if (turn >= 0) span = sn_in_turn(span, turn) ? only(turn) : never;
            nodes[g->order[k]] = span;
            for (int i = 0; i < n->n_in; i++)
                if (n->in[i].value != SN_NONE) values[n->in[i].value] = sn_turn_hull(values[n->in[i].value], span);
        }
        for (size_t v = 0; v < g->n_values; v++)
            values[v] = g->values[v].persistent != SN_NONE || g->values[v].input || g->values[v].output ? values[v] : never;
        touch(g, nodes, values);
    }
    sn_free(exists);
    sn_free(alone);
    return s;
}
