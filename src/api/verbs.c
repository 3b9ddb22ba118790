/* The verbs' options: those of their own, and which of the engine's tables they take over. */
#include "api/api.h"

static const sn_option common[] = {
    {.key = "recipe", .by_rank = true, .aliases = "config", .kind = SN_OPTION_STRING, .metavar = "FILE", .help = "YAML file of options"},
    {.key = "json", .by_rank = true, .kind = SN_OPTION_FLAG, .help = "report as JSON"},
    {.key = "verbose", .by_rank = true, .aliases = "v", .kind = SN_OPTION_FLAG, .help = "say more, on standard error"},
    {.key = "help", .aliases = "h", .kind = SN_OPTION_FLAG, .help = "this help"},
    {.key = "help_all", .kind = SN_OPTION_FLAG, .help = "every option of this verb"}};
const sn_option_group sn_common_options = SN_OPTION_GROUP("Common", common);

static const sn_option pull_table[] = {
    {.key = "from", .kind = SN_OPTION_STRING, .metavar = "FILE", .help = "a local GGUF file or wheel, or the URL of one"}};
static const sn_option_group pull_own = SN_OPTION_GROUP("Pull", pull_table);

static const sn_option plan_table[] = {
    {.key = "for", .kind = SN_OPTION_CHOICE, .choices = "train,generate", .default_text = "train", .help = "the job to plan"},
    {.key = "compare", .kind = SN_OPTION_FLAG, .help = "one table: the job under each technique"},
    {.key = "html", .kind = SN_OPTION_STRING, .metavar = "FILE", .help = "draw memory over the step into a page of its own"}};
static const sn_option_group plan_own = SN_OPTION_GROUP("Plan", plan_table);

static const sn_option train_table[] = {{.key = "out",
                                         .by_rank = true,
                                         .aliases = "output_dir,o",
                                         .kind = SN_OPTION_STRING,
                                         .metavar = "DIR",
                                         .help = "where everything is written"}};
static const sn_option_group train_own = SN_OPTION_GROUP("Result", train_table);

static const sn_option merge_table[] = {{.key = "out",
                                         .aliases = "output_dir,o",
                                         .kind = SN_OPTION_STRING,
                                         .metavar = "PATH",
                                         .help = "a GGUF file (.gguf) or a Hugging Face folder"},
                                        {.key = "form",
                                         .aliases = "dtype,outtype",
                                         .kind = SN_OPTION_CHOICE,
                                         .choices = "source,f32,f16,bf16,q8_0,q4_0,q4_1,q5_0,q5_1",
                                         .default_text = "f16",
                                         .help = "form of the matrices; below 16 bits: GGUF only"}};
static const sn_option_group merge_own = SN_OPTION_GROUP("Result", merge_table);

static const sn_option generate_table[] = {
    {.key = "prompt", .aliases = "p", .kind = SN_OPTION_STRING, .metavar = "TEXT", .help = "the text to continue"},
    {.key = "file", .aliases = "f", .kind = SN_OPTION_STRING, .metavar = "FILE", .help = "read it from a file; -: standard input"}};
static const sn_option_group generate_own = SN_OPTION_GROUP("Prompt", generate_table);

static const sn_option chat_table[] = {
    {.key = "prompt", .aliases = "p", .kind = SN_OPTION_STRING, .metavar = "TEXT", .help = "say this, print the answer, end"},
    {.key = "system", .aliases = "sys,s", .kind = SN_OPTION_STRING, .metavar = "TEXT", .help = "system prompt"}};
static const sn_option_group chat_own = SN_OPTION_GROUP("Conversation", chat_table);

static const sn_option bench_table[] = {{.key = "prompt",
                                         .aliases = "p,n_prompt",
                                         .kind = SN_OPTION_INT,
                                         .default_text = "512",
                                         .metavar = "N",
                                         .help = "tokens of the prompt; 0: skip",
                                         .has_least = true},
                                        {.key = "decode",
                                         .aliases = "n,n_gen",
                                         .kind = SN_OPTION_INT,
                                         .default_text = "128",
                                         .metavar = "N",
                                         .help = "tokens decoded one by one; 0: skip",
                                         .has_least = true},
                                        {.key = "repetitions",
                                         .aliases = "r",
                                         .kind = SN_OPTION_INT,
                                         .default_text = "3",
                                         .metavar = "N",
                                         .help = "of each, after a warm-up",
                                         .has_least = true,
                                         .least = 1}};
static const sn_option_group bench_own = SN_OPTION_GROUP("Benchmark", bench_table);

static const sn_option tokenize_table[] = {
    {.key = "chat", .kind = SN_OPTION_FLAG, .help = "render \"messages\" by the model's chat template"}};
static const sn_option_group tokenize_own = SN_OPTION_GROUP("Rows", tokenize_table);

static const sn_option explain_table[] = {
    {.key = "for", .kind = SN_OPTION_CHOICE, .choices = "train,generate", .default_text = "train", .help = "the job to explain"},
    {.key = "stage",
     .aliases = "after",
     .kind = SN_OPTION_STRING,
     .default_text = "program",
     .metavar = "STAGE",
     .help = "model: the graph as the model builds it; the name of a pass: after it; program: the instructions"},
    {.key = "program", .kind = SN_OPTION_STRING, .metavar = "NAME", .help = "only this program: step, evaluate, decode, ..."}};
