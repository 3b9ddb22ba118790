#include "engine/search.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/train.h"

enum { MOST_DIMENSIONS = 16, MOST_FURTHER = 6 };

/* The dimensions: the passes with choices that apply, and the division of micro-batches. */
typedef struct dimension {
    const sn_pass *pass;
    const sn_choice *choices[32]; /* those that apply */
    uint8_t n;
    uint8_t first; /* what `taken` is for the pass's first choice */
} dimension;

typedef struct facts {                /* of a plan; or, of a candidate without one, bounds from below */
    uint64_t rest, disk;              /* bytes of persistent values on the device and on disk */
    uint64_t activations;             /* bytes of activations, and of what kernels work with, that live at once before the update */
    double compute, update, io, comm; /* seconds of a step; compute: before the update */
    double span;                      /* seconds that it takes; of a plan only */
} facts;

typedef struct candidate {
    uint8_t taken[MOST_DIMENSIONS]; /* 0: as it is, else 1 + the index of a choice */
    int64_t divide;                 /* micro-batch rows divided by this, accumulation multiplied */
    uint8_t kind;
    bool done; /* planned, or cannot be */
    facts least;
} candidate;

typedef struct space {
    dimension dims[MOST_DIMENSIONS];
    size_t n_dims;
    int64_t rows, steps; /* of a micro-batch and of a step as they are */
    candidate *all;
    size_t n;
} space;

typedef struct work {
    sn_model *model;
    const sn_options *recipe;
    const sn_session *session;
    const sn_limits *limits;
    sn_rates rates;
    uint64_t reserved; /* bytes that every plan has beside its arenas */
    bool exhaustive;
    uint64_t effort; /* instructions planned */
    int further;     /* plans made for the places after the first */
    space space;
    sn_search *out;
} work;

/* ---- The space ---- */

static sn_status open_dimensions(space *s, const sn_options *recipe, const sn_cluster *cluster) {
    s->rows = sn_options_int(recipe, "per_device_train_batch_size");
    s->steps = sn_options_int(recipe, "gradient_accumulation_steps");
    for (size_t i = 0; i < sn_n_passes; i++) {
        const sn_pass *p = sn_passes[i];
        dimension d = {.pass = p, .first = UINT8_MAX};
        if (p->n_choices > sizeof d.choices / sizeof d.choices[0] || s->n_dims == MOST_DIMENSIONS)
            return sn_fail(SN_ERR_INTERNAL, "more choices than the search has room for, at pass %s", p->name);
        if (p->n_choices && sn_choice_made(&p->choices[0], recipe)) d.first = 0;
        for (size_t k = 0; k < p->n_choices; k++) {
            if (!sn_choice_applies(p, recipe, cluster, &p->choices[k])) continue;
            d.choices[d.n++] = &p->choices[k];
            if (k == 0) d.first = d.n;
        }
        if (d.n) s->dims[s->n_dims++] = d;
    }
    return SN_OK;
}

/* Sets the candidate's kind. False where it is not of the space: it is the job as it is, more than two forms change at once, or forms and
 * micro-batches change and an exact choice is neither as it is nor the one that saves most. */
static bool belongs(const space *s, candidate *c) {
    bool between = false, changed = c->divide > 1;
    int forms = 0;
    c->kind = c->divide > 1 ? SN_CHOICE_REORDERED : SN_CHOICE_EXACT;
    for (size_t i = 0; i < s->n_dims; i++) {
        if (!c->taken[i]) continue;
        const sn_choice *choice = s->dims[i].choices[c->taken[i] - 1];
        if (choice->kind > c->kind) c->kind = (uint8_t)choice->kind;
        forms += choice->kind == SN_CHOICE_LOSSY;
        between |= choice->kind == SN_CHOICE_EXACT && c->taken[i] < s->dims[i].n;
        changed = true;
    }
    return changed && forms <= 2 && !(between && forms && c->divide > 1) && s->rows % c->divide == 0;
}

/* The next point, the last dimension varying fastest, the divisions slowest; false after the last. */
static bool advance(const space *s, candidate *c) {
    for (size_t i = s->n_dims; i-- > 0; c->taken[i] = 0)
        if (c->taken[i]++ < s->dims[i].n) return true;
    c->divide *= 2;
    return c->divide <= s->rows;
}

