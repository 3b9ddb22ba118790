#include "engine/fit.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/probe.h"
#include "engine/train.h"

typedef enum kind { EXACT, REORDERED, FORMS } kind;

/* What a candidate changes: up to three dimensions of the search. */
typedef struct candidate {
    const char *recompute; /* NULL: as it is */
    int64_t divide;        /* micro-batch rows divided by this, accumulation multiplied */
    const char *form_key, *form_value, *form_key2, *form_value2;
    kind kind;
    uint64_t total;
    double seconds;
    char text[160];
} candidate;

enum { MOST_CANDIDATES = 128 };

static void note(char *text, size_t size, const char *key, const char *value) {
    size_t n = strlen(text);
    snprintf(text + n, size - n, "%s--", n ? " " : "");
    for (n = strlen(text); *key && n + 1 < size; key++) text[n++] = *key == '_' ? '-' : *key;
    text[n] = 0;
    if (strcmp(value, "true")) snprintf(text + n, size - n, " %s", value);
}

static sn_status set(sn_options *o, const char *key, const char *value, char *text, size_t size) {
    note(text, size, key, value);
    return sn_options_set(o, key, value, SN_FROM_COMMAND_LINE, "fit");
}

/* The recipe of a candidate; *valid is false when it changes nothing or does not divide. */
static sn_status apply(const sn_options *recipe, candidate *c, sn_options **out, bool *valid) {
    char number[24];
    int64_t rows = sn_options_int(recipe, "per_device_train_batch_size"), steps = sn_options_int(recipe, "gradient_accumulation_steps");
    c->text[0] = 0;
    *valid = rows % c->divide == 0;
    SN_TRY(sn_options_copy(recipe, out));
    if (c->recompute) SN_TRY(set(*out, "recompute", c->recompute, c->text, sizeof c->text));
    if (c->divide > 1) {
        snprintf(number, sizeof number, "%lld", (long long)(rows / c->divide));
        SN_TRY(set(*out, "per_device_train_batch_size", number, c->text, sizeof c->text));
        snprintf(number, sizeof number, "%lld", (long long)(steps * c->divide));
        SN_TRY(set(*out, "gradient_accumulation_steps", number, c->text, sizeof c->text));
    }
    if (c->form_key) SN_TRY(set(*out, c->form_key, c->form_value, c->text, sizeof c->text));
    if (c->form_key2) SN_TRY(set(*out, c->form_key2, c->form_value2, c->text, sizeof c->text));
    return SN_OK;
}

static double seconds_of(const sn_session *s, const sn_options *recipe, const sn_probe *probe) {
    double flops = !strcmp(sn_options_string(recipe, "precision"), "bf16") && probe->bf16_flops > 0 ? probe->bf16_flops : probe->f32_flops, sum = 0;
    int64_t later = sn_options_int(recipe, "gradient_accumulation_steps") - 1;
    for (int k = 0; k < s->plan->n_programs; k++) {
        sn_role role = s->plan->programs[k].role;
        double once = sn_plan_seconds(&s->plan->programs[k].program, flops, probe->read_bytes);
        if (role == SN_ROLE_TRAIN || role == SN_ROLE_UPDATE) sum += once;
        if (role == SN_ROLE_TRAIN_NEXT) sum += once * (double)later;
    }
    return sum;
}

/* Plans one candidate. One that is illegal is left out, not an error. */
static sn_status measure(sn_model *model, const sn_options *recipe, const sn_probe *probe, candidate *c, bool *valid) {
    sn_options *o = NULL;
    sn_session s = {0};
    sn_status status = apply(recipe, c, &o, valid);
    if (status == SN_OK && *valid) {
        sn_status planned = sn_train_plan(model, o, NULL, &s);
        if (planned == SN_OK) {
            c->total = s.plan->bill.total;
            c->seconds = seconds_of(&s, o, probe);
            sn_session_close(&s);
        } else {
            *valid = false;
            if (planned == SN_ERR_NO_MEMORY) status = planned;
        }
    }
    sn_options_close(o);
    return status;
}

