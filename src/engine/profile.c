#include "engine/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/system.h"
#include "engine/search.h"
#include "engine/train.h"
#include "program/files.h"

enum { REPEATS = 4, DISK_BYTES = 1 << 30, DISK_PIECE = 8 << 20, DISK_PIECES = 2 };

/* Sizes of the models: a small one's block, and a wider one's; few rows, where calls cost more than what they do. */
typedef struct size_of {
    int64_t hidden, intermediate, heads, kv_heads, head_dim, vocabulary, rows, cutoff;
} size_of;
static const size_of small = {576, 1536, 9, 3, 64, 8192, 4, 256}, wide = {1024, 2816, 16, 8, 64, 4096, 1, 512},
                     few = {576, 1536, 9, 3, 64, 4096, 1, 64};
static const size_of long_row = {576, 1536, 9, 3, 64, 2048, 1, 1024};

/* Sizes and rules that no pass's choices lead to. */
static const struct {
    const size_of *size;
    sn_model_arch arch;
    const char *key, *value; /* NULL: as ever */
} cases[] = {
    {&small, SN_ARCH_LLAMA, NULL, NULL},        {&wide, SN_ARCH_LLAMA, NULL, NULL},         {&few, SN_ARCH_LLAMA, NULL, NULL},
    {&long_row, SN_ARCH_LLAMA, NULL, NULL},     {&few, SN_ARCH_GPT2, NULL, NULL},           {&few, SN_ARCH_LLAMA, "optimizer", "adafactor"},
    {&few, SN_ARCH_LLAMA, "optimizer", "lion"}, {&few, SN_ARCH_LLAMA, "optimizer", "muon"}, {&few, SN_ARCH_LLAMA, "optimizer", "sgd"},
};

static sn_status make_recipe(const size_of *size, int threads, sn_options **out) {
    char text[32];
    SN_TRY(sn_recipe_new(out));
    snprintf(text, sizeof text, "%d", threads);
    SN_TRY(sn_options_set(*out, "threads", text, SN_FROM_COMMAND_LINE, "probe"));
    snprintf(text, sizeof text, "%lld", (long long)size->rows);
    SN_TRY(sn_options_set(*out, "per_device_train_batch_size", text, SN_FROM_COMMAND_LINE, "probe"));
    snprintf(text, sizeof text, "%lld", (long long)size->cutoff);
    return sn_options_set(*out, "cutoff_len", text, SN_FROM_COMMAND_LINE, "probe");
}

static sn_status make_model(const size_of *size, sn_model_arch arch, sn_model *m) {
    *m = (sn_model){.path = sn_strdup("probe")};
    m->config = &m->shape;
    sn_model_config *c = m->config;
    sn_model_config_init(c, arch);
    if (!m->path) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a name");
    c->vocab_size = size->vocabulary;
    c->hidden_size = size->hidden;
    c->intermediate_size = size->intermediate;
    c->num_layers = 1;
    c->num_heads = size->heads;
    c->num_kv_heads = arch == SN_ARCH_GPT2 ? size->heads : size->kv_heads;
    c->head_dim = size->head_dim;
    c->max_position = 2048;
    c->norm_eps = 1e-5;
    c->tie_word_embeddings = true;
    return SN_OK;
}

/* Random tokens, rows of the full length, a label for each. */
static void fill(sn_run *run, int program, const size_of *size) {
    int64_t n = size->rows * size->cutoff;
    int32_t *ids = sn_run_io(run, program, "ids", 0, NULL), *labels = sn_run_io(run, program, "labels", 0, NULL);
    int32_t *positions = sn_run_io(run, program, "positions", 0, NULL), *starts = sn_run_io(run, program, "seq_start", 0, NULL);
    float *scale = sn_run_io(run, program, "scale", 0, NULL), *hyper = sn_run_io(run, program, "hyper", 0, NULL);
    static const float values[8] = {1e-5f, 0.1f, 0.001f, 1, 1};
    for (int64_t i = 0; i < n; i++) {
        sn_rng4 r = sn_philox(1, 2, 3, (uint32_t)i, 0, 0);
        ids[i] = (int32_t)(r.v[0] % (uint64_t)size->vocabulary);
        labels[i] = (int32_t)(r.v[1] % (uint64_t)size->vocabulary);
        if (positions) positions[i] = (int32_t)(i % size->cutoff);
        starts[i] = (int32_t)(i - i % size->cutoff);
    }
    *scale = 1.0f / (float)n;
    if (hyper) memcpy(hyper, values, sizeof values);
}