static sn_status list_candidates(space *s, sn_choice_kind most) {
    for (int counting = 1; counting >= 0; counting--) {
        size_t n = 0;
        for (candidate c = {.divide = 1}; advance(s, &c);) {
            if (!belongs(s, &c) || c.kind > most) continue;
            if (!counting) s->all[n] = c;
            n++;
        }
        s->n = n;
        if (counting && !(s->all = sn_alloc_zero(n + 1, sizeof *s->all)))
            return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate %zu candidates", n);
    }
    return SN_OK;
}

/* ---- Recipes ---- */

void sn_note_option(char *text, size_t size, const char *key, const char *value) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s--", n ? " " : "");
    for (n = strlen(text); *key && n + 1 < size; key++) text[n++] = *key == '_' ? '-' : *key;
    text[n] = 0;
    if (strcmp(value, "true")) snprintf(text + n, size - n, " %s", value);
}

static sn_status set(sn_options *o, const char *key, const char *value, char *text, size_t size) {
    if (text) sn_note_option(text, size, key, value);
    return sn_options_set(o, key, value, SN_FROM_COMMAND_LINE, "fit");
}

sn_status sn_choose(sn_options *recipe, const sn_choice *choice, char *text, size_t size) {
    const char *key, *value;
    for (size_t i = 0; sn_choice_setting(choice, i, &key, &value); i++) SN_TRY(set(recipe, key, value, text, size));
    return SN_OK;
}

static sn_status apply(const work *w, const candidate *c, sn_options **out, char *text, size_t size) {
    char number[24];
    const space *s = &w->space;
    text[0] = 0;
    SN_TRY(sn_options_copy(w->recipe, out));
    for (size_t i = 0; i < s->n_dims; i++)
        if (c->taken[i]) SN_TRY(sn_choose(*out, s->dims[i].choices[c->taken[i] - 1], text, size));
    if (c->divide == 1) return SN_OK;
    snprintf(number, sizeof number, "%lld", (long long)(s->rows / c->divide));
    SN_TRY(set(*out, "per_device_train_batch_size", number, text, size));
    snprintf(number, sizeof number, "%lld", (long long)(s->steps * c->divide));
    return set(*out, "gradient_accumulation_steps", number, text, size);
}

/* ---- What a plan says ---- */

static bool is_counted(const sn_graph *g, const sn_planned *p, const sn_life *l) {
    if (l->tier != SN_TIER_DEVICE || !sn_in_turn(l->turns, 0)) return false;
    if (l->value != SN_NONE) return l->class_of == SN_CLASS_ACTIVATIONS;
    const sn_instr *in = &p->program.instrs[l->first];
    return in->queue == SN_QUEUE_COMPUTE && g->nodes[in->node].phase != SN_PHASE_UPDATE;
}

static sn_status activations_of(const sn_graph *g, const sn_planned *p, uint64_t *most) {
    int64_t *change = sn_alloc_zero((size_t)p->program.count + 2, sizeof *change), live = 0;
    if (!change) return sn_fail(SN_ERR_NO_MEMORY, "cannot measure a plan");
    for (size_t i = 0; i < p->n_lives; i++) {
        const sn_life *l = &p->lives[i];
        if (!is_counted(g, p, l)) continue;
        change[l->first] += (int64_t)l->bytes;
        change[l->last + 1] -= (int64_t)l->bytes;
    }
    for (uint32_t k = 0; k < p->program.count; k++) {
        live += change[k];
        if (live > 0 && (uint64_t)live > *most) *most = (uint64_t)live;
    }
    sn_free(change);
    return SN_OK;
}

static sn_status add_program(const sn_session *s, int k, const sn_rates *rates, double times, facts *f) {
    const sn_planned *p = &s->plan->programs[k];
    sn_program_time t;
    double *seconds = sn_alloc_zero((size_t)p->program.count + 1, sizeof *seconds);
    if (!seconds) return sn_fail(SN_ERR_NO_MEMORY, "cannot measure a plan");
    sn_status status = sn_program_estimate(&p->program, rates, &s->plan->mesh, seconds, &t);
    for (uint32_t i = 0; status == SN_OK && i < p->program.count; i++) {
        const sn_instr *in = &p->program.instrs[i];
        if (in->queue != SN_QUEUE_COMPUTE) continue;
        *(s->job->graphs[k]->nodes[in->node].phase == SN_PHASE_UPDATE ? &f->update : &f->compute) += times * seconds[i];
    }
    sn_free(seconds);
    SN_TRY(status);
    f->span += times * sn_planned_span(p, &t);
    f->io += times * t.io;
    f->comm += times * t.communication;
    return activations_of(s->job->graphs[k], p, &f->activations);
}

