/* Planning a job without running it. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/mem.h"
#include "engine/compare.h"
#include "engine/fit.h"
#include "engine/peft.h"
#include "engine/train.h"

_Static_assert((int)SNUG_TIERS == (int)SN_TIER_COUNT && (int)SNUG_CLASSES == (int)SN_CLASS_COUNT, "snug.h's counts");

const char *const snug_tier_names[SNUG_TIERS] = {"device", "host", "disk"};
const char *const snug_class_names[SNUG_CLASSES] = {
#define X(id, name) name,
    SN_CLASS_LIST(X)
#undef X
};

static void fill_bill(const sn_limits *l, const sn_bill *b, snug_bill *out) {
    uint64_t need[SN_HOLD_COUNT];
    *out = (snug_bill){.total_bytes = b->total, .reserved_bytes = b->reserved};
    for (int t = 0; t < SN_TIER_COUNT; t++) out->by_tier[t] = b->by_tier[t];
    for (int c = 0; c < SN_CLASS_COUNT; c++) out->by_class[c] = b->by_class[SN_TIER_DEVICE][c] + b->by_class[SN_TIER_HOST][c];
    snprintf(out->peak_program, sizeof out->peak_program, "%s", b->peak_program);
    snprintf(out->peak_op, sizeof out->peak_op, "%s", b->peak_op);
    sn_needs_of(l, b, need);
    for (int h = 0; h < SN_HOLD_COUNT; h++) {
        if (l->most[h] == UINT64_MAX) continue;
        out->budget_by_tier[h] = l->most[h];
        out->missing_by_tier[h] = need[h] > l->most[h] ? need[h] - l->most[h] : 0;
    }
    out->budget_bytes = out->budget_by_tier[SN_HOLD_DEVICE];
    out->missing_bytes = out->missing_by_tier[SN_HOLD_DEVICE];
}

void sn_bill_out(const sn_session *s, const sn_options *recipe, snug_bill *out) {
    const sn_limits l = sn_limits_stated(s, recipe);
    fill_bill(&l, &s->plan->bill, out);
}

const char *sn_adapter_of(const snug_options *o) {
    const char *adapter = sn_options_string(o->store, "adapter");
    return adapter && *adapter ? adapter : NULL;
}

sn_status sn_generation_defaults(sn_options *recipe) {
    for (size_t i = 0; i < sn_n_passes; i++)
        for (size_t k = 0; k < sn_passes[i]->n_inference; k++) {
            const sn_inference_option *o = &sn_passes[i]->inference[k];
            if (o->generating) SN_TRY(sn_options_set(recipe, o->key, o->generating, SN_FROM_DEFAULT, o->key));
        }
    return SN_OK;
}

sn_status sn_refuse_ranks(const sn_options *recipe) {
    if (!sn_options_given(recipe, "ranks") && !sn_options_given(recipe, "nodes")) return SN_OK;
    return sn_fail(SN_ERR_USAGE, "ranks and nodes are of training jobs: text is generated on one rank");
}

sn_status sn_take_adapter(const snug_options *o, sn_options **recipe) {
    sn_options *adapted;
    if (!sn_adapter_of(o)) return SN_OK;
    SN_TRY(sn_adapter_recipe(sn_adapter_of(o), *recipe, &adapted));
    sn_options_close(*recipe);
    *recipe = adapted;
    return SN_OK;
}

snug_status snug_plan_make(snug_model *m, const snug_options *o, snug_plan **out) {
    const char *purpose = snug_options_text(o, "for");
    bool generates = purpose && !strcmp(purpose, "generate");
    snug_plan *p = sn_alloc_zero(1, sizeof *p);
    sn_options *recipe = NULL;
    if (!p) return (snug_status)sn_fail(SN_ERR_NO_MEMORY, "cannot allocate a plan");
    sn_status s = sn_options_copy(o->store, &recipe);
    if (s == SN_OK && generates) s = sn_refuse_ranks(recipe);
    if (s == SN_OK && generates) {
        sn_generator g = {0};
        s = sn_generation_defaults(recipe);
        if (s == SN_OK) s = sn_generator_plan(&m->model, recipe, sn_adapter_of(o), &g);
        p->session = g.session;
    } else if (s == SN_OK) {
        s = sn_take_adapter(o, &recipe);
        if (s == SN_OK && sn_options_given(recipe, "fit")) {
            sn_options *fitted;
            s = sn_fit_training(&m->model, recipe, NULL, &p->session, &fitted, &p->fit);
            if (fitted) {
                sn_options_close(recipe);
                recipe = fitted;
            }
        } else if (s == SN_OK) {
            s = sn_train_plan(&m->model, recipe, NULL, NULL, &p->session);
        }
    }
    if (s == SN_OK) {
        p->limits = sn_limits_stated(&p->session, recipe);
        fill_bill(&p->limits, &p->session.plan->bill, &p->bill);
    }
    if (s == SN_OK && !generates) {
        sn_rates rates;
        s = sn_train_rates(&p->session, recipe, &rates, &p->forecasts);
        if (s == SN_OK) s = sn_train_forecast(&p->session, recipe, &rates, &p->forecast);
        if (s != SN_OK) sn_session_close(&p->session);
    }
    sn_options_close(recipe);
    if (s == SN_OK) *out = p;
    else sn_free(p);
    return (snug_status)s;
}

void snug_plan_free(snug_plan *p) {
    if (!p) return;
    sn_session_close(&p->session);
    sn_free(p);
}

void snug_plan_bill(const snug_plan *p, snug_bill *out) { *out = p->bill; }

snug_status snug_plan_check(const snug_plan *p) { return (snug_status)sn_limits_check(&p->limits, &p->session.plan->bill, NULL); }

/* The bill's object with two members more. */
static void render_json(const snug_plan *p, const sn_forecast *f, sn_str *text) {
    const snug_bill *b = &p->bill;
    sn_bill_json(p->session.plan, f, text);
    sn_str_add(text, ", \"budget\": {");
    for (int h = 0, n = 0; h < SN_HOLD_COUNT; h++) {
        if (p->limits.most[h] == UINT64_MAX) continue;
        sn_str_printf(text, "%s\"%s\": {\"bytes\": %llu, \"missing_bytes\": %llu}", n++ ? ", " : "", snug_tier_names[h],
                      (unsigned long long)b->budget_by_tier[h], (unsigned long long)b->missing_by_tier[h]);
    }
    sn_str_add(text, "}, \"fit\": ");
    sn_fit_json(&p->fit, text);
    sn_str_add(text, "}\n");
}

