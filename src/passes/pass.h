/* Passes: a technique is a function from job to job, in one file, with one entry in the table of pipeline.c.
 *
 * A pass reads its options from the recipe, changes the graphs whose role concerns it, and knows no other pass. The
 * graphs are verified after each. What a value is moved through between result, rest and use is inserted by the last
 * pass, move, alone. */
#ifndef SN_PASSES_PASS_H
#define SN_PASSES_PASS_H

#include "graph/graph.h"
#include "io/options.h"

/* The machine as far as graphs need it: which tiers the device addresses without a copy, and how many ranks there are. */
typedef struct sn_cluster {
    uint32_t addresses; /* bit t: the device reads and writes tier t directly */
    sn_mesh mesh;
} sn_cluster;

typedef struct sn_pass {
    const char *name;
    sn_status (*run)(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
    const sn_option_group *options; /* may be NULL */
    const char *saves;        /* one line for docs and help: what it saves and what it costs */
} sn_pass;

/* Two passes that cannot be combined under the given condition. */
typedef struct sn_conflict {
    bool (*holds)(const sn_options *recipe);
    const char *reason;
} sn_conflict;

/* Every pass in the order in which they run. */
extern const sn_pass sn_passes[];
extern const size_t sn_n_passes;

/* Refuses illegal combinations, then runs the table over the job. `stop_after` (may be NULL) names the last pass to run,
 * for `snug explain --after`; `skip` (may be NULL) is a comma-separated list of passes to leave out. */
sn_status sn_passes_run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster, const char *stop_after, const char *skip);

/* Helpers that passes share. */

/* Replaces value `from` by `to` in every use after position `first` of the order. */
void sn_replace_uses(sn_graph *g, sn_vid from, sn_vid to, size_t first);

/* Places new nodes directly before / after a node, with its layer, part and phase. */
void sn_insert_before(sn_graph *g, sn_nid n, const char *pass);
void sn_insert_after(sn_graph *g, sn_nid n, const char *pass);
void sn_insert_at_end(sn_graph *g, const char *pass);

sn_status sn_pass_data_parallel(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
sn_status sn_pass_lora(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
sn_status sn_pass_quantise(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
sn_status sn_pass_precision(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
sn_status sn_pass_backward(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
sn_status sn_pass_accumulate(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
sn_status sn_pass_optimizer(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
sn_status sn_pass_recompute(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
sn_status sn_pass_move(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);

extern const sn_option_group sn_lora_options, sn_quantise_options, sn_precision_options, sn_accumulate_options;
extern const sn_option_group sn_optimizer_options, sn_recompute_options;

#endif