static sn_status facts_of(const sn_session *s, const sn_options *recipe, const sn_rates *known, facts *f) {
    sn_rates rates = *known;
    rates.rows = (double)sn_options_int(recipe, "per_device_train_batch_size");
    double steps = (double)sn_options_int(recipe, "gradient_accumulation_steps");
    *f = (facts){.rest = s->plan->persistent_bytes[SN_TIER_DEVICE], .disk = s->plan->persistent_bytes[SN_TIER_DISK]};
    for (int k = 0; k < s->plan->n_programs; k++) {
        sn_role role = s->plan->programs[k].role;
        if (sn_role_trains(role) || role == SN_ROLE_UPDATE)
            SN_TRY(add_program(s, k, &rates, role == SN_ROLE_TRAIN_NEXT ? steps - 1 : 1, f));
    }
    return SN_OK;
}

/* ---- Bounds ---- */

static bool alike(const space *s, const candidate *a, const candidate *b, sn_touch touches) {
    for (size_t i = 0; i < s->n_dims; i++)
        if (s->dims[i].pass->touches == touches && a->taken[i] != b->taken[i]) return false;
    return true;
}

static bool as_is(const space *s, const candidate *a) { /* its rests */
    for (size_t i = 0; i < s->n_dims; i++)
        if (s->dims[i].pass->touches == SN_TOUCHES_RESTS && a->taken[i]) return false;
    return true;
}

static bool at_first(const space *s, const candidate *a) { /* its activations */
    for (size_t i = 0; i < s->n_dims; i++)
        if (s->dims[i].pass->touches == SN_TOUCHES_ACTIVATIONS && a->taken[i] != s->dims[i].first) return false;
    return true;
}

static void no_less_than(double *x, double least) { *x = least > *x ? least : *x; }
static void no_fewer(uint64_t *x, uint64_t least) { *x = least > *x ? least : *x; }

/* What the facts of p say about c at least. Smaller micro-batches do not compute less; a tenth is given away to caches, which may like
 * their shapes better. */
static void learn(const space *s, candidate *c, const candidate *p, const facts *f) {
    if (c->done || !alike(s, c, p, SN_TOUCHES_ALL)) return;
    bool rests = alike(s, c, p, SN_TOUCHES_RESTS), kept = alike(s, c, p, SN_TOUCHES_ACTIVATIONS), no_less = kept || at_first(s, p);
    bool more = c->divide >= p->divide, accumulates = c->divide * s->steps > 1;
    double part = c->divide > p->divide ? 0.9 : 1;
    facts *least = &c->least;
    if (rests && (accumulates || p->divide * s->steps == 1)) {
        no_fewer(&least->rest, f->rest);
        no_fewer(&least->disk, f->disk);
    }
    if (kept && (rests || as_is(s, p)))
        no_fewer(&least->activations, more ? f->activations / (uint64_t)(c->divide / p->divide) : f->activations);
    if (!more) return;
    if (no_less && (rests || as_is(s, p))) no_less_than(&least->compute, part * f->compute);
    if (!rests) return;
    no_less_than(&least->update, part * f->update);
    if (no_less) no_less_than(&least->io, part * f->io);
    if (no_less) no_less_than(&least->comm, part * f->comm);
}

static double least_seconds(const candidate *c) {
    double most = c->least.compute + c->least.update;
    no_less_than(&most, c->least.io);
    no_less_than(&most, c->least.comm);
    return most;
}

static uint64_t least_bytes(const work *w, const candidate *c) { return c->least.rest + c->least.activations + w->reserved; }

static bool may_fit(const work *w, const candidate *c) {
    uint64_t disk = c->least.disk * (uint64_t)w->limits->sharing;
    return least_bytes(w, c) <= w->limits->most[SN_HOLD_DEVICE] && disk <= w->limits->most[SN_HOLD_DISK] && disk <= w->limits->disk_free;
}

static int changes(const space *s, const candidate *c) {
    int n = 0;
    for (size_t i = 0; i < s->n_dims; i++) n += c->taken[i] != 0;
    return n;
}