static const sn_option_group explain_own = SN_OPTION_GROUP("Explain", explain_table);

static const sn_option probe_table[] = {
    {.key = "again", .kind = SN_OPTION_FLAG, .help = "measure anew"},
    {.key = "disk", .kind = SN_OPTION_STRING, .metavar = "DIR", .help = "measure reading and writing there too, as --offload-dir would"}};
static const sn_option_group probe_own = SN_OPTION_GROUP("Probe", probe_table);

static const sn_default windows[] = {{"ctx_size", "512"}, {0}};
static const sn_default none[] = {{0}};

#define TRAINING_GROUPS "Training,Machine,Learning rate,passes"
#define SAMPLING "max_tokens,temperature,top_k,top_p,min_p,repetition_penalty,seed"

const sn_verb sn_verbs[] = {
    {"pull", "get a named model into the store", "NAME [--from FILE]", &pull_own, "", "", NULL, none, SN_INFERENCE_NONE},
    {"list", "named and pulled models", "", NULL, "", "", NULL, none, SN_INFERENCE_NONE},
    {"show", "what is in a model", "MODEL", NULL, "", "", NULL, none, SN_INFERENCE_NONE},
    {"rm", "remove a pulled model", "NAME", NULL, "", "", NULL, none, SN_INFERENCE_NONE},
    {"plan", "what a job will take, before it takes it", "MODEL [options of the job]", &plan_own, TRAINING_GROUPS ",Cluster,Generation", "",
     "for,compare,memory,ranks,nodes,device_shape,html,full,passes,per_device_train_batch_size,cutoff_len,ctx_size,kv_cache_dtype,adapter,"
     "thread_ranks,device,recipe,json,"
     "help,help_all",
     none, SN_INFERENCE_NONE},
    {"train", "fine-tune a model inside a memory budget", "MODEL --data FILE --out DIR [options]", &train_own, TRAINING_GROUPS,
     "data,nodes",
     "data,out,memory,full,passes,per_device_train_batch_size,cutoff_len,packing,max_steps,num_train_epochs,learning_rate,"
     "lr_scheduler_type,warmup_steps,save_steps,resume,adapter,seed,threads,recipe,json,help,help_all",
     none, SN_INFERENCE_NONE},
    {"merge", "add an adapter to its model, or convert a model", "MODEL [--adapter DIR] --out PATH", &merge_own, "", "adapter,threads",
     NULL, none, SN_INFERENCE_NONE},
    {"generate", "continue a text", "MODEL -p TEXT", &generate_own, "Generation,Machine", "adapter,seed",
     "prompt,file," SAMPLING ",ctx_size,kv_cache_dtype,passes,adapter,memory,threads,recipe,json,verbose,help,help_all", none,
     SN_INFERENCE_GENERATES},
    {"chat", "talk with a model", "MODEL [-p TEXT]", &chat_own, "Generation,Machine", "adapter,seed",
     "prompt,system," SAMPLING ",ctx_size,kv_cache_dtype,passes,adapter,memory,threads,recipe,json,verbose,help,help_all", none,
     SN_INFERENCE_GENERATES},
    {"eval", "perplexity and logits of a text", "MODEL --data FILE", NULL, "Evaluation,Machine", "ctx_size,adapter",
     "data,ctx_size,stride,dump_logits,passes,adapter,memory,threads,recipe,json,verbose,help,help_all", windows, SN_INFERENCE_EVALUATES},
    {"bench", "tokens a second of prompt and decode", "MODEL", &bench_own, "Machine", "kv_cache_dtype,adapter",
     "prompt,decode,repetitions,passes,kv_cache_dtype,memory,threads,recipe,json,verbose,help,help_all", none, SN_INFERENCE_GENERATES},
    {"tokenize", "text to token ids", "MODEL --data FILE", &tokenize_own, "", "data", NULL, none, SN_INFERENCE_NONE},
    {"detokenize", "token ids to text", "MODEL --data FILE | MODEL ID...", NULL, "", "data", NULL, none, SN_INFERENCE_NONE},
    {"explain", "a job's graphs and programs as text", "MODEL [options of the job]", &explain_own, TRAINING_GROUPS ",Cluster,Generation",
     "", "for,stage,program,full,passes,per_device_train_batch_size,cutoff_len,ctx_size,thread_ranks,device,recipe,help,help_all", none,
     SN_INFERENCE_NONE},
    {"probe", "what this machine can do at most", "", &probe_own, "", "threads", NULL, none, SN_INFERENCE_NONE},
    {"version", "snug's version", "", NULL, "", "", NULL, none, SN_INFERENCE_NONE},
};
const size_t sn_n_verbs = sizeof sn_verbs / sizeof sn_verbs[0];

bool snug_verb(size_t i, const char **name, const char **about) {
    if (i >= sn_n_verbs) return false;
    *name = sn_verbs[i].name;
    *about = sn_verbs[i].about;
    return true;
}
