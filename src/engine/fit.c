#include "engine/fit.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "engine/train.h"

enum { MOST_DIMENSIONS = 16 };

/* The dimensions of the search: the passes that have choices, and the division of micro-batches. */
typedef struct search_space {
    const sn_pass *passes[MOST_DIMENSIONS];
    size_t n;
    int64_t rows; /* of a micro-batch as it is */
} search_space;

typedef struct candidate {
    size_t taken[MOST_DIMENSIONS]; /* by dimension: 0: as it is, else 1 + the index of a choice */
    int64_t divide;                /* micro-batch rows divided by this, accumulation multiplied */
    sn_choice_kind kind;           /* the furthest of what it changes */
    uint64_t total;
    double seconds;
    char text[256];
} candidate;

static sn_status open_space(const sn_options *recipe, search_space *s) {
    *s = (search_space){.rows = sn_options_int(recipe, "per_device_train_batch_size")};
    for (size_t i = 0; i < sn_n_passes; i++) {
        const sn_pass *p = sn_passes[i];
        if (!p->n_choices || (p->decided && p->decided(recipe))) continue;
        if (s->n == MOST_DIMENSIONS) return sn_fail(SN_ERR_INTERNAL, "more passes have choices than the search has dimensions");
        s->passes[s->n++] = p;
    }
    return SN_OK;
}

/* The next point of the space, the last pass varying fastest, the divisions slowest; false after the last. */
static bool advance(const search_space *s, candidate *c) {
    for (size_t i = s->n; i-- > 0; c->taken[i] = 0)
        if (c->taken[i]++ < s->passes[i]->n_choices) return true;
    c->divide *= 2;
    return c->divide <= s->rows;
}

/* Sets the candidate's kind. False where it is not worth planning: a choice is what the recipe says already or makes no sense beside it, more than two
 * forms change at once, or forms and micro-batches change and an exact choice is neither as it is nor the one that saves
 * most. */
static bool worth_planning(const search_space *s, const sn_options *recipe, candidate *c) {
    bool between = false;
    int forms = 0;
    c->kind = c->divide > 1 ? SN_CHOICE_REORDERED : SN_CHOICE_EXACT;
    for (size_t i = 0; i < s->n; i++) {
        if (!c->taken[i]) continue;
        const sn_choice *choice = &s->passes[i]->choices[c->taken[i] - 1];
        if (!sn_choice_applies(s->passes[i], recipe, choice)) return false;
        if (choice->kind > c->kind) c->kind = choice->kind;
        forms += choice->kind == SN_CHOICE_LOSSY;
        between |= choice->kind == SN_CHOICE_EXACT && c->taken[i] < s->passes[i]->n_choices;
    }
    return forms <= 2 && !(between && forms && c->divide > 1);
}

void sn_note_option(char *text, size_t size, const char *key, const char *value) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s--", n ? " " : "");
    for (n = strlen(text); *key && n + 1 < size; key++) text[n++] = *key == '_' ? '-' : *key;
    text[n] = 0;
    if (strcmp(value, "true")) snprintf(text + n, size - n, " %s", value);
}

static sn_status set(sn_options *o, const char *key, const char *value, char *text, size_t size) {
    sn_note_option(text, size, key, value);
    return sn_options_set(o, key, value, SN_FROM_COMMAND_LINE, "fit");
}

/* The recipe of a candidate; *valid is false when micro-batches do not divide or its options cannot be combined. */
static sn_status apply(const search_space *s, const sn_options *recipe, candidate *c, sn_options **out, bool *valid) {
    char number[24];
    int64_t steps = sn_options_int(recipe, "gradient_accumulation_steps");
    c->text[0] = 0;
    SN_TRY(sn_options_copy(recipe, out));
    for (size_t i = 0; i < s->n; i++) {
        if (!c->taken[i]) continue;
        const sn_choice *choice = &s->passes[i]->choices[c->taken[i] - 1];
        SN_TRY(set(*out, choice->key, choice->value, c->text, sizeof c->text));
    }
    if (c->divide > 1) {
        snprintf(number, sizeof number, "%lld", (long long)(s->rows / c->divide));
        SN_TRY(set(*out, "per_device_train_batch_size", number, c->text, sizeof c->text));
        snprintf(number, sizeof number, "%lld", (long long)(steps * c->divide));
        SN_TRY(set(*out, "gradient_accumulation_steps", number, c->text, sizeof c->text));
    }
    *valid = s->rows % c->divide == 0 && sn_passes_check(*out) == SN_OK;
    return SN_OK;
}

/* Plans one candidate. One that is illegal is left out, not an error. */
static sn_status measure(sn_model *model, const sn_world *world, const search_space *space, const sn_options *recipe, candidate *c,
                         bool *valid) {
    sn_options *o = NULL;
    sn_session s = {0};
    sn_status status = apply(space, recipe, c, &o, valid);
    if (status == SN_OK && *valid) {
        sn_status planned = sn_train_plan(model, o, world, NULL, &s);
        if (planned == SN_OK) {
            c->total = s.most.total;
            sn_rates rates;
            sn_forecast f;
            sn_train_rates(&s, o, &rates);
            if (world) sn_world_share(world, &rates, sizeof rates); /* so that all take the same */
            sn_train_forecast(&s, o, &rates, &f);
            c->seconds = f.compute_seconds + f.communication_seconds;
            sn_session_close(&s);
        } else {
            *valid = false;
            if (planned == SN_ERR_NO_MEMORY) status = planned;
        }
    }
    sn_options_close(o);
    return status;
}