/* The candidate whose plan says most about c and others beside it, unless it has been planned: the one with c's forms that computes least
 * and whose values rest as they do in the job as it is; the same with c's activations; the same with c's rests. NULL: they have been
 * planned, or are not of the space. */
static candidate *scout_of(const space *s, const candidate *c) {
    enum { FORMS, ACTIVATIONS, RESTS, N };
    for (int of = FORMS; of < N; of++) {
        candidate wanted = {.divide = 1};
        for (size_t i = 0; i < s->n_dims; i++) {
            const dimension *d = &s->dims[i];
            wanted.taken[i] = c->taken[i];
            if (of != RESTS && d->pass->touches == SN_TOUCHES_RESTS) wanted.taken[i] = 0;
            if (of != ACTIVATIONS && d->pass->touches == SN_TOUCHES_ACTIVATIONS && d->first != UINT8_MAX) wanted.taken[i] = d->first;
        }
        for (size_t k = 0; k < s->n; k++)
            if (s->all[k].divide == 1 && !memcmp(s->all[k].taken, wanted.taken, sizeof wanted.taken)) {
                if (!s->all[k].done) return &s->all[k];
                break;
            }
    }
    return NULL;
}

/* ---- The search ---- */

static bool better(const sn_found *a, const sn_found *b) {
    return a->seconds != b->seconds ? a->seconds < b->seconds : a->place < b->place;
}

/* Takes over x's recipe. One that changes neither bytes nor seconds beside another is the same with more words. */
static void keep(sn_search *s, sn_found *x) {
    for (int i = 0; i < s->n_fits; i++)
        if (s->fits[i].seconds == x->seconds && !memcmp(s->fits[i].need, x->need, sizeof x->need)) {
            sn_options_close(x->recipe);
            return;
        }
    int at = s->n_fits < SN_SEARCH_KEPT ? s->n_fits++ : SN_SEARCH_KEPT - 1;
    if (s->fits[at].recipe && !better(x, &s->fits[at])) {
        sn_options_close(x->recipe);
        return;
    }
    sn_options_close(s->fits[at].recipe);
    s->fits[at] = *x;
    for (; at > 0 && better(&s->fits[at], &s->fits[at - 1]); at--) {
        sn_found swap = s->fits[at];
        s->fits[at] = s->fits[at - 1];
        s->fits[at - 1] = swap;
    }
}

/* Plans one candidate. One that is illegal is left out, not an error. */
static sn_status measure(work *w, candidate *c) {
    sn_found x = {.kind = (sn_choice_kind)c->kind, .place = (size_t)(c - w->space.all)};
    sn_session s = {0};
    facts f;
    c->done = true;
    sn_status status = apply(w, c, &x.recipe, x.change, sizeof x.change);
    bool legal = status == SN_OK && sn_passes_check(x.recipe) == SN_OK, fits = false;
    if (legal) {
        uint64_t most = w->limits->most[SN_HOLD_DEVICE];
        sn_status planned = sn_train_plan_within(w->model, x.recipe, w->session->world, most == UINT64_MAX ? 0 : most, &w->rates, &s);
        legal = planned == SN_OK;
        if (planned == SN_ERR_NO_MEMORY) status = planned;
    }
    if (status == SN_OK && legal) status = facts_of(&s, x.recipe, &w->rates, &f);
    if (status == SN_OK && legal) {
        w->out->planned++;
        for (int k = 0; k < s.plan->n_programs; k++) w->effort += s.plan->programs[k].program.count;
        for (size_t i = 0; i < w->space.n; i++) learn(&w->space, &w->space.all[i], c, &f);
        x.seconds = f.span;
        sn_needs_of(w->limits, &s.most, x.need);
        fits = sn_limits_hold(w->limits, &s.most);
        if (!*w->out->smallest.change || x.need[SN_HOLD_DEVICE] < w->out->smallest.need[SN_HOLD_DEVICE]) {
            w->out->smallest = x;
            w->out->smallest.recipe = NULL;
        }
    }
    sn_session_close(&s);
    if (fits) keep(w->out, &x);
    else sn_options_close(x.recipe);
    return status;
}

/* Other forms, which are looked at last, get half of the effort for themselves. */
static bool cut(work *w, int kind) {
    bool over = !w->exhaustive && w->effort >= (kind == SN_CHOICE_LOSSY ? SN_SEARCH_MOST : SN_SEARCH_MOST / 2);
    w->out->cut |= over;
    return over;
}

