/* Passes: a technique is a function from job to job, in one file that ends with its entry, and a line in passes.def.
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
    bool processes;     /* ranks are processes: their bytes are copied, not read in place */
    int nodes;          /* over which the ranks are spread, as many on each and in order; 0: they are not, or nobody knows */
    sn_mesh mesh;
} sn_cluster;

/* What a choice does to the result: nothing (bit for bit), sums in another order, or another form within its tolerance. */
typedef enum sn_choice_kind { SN_CHOICE_EXACT, SN_CHOICE_REORDERED, SN_CHOICE_LOSSY } sn_choice_kind;

const char *sn_choice_kind_name(sn_choice_kind kind); /* "exact" */

/* A setting that the budget search (engine/search.c) may make. */
typedef struct sn_choice {
    const char *key, *value;
    sn_choice_kind kind;
    const char *also[4]; /* further keys and values, in pairs; ends with NULL unless it is full */
} sn_choice;

/* What the choices of a pass leave as it is, from which the search bounds candidates that it has not planned (docs/plan.md says how). */
typedef enum sn_touch {
    SN_TOUCHES_ALL,   /* nothing is promised */
    SN_TOUCHES_RESTS, /* which persistent values there are and where they rest, what moves them, and the update: what is computed before it,
                         and how long activations live, stay as they are */
    SN_TOUCHES_ACTIVATIONS /* what backward keeps: persistent values rest where they did, and nothing is computed or moved less than with
                              the first choice */
} sn_touch;

/* A combination of options that makes no sense. It stands in the entry of the pass that it would break. */
typedef struct sn_conflict {
    bool (*holds)(const sn_options *recipe);
    const char *reason;
} sn_conflict;

/* An option of a pass that matters without training too; its defaults there, NULL: as ever. */
typedef struct sn_inference_option {
    const char *key, *evaluating, *generating;
} sn_inference_option;

/* The entry of a technique. */
typedef struct sn_pass {
    const char *name;
    const char *saves; /* one line: what it saves and what it costs */
    sn_status (*run)(sn_job *job, const sn_options *recipe, const sn_cluster *cluster);
    sn_option_group options; /* may be empty */
    const char *mesh_key;    /* the option that says how many ranks lie along mesh_axis; NULL: no axis is its own */
    sn_mesh_axis mesh_axis;
    /* How many times all is there that the data-parallel ranks of a mesh on so many nodes (0: unknown) share out between them: the size of
     * SN_MESH_REPLICA, which divides them. NULL: once. */
    sn_status (*replicas)(const sn_options *recipe, const sn_mesh *mesh, int nodes, int *n);
    const sn_inference_option *inference;
    size_t n_inference;
    /* The search takes at most one of the choices, from what saves least to what saves most; none where the recipe has decided. */
    const sn_choice *choices;
    size_t n_choices;
    bool (*decided)(const sn_options *recipe); /* may be NULL: never */
    sn_touch touches;
    const char *folder_key; /* its option that names the folder of what rests on disk; NULL: it puts nothing there */
    /* Whether a choice makes sense beside the recipe on this machine; NULL: always. */
    bool (*offers)(const sn_options *recipe, const sn_cluster *cluster, const sn_choice *choice);
    const char *deepspeed_hints; /* keys of DeepSpeed's JSON that tune what the plan decides here: see io/options.h; NULL: none */
    const sn_conflict *conflicts;
    size_t n_conflicts;
} sn_pass;
#define SN_PASS_CHOICES(table) .choices = (table), .n_choices = sizeof(table) / sizeof *(table)
#define SN_PASS_CONFLICTS(table) .conflicts = (table), .n_conflicts = sizeof(table) / sizeof *(table)
#define SN_PASS_INFERENCE(table) .inference = (table), .n_inference = sizeof(table) / sizeof *(table)

#define SN_PASS(id) extern const sn_pass sn_pass_##id;
#include "passes/passes.def"
#undef SN_PASS

/* Every pass in the order in which they run. */
extern const sn_pass *const sn_passes[];
extern const size_t sn_n_passes;

/* Whether the search may make this choice beside the recipe: the recipe has not decided the matter, says another thing, and the pass offers
 * it. */
bool sn_choice_applies(const sn_pass *p, const sn_options *recipe, const sn_cluster *cluster, const sn_choice *choice);

/* The folder of what may rest on disk, "" where the recipe names none; *key (may be NULL): the option that does. */
const char *sn_passes_folder(const sn_options *recipe, const char **key);

/* Setting i of a choice; false after the last. */
bool sn_choice_setting(const sn_choice *choice, size_t i, const char **key, const char **value);
bool sn_choice_made(const sn_choice *choice, const sn_options *recipe); /* the recipe says it all */

/* The mesh of so many ranks on so many nodes (0: unknown): what the passes' options say along their axes, data-parallel ones along the
 * rest. SN_ERR_USAGE where they do not divide the ranks. */
sn_status sn_passes_mesh(const sn_options *recipe, int ranks, int nodes, sn_mesh *mesh);

/* SN_ERR_PLAN with the reason when the recipe combines what cannot be. */
sn_status sn_passes_check(const sn_options *recipe);

/* Refuses illegal combinations, then runs the table over the job. `stop_after` (may be NULL) names the last pass to run,
 * for `snug explain --after`; `skip` (may be NULL) is a comma-separated list of passes to leave out. */
sn_status sn_passes_run(sn_job *job, const sn_options *recipe, const sn_cluster *cluster, const char *stop_after, const char *skip);

/* Helpers that passes share. */

/* Replaces value `from` by `to` in every use after position `first` of the order. */
void sn_replace_uses(sn_graph *g, sn_vid from, sn_vid to, size_t first);

/* Of a pass that writes the order anew: node n is next. */
sn_status sn_push(sn_graph *g, sn_nid n);

/* By value: how often nodes take it; NULL with the error set when there is no memory. */
uint32_t *sn_count_uses(const sn_graph *g);

/* Places new nodes directly before / after a node, with its layer, part and phase. */
void sn_insert_before(sn_graph *g, sn_nid n, const char *pass);
void sn_insert_after(sn_graph *g, sn_nid n, const char *pass);
void sn_insert_like(sn_graph *g, sn_nid n, const char *pass); /* at the end, with its layer, part and phase */
void sn_insert_at_end(sn_graph *g, const char *pass);

#endif
