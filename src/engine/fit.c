#include "engine/fit.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "engine/train.h"

static const char *const kind_words[] = {[SN_CHOICE_EXACT] = "bit-exact",
                                         [SN_CHOICE_REORDERED] = "the same step in smaller micro-batches",
                                         [SN_CHOICE_LOSSY] = "another form: results differ within its tolerance"};

/* ---- Refusing ---- */

static sn_status refuse(const sn_search *s, const sn_limits *l, const sn_options *recipe, const sn_bill *b) {
    char with[24], disk[24], room[24], change[512];
    const char *key, *folder = sn_passes_folder(recipe, &key);
    if (s->n_fits)
        snprintf(change, sizeof change, "the cheapest change that fits is %s (%s, %s)", s->fits[0].change,
                 sn_bytes_text(s->fits[0].need[SN_HOLD_DEVICE], with), kind_words[s->fits[0].kind]);
    else
        snprintf(change, sizeof change, "no change that snug %s fits; the smallest is %s (%s, %s on disk%s%s)",
                 s->cut ? "has tried" : "knows", *s->smallest.change ? s->smallest.change : "unknown",
                 sn_bytes_text(s->smallest.need[SN_HOLD_DEVICE], with), sn_bytes_text(s->smallest.need[SN_HOLD_DISK], disk),
                 l->disk_free == UINT64_MAX ? "" : ", where values rest there is room for ",
                 l->disk_free == UINT64_MAX ? "" : sn_bytes_text(l->disk_free, room));
    if (!s->n_fits && !*folder) {
        size_t n = strlen(change);
        snprintf(change + n, sizeof change - n, "; nothing goes to disk without");
        sn_note_option(change, sizeof change, key, "DIR");
    }
    return sn_limits_check(l, b, change);
}

/* ---- Saying ---- */

static void print_needs(const sn_fit *f, const sn_found *x, sn_str *out) {
    char text[24];
    sn_str_add(out, sn_bytes_text(x->need[SN_HOLD_DEVICE], text));
    if (f->most[SN_HOLD_HOST] != UINT64_MAX) sn_str_printf(out, ", host %s", sn_bytes_text(x->need[SN_HOLD_HOST], text));
    if (x->need[SN_HOLD_DISK] != f->was[SN_HOLD_DISK]) sn_str_printf(out, ", disk %s", sn_bytes_text(x->need[SN_HOLD_DISK], text));
}

static void print_why(const sn_search *s, sn_str *out) {
    sn_str_printf(out, "%s: the fastest that fits of %zu changes up to this kind; %zu were planned", kind_words[s->fits[0].kind],
                  s->considered, s->planned);
    sn_str_add(out, s->cut ? ", then the search was cut off" : ", the others cannot fit or cannot be faster");
    if (!s->measured) sn_str_add(out, "; by guessed rates: snug probe measures this machine");
}

void sn_fit_print(const sn_fit *f, sn_str *out) {
    const sn_search *s = &f->search;
    for (int i = 0; i < s->n_fits; i++) {
        const sn_found *x = &s->fits[i];
        sn_str_printf(out, "%s %s: ", i ? "  next:" : "fit: took", x->change);
        print_needs(f, x, out);
        sn_str_printf(out, ", about %.3g s a step (", x->seconds);
        if (!i) print_why(s, out);
        else if (s->fits[0].seconds > 0) sn_str_printf(out, "%.1f%% slower", 100 * (x->seconds / s->fits[0].seconds - 1));
        sn_str_add(out, ")\n");
    }
}

void sn_fit_json(const sn_fit *f, sn_str *out) {
    const sn_search *s = &f->search;
    if (!s->n_fits) {
        sn_str_add(out, "null");
        return;
    }
    sn_str_printf(out, "{\"candidates\": %zu, \"planned\": %zu, \"complete\": %s, \"rates_known\": %s, \"choices\": [", s->considered,
                  s->planned, s->cut ? "false" : "true", s->measured ? "true" : "false");
    for (int i = 0; i < s->n_fits; i++) {
        sn_str_add(out, i ? ", {\"change\": " : "{\"change\": ");
        sn_str_json(out, s->fits[i].change, strlen(s->fits[i].change));
        sn_str_printf(out, ", \"kind\": \"%s\", \"step_seconds\": %.6g", sn_choice_kind_name(s->fits[i].kind), s->fits[i].seconds);
        for (int h = 0; h < SN_HOLD_COUNT; h++)
            sn_str_printf(out, ", \"%s_bytes\": %llu", sn_tier_name((sn_tier)h), (unsigned long long)s->fits[i].need[h]);
        sn_str_add(out, "}");
    }
    sn_str_add(out, "]}");
}

/* ---- Fitting ---- */

/* The search for a job that is over its budget: *session, planned as the recipe says, is replaced by the changed job's. */
static sn_status change(sn_model *model, const sn_options *recipe, const sn_world *world, const sn_limits *limits, sn_session *session,
                        sn_options **chosen, sn_fit *f) {
    const char *how = sn_options_string(recipe, "fit");
    bool off = !strcmp(how, "off");
    sn_choice_kind most = off || !strcmp(how, "any") ? SN_CHOICE_LOSSY : SN_CHOICE_REORDERED;
    sn_needs_of(limits, &session->most, f->was);
    memcpy(f->most, limits->most, sizeof f->most);
    SN_TRY(sn_search_run(model, recipe, session, limits, most, false, &f->search));
    if (off || !f->search.n_fits) {
        sn_status s = refuse(&f->search, limits, recipe, &session->most);
        sn_search_free(&f->search);
        return s;
    }
    *chosen = f->search.fits[0].recipe;
    f->search.fits[0].recipe = NULL;
    for (int i = 1; i < f->search.n_fits; i++) {
        sn_options_close(f->search.fits[i].recipe);
        f->search.fits[i].recipe = NULL;
    }
    sn_session_close(session);
    return sn_train_plan(model, *chosen, world, NULL, session);
}

static sn_status fit_first(sn_model *model, const sn_options *recipe, const sn_world *world, sn_session *session, sn_options **chosen,
                           sn_fit *f) {
    SN_TRY(sn_train_plan(model, recipe, world, NULL, session));
    sn_limits limits = sn_limits_of(session, recipe);
    sn_limits_agree(&limits, world);
    if (!strcmp(sn_options_string(recipe, "fit"), "off")) limits.disk_free = UINT64_MAX; /* training checks it, and says which folder */
    return sn_limits_hold(&limits, &session->most) ? SN_OK : change(model, recipe, world, &limits, session, chosen, f);
}

sn_status sn_fit_training(sn_model *model, const sn_options *recipe, const sn_world *world, sn_session *session, sn_options **chosen,
                          sn_fit *fit) {
    sn_fit own;
    if (!fit) fit = &own;
    *chosen = NULL;
    *fit = (sn_fit){0};
    sn_world first;
    if (world) {
        first = *world; /* its comm knows this rank; the plans are rank 0's */
        first.rank = 0;
    }
    sn_status s = fit_first(model, recipe, world ? &first : NULL, session, chosen, fit);
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