/* Of two that may be equally fast: the one whose bounds come from more plans, else the one that changes less. */
static bool tells_more(const space *s, const candidate *a, const candidate *b) {
    bool bound = a->least.rest && a->least.activations, other = b->least.rest && b->least.activations;
    if (bound != other) return bound;
    return a->divide != b->divide ? a->divide < b->divide : changes(s, a) < changes(s, b);
}

/* Whether a candidate that takes so long at least cannot be the fastest. A few of them are planned all the same, to name what comes next.
 */
static bool slower(const work *w, double seconds) {
    if (!w->out->n_fits || seconds < w->out->fits[0].seconds) return false;
    return w->further >= MOST_FURTHER || (w->out->n_fits == SN_SEARCH_KEPT && seconds >= w->out->fits[SN_SEARCH_KEPT - 1].seconds);
}

/* The candidate that may be fastest; of equals, the one that tells most. NULL: none can be among the kept. */
static candidate *next(const work *w, int kind) {
    candidate *best = NULL;
    double least = 0;
    for (size_t i = 0; i < w->space.n; i++) {
        candidate *c = &w->space.all[i];
        if (c->done || c->kind != kind) continue;
        if (w->exhaustive) return c;
        double seconds = least_seconds(c);
        if (slower(w, seconds) || !may_fit(w, c)) continue;
        if (best && (seconds > least || (seconds == least && !tells_more(&w->space, c, best)))) continue;
        best = c;
        least = seconds;
    }
    return best;
}

/* Where nothing fits, what comes nearest. */
static sn_status find_smallest(work *w) {
    for (int tries = 0; tries < 8; tries++) {
        candidate *best = NULL;
        for (size_t i = 0; i < w->space.n; i++) {
            candidate *c = &w->space.all[i];
            if (!c->done && (!best || least_bytes(w, c) <= least_bytes(w, best))) best = c;
        }
        if (!best || (*w->out->smallest.change && least_bytes(w, best) >= w->out->smallest.need[SN_HOLD_DEVICE])) return SN_OK;
        SN_TRY(measure(w, best));
    }
    return SN_OK;
}

static sn_status search(work *w, sn_choice_kind most) {
    candidate here = {.divide = 1};
    facts f;
    SN_TRY(open_dimensions(&w->space, w->recipe, &w->session->cluster));
    SN_TRY(list_candidates(&w->space, most));
    SN_TRY(facts_of(w->session, w->recipe, &w->rates, &f));
    for (size_t i = 0; i < w->space.n; i++) learn(&w->space, &w->space.all[i], &here, &f);
    for (int kind = SN_CHOICE_EXACT; kind <= (int)most && !w->out->n_fits; kind++) {
        for (size_t i = 0; i < w->space.n; i++) w->out->considered += w->space.all[i].kind == kind;
        for (candidate *c; (c = next(w, kind)) && !cut(w, kind);) {
            candidate *scout = w->exhaustive ? NULL : scout_of(&w->space, c);
            w->further += !scout && w->out->n_fits && least_seconds(c) >= w->out->fits[0].seconds;
            SN_TRY(measure(w, scout ? scout : c));
        }
    }
    return w->out->n_fits ? SN_OK : find_smallest(w);
}

sn_status sn_search_run(sn_model *model, const sn_options *recipe, const sn_session *session, const sn_limits *limits, sn_choice_kind most,
                        bool exhaustive, sn_search *out) {
    work w = {.model = model, .recipe = recipe, .session = session, .limits = limits, .exhaustive = exhaustive, .out = out};
    *out = (sn_search){0};
    if (limits->one_memory) w.reserved = sn_reserved_bytes(model, false);
    SN_TRY(sn_train_rates(session, recipe, &w.rates, &out->measured));
    if (session->world) sn_world_share(session->world, &w.rates, sizeof w.rates); /* so that all take the same */
    sn_status s = search(&w, most);
    sn_free(w.space.all);
    if (s != SN_OK) sn_search_free(out);
    return s;
}

void sn_search_free(sn_search *s) {
    for (int i = 0; i < SN_SEARCH_KEPT; i++) sn_options_close(s->fits[i].recipe);
    *s = (sn_search){0};
}