/* Fastest first; the first kind before the others. */
static bool better(const candidate *a, const candidate *b) { return a->kind != b->kind ? a->kind < b->kind : a->seconds < b->seconds; }

typedef struct search {
    candidate fits[3]; /* the best that fit */
    int n_fits;
    candidate smallest;
    bool any;
} search;

static void keep(search *s, const candidate *c, uint64_t budget) {
    if (!s->any || c->total < s->smallest.total) s->smallest = *c;
    s->any = true;
    if (c->total > budget) return;
    int at = s->n_fits < 3 ? s->n_fits++ : better(c, &s->fits[2]) ? 2 : -1;
    if (at < 0) return;
    s->fits[at] = *c;
    for (; at > 0 && better(&s->fits[at], &s->fits[at - 1]); at--) {
        candidate swap = s->fits[at];
        s->fits[at] = s->fits[at - 1];
        s->fits[at - 1] = swap;
    }
}

static sn_status look(sn_model *model, const sn_world *world, const search_space *space, const sn_options *recipe, sn_choice_kind most, uint64_t budget,
                      search *s) {
    bool valid;
    for (int kind = SN_CHOICE_EXACT; kind <= (int)most && !s->n_fits; kind++)
        for (candidate c = {.divide = 1}; advance(space, &c);) { /* the first point is the recipe as it is */
            if (!worth_planning(space, recipe, &c) || (int)c.kind != kind) continue;
            SN_TRY(measure(model, world, space, recipe, &c, &valid));
            if (valid) keep(s, &c, budget);
        }
    return SN_OK;
}

static sn_status refuse(const search *s, const sn_bill *b, uint64_t budget) {
    char need[24], have[24], missing[24], with[24], change[384];
    if (s->n_fits)
        snprintf(change, sizeof change, "the cheapest change that fits is %s (%s)", s->fits[0].text, sn_bytes_text(s->fits[0].total, with));
    else
        snprintf(change, sizeof change, "no change that snug knows fits; the smallest is %s (%s)", s->any ? s->smallest.text : "unknown",
                 sn_bytes_text(s->smallest.total, with));
    return sn_fail(SN_ERR_BUDGET,
                   "the plan needs %s (%llu bytes), the budget is %s: %llu bytes (%s) missing. The peak is in %s at %s, the largest value "
                   "there is %s; %s",
                   sn_bytes_text(b->total, need), (unsigned long long)b->total, sn_bytes_text(budget, have),
                   (unsigned long long)(b->total - budget), sn_bytes_text(b->total - budget, missing), b->peak_program, b->peak_op,
                   b->n_largest ? b->largest[0].name : "?", change);
}

/* The search for a job that is over its budget: *session, planned as the recipe says, is replaced by the changed job's. */
static sn_status fit(sn_model *model, const sn_options *recipe, const sn_world *world, uint64_t budget, sn_session *session, sn_options **chosen) {
    static const char *const words[] = {[SN_CHOICE_EXACT] = "bit-exact",
                                        [SN_CHOICE_REORDERED] = "the same step in smaller micro-batches",
                                        [SN_CHOICE_LOSSY] = "another form: results differ within its tolerance"};
    const char *how = sn_options_string(recipe, "fit");
    bool off = !strcmp(how, "off"), valid;
    search_space space;
    search s = {0};
    char size[24];
    SN_TRY(open_space(recipe, &space));
    SN_TRY(look(model, world, &space, recipe, off || !strcmp(how, "any") ? SN_CHOICE_LOSSY : SN_CHOICE_REORDERED, budget, &s));
    if (off || !s.n_fits) return refuse(&s, &session->most, budget);
    SN_TRY(apply(&space, recipe, &s.fits[0], chosen, &valid));
    for (int i = 0; i < s.n_fits; i++)
        sn_info("%s %s: %s, about %.2f s a step (%s)", i ? "next:" : "fit: took", s.fits[i].text, sn_bytes_text(s.fits[i].total, size),
                s.fits[i].seconds, words[s.fits[i].kind]);
    sn_session_close(session);
    return sn_train_plan(model, *chosen, world, NULL, session);
}

static sn_status fit_first(sn_model *model, const sn_options *recipe, const sn_world *world, sn_session *session, sn_options **chosen) {
    SN_TRY(sn_train_plan(model, recipe, world, NULL, session));
    uint64_t budget = sn_budget_bytes(recipe, world && world->comm ? world->local : session->ranks);
    if (world) budget = sn_world_least(world, budget);
    if (session->most.total <= budget || !strcmp(session->device.shape.name, "null")) return SN_OK;
    return fit(model, recipe, world, budget, session, chosen);
}

sn_status sn_fit_training(sn_model *model, const sn_options *recipe, const sn_world *world, sn_session *session, sn_options **chosen) {
    *chosen = NULL;
    sn_world first;
    if (world) {
        first = *world; /* its comm knows this rank; the plans are rank 0's */
        first.rank = 0;
    }
    sn_status s = fit_first(model, recipe, world ? &first : NULL, session, chosen);
    if (s == SN_OK && world) {
        sn_session_close(session);
        s = sn_train_plan(model, *chosen ? *chosen : recipe, world, NULL, session);
    }
    if (s != SN_OK) {
        sn_session_close(session);
        sn_options_close(*chosen);
        *chosen = NULL;
    }
    return s;
}