/* Points of one kernel that lie near each other become one: their mean, by how often each was seen. */
static void add_point(sn_profile *p, const sn_instr *in, double work, double intensity, double factor) {
    char key[SN_PROFILE_KEY];
    sn_profile_key(in, key);
    for (size_t i = 0; i < p->n; i++) {
        sn_profile_point *at = &p->points[i];
        if (strcmp(at->key, key) || fabs(log(work / at->work)) > 0.25 || fabs(log(intensity / at->intensity)) > 0.25) continue;
        at->factor *= pow(factor / at->factor, 1 / (at->seen + 1));
        at->seen++;
        return;
    }
    if (p->n == SN_PROFILE_MOST) return;
    sn_profile_point *at = &p->points[p->n++];
    *at = (sn_profile_point){.work = work, .intensity = intensity, .factor = factor, .seen = 1};
    memcpy(at->key, key, sizeof at->key);
}

static sn_status run_case(sn_session *s, const size_of *size, const sn_rates *rates, sn_profile *out) {
    int k = sn_job_role_index(s->job, SN_ROLE_TRAIN);
    const sn_program *p = &s->plan->programs[k].program;
    double *best = sn_alloc_zero((size_t)p->count + 1, sizeof *best);
    sn_rates here = *rates;
    here.rows = (double)size->rows;
    sn_status status = best ? sn_run_profile(s->run, true) : sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a profile");
    for (int r = 0; status == SN_OK && r <= REPEATS; r++) {
        fill(s->run, k, size);
        status = sn_run_program(s->run, k, 0);
        const double *seconds = sn_run_seconds(s->run, k);
        for (uint32_t i = 0; status == SN_OK && r && i < p->count; i++) /* the first warms up */
            if (r == 1 || seconds[i] < best[i]) best[i] = seconds[i];
    }
    for (uint32_t i = 0; status == SN_OK && i < p->count; i++) {
        double work = sn_roofline_seconds(&p->instrs[i], &here);
        if (p->instrs[i].queue == SN_QUEUE_COMPUTE && work > 0 && best[i] > 0)
            add_point(out, &p->instrs[i], work, sn_instr_intensity(&p->instrs[i], &here), best[i] / work);
    }
    sn_free(best);
    return status;
}

typedef struct prober {
    int threads;
    const sn_rates *rates;
    sn_profile *out;
} prober;

static sn_status run_recipe(const prober *p, const size_of *size, sn_model_arch arch, const sn_options *recipe) {
    sn_session s = {0};
    sn_model m;
    sn_status status = make_model(size, arch, &m);
    if (status == SN_OK) status = sn_train_plan(&m, recipe, NULL, NULL, &s);
    if (status == SN_OK) status = sn_session_open(&s, recipe, NULL, NULL);
    if (status == SN_OK) status = run_case(&s, size, p->rates, p->out);
    sn_session_close(&s);
    sn_model_close(&m);
    return status;
}

static sn_status measure_case(const prober *p, size_t i) {
    sn_options *recipe = NULL;
    sn_status s = make_recipe(cases[i].size, p->threads, &recipe);
    if (s == SN_OK && cases[i].key) s = sn_options_set(recipe, cases[i].key, cases[i].value, SN_FROM_COMMAND_LINE, "probe");
    if (s == SN_OK) s = run_recipe(p, cases[i].size, cases[i].arch, recipe);
    sn_options_close(recipe);
    return s;
}

static bool makes_form(const sn_pass *p, size_t k, const sn_options *recipe) {
    const sn_cluster alone = {.addresses = 1, .mesh = sn_mesh_alone()};
    return p->choices[k].kind == SN_CHOICE_LOSSY && sn_choice_applies(p, recipe, &alone, &p->choices[k]);
}