snug_status snug_plan_render(const snug_plan *p, snug_render form, char **out) {
    sn_str text = {0};
    const sn_forecast *f = p->forecasts ? &p->forecast : NULL;
    switch (form) {
    case SNUG_RENDER_JSON: render_json(p, f, &text); break;
    case SNUG_RENDER_HTML: sn_plan_html(p->session.plan, p->session.job, &text); break;
    default: sn_bill_print(p->session.plan, f, &text); sn_fit_print(&p->fit, &text);
    }
    sn_status s = sn_hand_out(&text, out);
    sn_str_free(&text);
    return (snug_status)s;
}

snug_status snug_plan_compare(snug_model *m, const snug_options *o, bool json, char **out) {
    const char *purpose = snug_options_text(o, "for");
    sn_options *recipe = NULL;
    sn_comparison comparison = {0};
    sn_str text = {0};
    if (purpose && !strcmp(purpose, "generate")) return (snug_status)sn_fail(SN_ERR_USAGE, "compare is for training jobs");
    sn_status s = sn_options_copy(o->store, &recipe);
    if (s == SN_OK) s = sn_take_adapter(o, &recipe);
    if (s == SN_OK) s = sn_compare_training(&m->model, recipe, &comparison);
    if (s == SN_OK) {
        (json ? sn_comparison_json : sn_comparison_print)(&comparison, &text);
        s = sn_hand_out(&text, out);
    }
    sn_str_free(&text);
    sn_comparison_free(&comparison);
    sn_options_close(recipe);
    return (snug_status)s;
}