static int list_candidates(const sn_options *recipe, candidate *out) {
    static const char *const recomputes[] = {NULL, "light", "attention", "every:4", "every:2", "all"};
    static const char *const forms[][4] = {{NULL, NULL, NULL, NULL},           {"moment_dtype", "bf16", NULL, NULL},
                                           {"precision", "bf16", NULL, NULL},  {"precision", "bf16", "moment_dtype", "bf16"},
                                           {"lora", "true", NULL, NULL},       {"lora", "true", "precision", "bf16"},
                                           {"qlora", "true", NULL, NULL}};
    int64_t rows = sn_options_int(recipe, "per_device_train_batch_size");
    bool adapter = sn_options_bool(recipe, "lora") || sn_options_bool(recipe, "qlora");
    int n = 0;
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if (forms[f][0] && strstr(forms[f][0], "lora") && (adapter || sn_options_bool(recipe, "full"))) continue;
        for (int64_t divide = 1; divide <= rows; divide *= 2)
            for (size_t r = 0; r < sizeof recomputes / sizeof recomputes[0] && n < MOST_CANDIDATES; r++) {
                kind k = forms[f][0] ? FORMS : divide > 1 ? REORDERED : EXACT;
                if (forms[f][0] && (r != 0 && r != 5) && divide > 1) continue;
                out[n++] = (candidate){.recompute = recomputes[r], .divide = divide, .form_key = forms[f][0], .form_value = forms[f][1],
                                       .form_key2 = forms[f][2], .form_value2 = forms[f][3], .kind = k};
            }
    }
    return n;
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

static sn_status look(sn_model *model, const sn_options *recipe, kind most, uint64_t budget, search *s) {
    candidate list[MOST_CANDIDATES];
    int n = list_candidates(recipe, list);
    bool found, valid;
    sn_probe probe = {0};
    if (sn_probe_cached((int)sn_options_int(recipe, "threads"), &probe, &found) != SN_OK || !found) probe = (sn_probe){.f32_flops = 1e11, .read_bytes = 2e10};
    for (kind k = EXACT; k <= most && !s->n_fits; k++)
        for (int i = 0; i < n; i++) {
            if (list[i].kind != k) continue;
            SN_TRY(measure(model, recipe, &probe, &list[i], &valid));
            if (valid) keep(s, &list[i], budget);
        }
    return SN_OK;
}

static const char *human(uint64_t bytes, char text[32]) {
    snprintf(text, 32, "%.1f MiB", (double)bytes / 0x1p20);
    return text;
}

static sn_status refuse(const search *s, const sn_session *session, uint64_t budget) {
    char need[32], have[32], missing[32], change[256], with[32];
    const sn_bill *b = &session->plan->bill;
    if (s->n_fits) snprintf(change, sizeof change, "the cheapest change that fits is %s (%s)", s->fits[0].text, human(s->fits[0].total, with));
    else snprintf(change, sizeof change, "no change that snug knows fits; the smallest is %s (%s)", s->any ? s->smallest.text : "unknown", human(s->smallest.total, with));
    return sn_fail(SN_ERR_BUDGET, "the plan needs %s (%llu bytes), the budget is %s: %llu bytes (%s) missing. The peak is in %s at %s, the largest value there is %s; %s",
                   human(b->total, need), (unsigned long long)b->total, human(budget, have), (unsigned long long)(b->total - budget),
                   human(b->total - budget, missing), b->peak_program, b->peak_op, b->n_largest ? b->largest[0].name : "?", change);
}

sn_status sn_fit_training(sn_model *model, const sn_options *recipe, sn_options **chosen) {
    sn_session session;
    search s = {0};
    static const char *const words[] = {"bit-exact", "the same step in smaller micro-batches", "another form: results differ within its tolerance"};
    *chosen = NULL;
    SN_TRY(sn_train_plan(model, recipe, NULL, &session));
    uint64_t budget = sn_budget_bytes(recipe, session.cluster.mesh.size[SN_MESH_DP]);
    const char *fit = sn_options_string(recipe, "fit");
    sn_status status = SN_OK;
    if (session.plan->bill.total > budget && strcmp(session.device.shape.name, "null")) {
        bool off = !strcmp(fit, "off");
        status = look(model, recipe, off || !strcmp(fit, "any") ? FORMS : REORDERED, budget, &s);
        if (status == SN_OK && (off || !s.n_fits)) status = refuse(&s, &session, budget);
        bool valid;
        if (status == SN_OK) status = apply(recipe, &s.fits[0], chosen, &valid);
        for (int i = 0; status == SN_OK && i < s.n_fits; i++)
            sn_info("%s %s: %.1f MiB, about %.2f s a step (%s)", i ? "next:" : "fit: took", s.fits[i].text, (double)s.fits[i].total / 0x1p20, s.fits[i].seconds,
                    words[s.fits[i].kind]);
    }
    sn_session_close(&session);
    return status;
}