/* The other forms that passes offer: each alone, and beside a second one of a later pass. */
static sn_status measure_forms(const prober *p, const size_of *size, const sn_options *base, size_t first, bool pairs) {
    for (size_t i = first; i < sn_n_passes; i++)
        for (size_t k = 0; k < sn_passes[i]->n_choices; k++) {
            bool updates = sn_passes[i]->touches == SN_TOUCHES_RESTS; /* other kernels of the update only: one size will do */
            sn_options *recipe = NULL;
            if (!makes_form(sn_passes[i], k, base) || (updates && (!pairs || first))) continue;
            sn_status s = sn_options_copy(base, &recipe);
            if (s == SN_OK) s = sn_choose(recipe, &sn_passes[i]->choices[k], NULL, 0);
            if (s == SN_OK) s = run_recipe(p, size, SN_ARCH_LLAMA, recipe);
            if (s == SN_OK && pairs && !first && !updates) s = measure_forms(p, size, recipe, i + 1, true);
            sn_options_close(recipe);
            SN_TRY(s);
        }
    return SN_OK;
}

sn_status sn_profile_measure(int threads, const sn_rates *rates, sn_profile *out) {
    const prober p = {threads, rates, out};
    const size_of *sizes[] = {&small, &wide};
    out->n = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) SN_TRY(measure_case(&p, i));
    for (size_t i = 0; i < 2; i++) {
        sn_options *recipe = NULL;
        sn_status s = make_recipe(sizes[i], threads, &recipe);
        if (s == SN_OK) s = measure_forms(&p, sizes[i], recipe, 0, i == 0);
        sn_options_close(recipe);
        SN_TRY(s);
    }
    return SN_OK;
}

/* ---- Disk ---- */

/* As the io queue does: the next piece is under way before the last has ended. */
static sn_status move_all(const sn_disk *d, char *pieces, bool writes, double *seconds) {
    const uint64_t n = d->bytes / DISK_PIECE;
    double start = sn_now();
    sn_status s = SN_OK, ended;
    for (uint64_t k = 0; k < n && s == SN_OK; k++) {
        unsigned ticket = (unsigned)(k % DISK_PIECES);
        s = sn_disk_finish(d, ticket);
        if (s == SN_OK) s = sn_disk_start(d, writes, k * DISK_PIECE, pieces + (size_t)ticket * DISK_PIECE, DISK_PIECE, ticket);
    }
    for (unsigned ticket = 0; ticket < DISK_PIECES; ticket++)
        if ((ended = sn_disk_finish(d, ticket)) != SN_OK) s = ended;
    *seconds = sn_now() - start;
    return s;
}

sn_status sn_profile_disk(const char *folder, double *read, double *write) {
    sn_disk d;
    double reading = 0, writing = 0;
    uint64_t room;
    SN_TRY(sn_disk_free(folder, &room));
    const uint64_t bytes = (room / 2 < DISK_BYTES ? room / 2 : DISK_BYTES) / DISK_PIECE * DISK_PIECE;
    if (!bytes) return sn_fail(SN_ERR_FILE, "%s has %llu bytes free, too few to measure its disk", folder, (unsigned long long)room);
    char *memory = sn_alloc(DISK_PIECES * DISK_PIECE + SN_DISK_ALIGN);
    if (!memory) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %d bytes", DISK_PIECES * DISK_PIECE);
    char *pieces = memory + (SN_DISK_ALIGN - (uintptr_t)memory % SN_DISK_ALIGN);
    for (size_t k = 0; k < DISK_PIECES * DISK_PIECE / sizeof(uint64_t); k++) /* some disks shrink what they can */
        memcpy(pieces + k * sizeof(uint64_t), &(uint64_t){k * 0x9e3779b97f4a7c15u}, sizeof(uint64_t));
    sn_status s = sn_disk_open(folder, bytes, &d);
    for (int r = 0; s == SN_OK && r < 2; r++) s = move_all(&d, pieces, true, &writing); /* the first time takes blocks of the disk */
    if (s == SN_OK) s = move_all(&d, pieces, false, &reading);
    sn_disk_close(&d);
    sn_free(memory);
    *read = s == SN_OK ? (double)bytes / reading : 0;
    *write = s == SN_OK ? (double)bytes / writing : 0;
    return s;
}
