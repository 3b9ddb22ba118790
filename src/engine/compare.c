#include "engine/compare.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "engine/search.h"
#include "engine/train.h"

/* What holds for all rows: of the first, the job as it is. No choice changes the machine. */
typedef struct common {
    sn_cluster cluster;
    sn_rates rates;
} common;

static sn_status take_base(const sn_session *s, const sn_options *recipe, sn_comparison *c, common *b) {
    c->limits = sn_limits_stated(s, recipe);
    for (int h = 0; h < SN_HOLD_COUNT; h++) c->stated |= c->limits.stated[h];
    b->cluster = s->cluster;
    return sn_train_rates(s, recipe, &b->rates, &c->measured);
}

static sn_status measure(sn_model *model, const sn_options *recipe, sn_compared *row, sn_comparison *c, common *base) {
    sn_session s = {0};
    sn_forecast f = {0};
    sn_status status = sn_train_plan(model, recipe, NULL, NULL, &s);
    if (status == SN_ERR_NO_MEMORY || (status != SN_OK && !row->pass)) return status;
    if (status != SN_OK) {
        snprintf(row->reason, sizeof row->reason, "%s", sn_error_text());
        return SN_OK;
    }
    const sn_bill *b = &s.plan->bill;
    if (!row->pass) status = take_base(&s, recipe, c, base);
    if (status == SN_OK) status = sn_train_forecast(&s, recipe, &base->rates, &f);
    memcpy(row->by_tier, b->by_tier, sizeof row->by_tier);
    row->total = b->total;
    row->over = !sn_limits_hold(&c->limits, b);
    row->rank = s.plan->rank;
    row->seconds = f.step_seconds;
    sn_session_close(&s);
    return status;
}

static sn_status add_choice(sn_model *model, const sn_options *recipe, const sn_pass *pass, const sn_choice *choice, sn_comparison *c,
                            common *base) {
    sn_compared *row = &c->rows[c->n++];
    sn_options *changed;
    row->pass = pass->name;
    row->kind = choice->kind;
    SN_TRY(sn_options_copy(recipe, &changed));
    sn_status s = sn_choose(changed, choice, row->change, sizeof row->change);
    if (s == SN_OK) s = measure(model, changed, row, c, base);
    sn_options_close(changed);
    return s;
}

sn_status sn_compare_training(sn_model *model, const sn_options *recipe, sn_comparison *out) {
    size_t most = 1;
    common base;
    for (size_t i = 0; i < sn_n_passes; i++) most += sn_passes[i]->n_choices;
    *out = (sn_comparison){.rows = sn_alloc_zero(most, sizeof *out->rows), .n = 1};
    if (!out->rows) return sn_fail(SN_ERR_NO_MEMORY, "cannot allocate the comparison");
    sn_status s = measure(model, recipe, &out->rows[0], out, &base);
    for (size_t i = 0; s == SN_OK && i < sn_n_passes; i++) {
        const sn_pass *p = sn_passes[i];
        for (size_t k = 0; s == SN_OK && k < p->n_choices; k++)
            if (sn_choice_applies(p, recipe, &base.cluster, &p->choices[k])) s = add_choice(model, recipe, p, &p->choices[k], out, &base);
    }
    if (s != SN_OK) sn_comparison_free(out);
    return s;
}

void sn_comparison_free(sn_comparison *c) {
    sn_free(c->rows);
    *c = (sn_comparison){0};
}

void sn_comparison_print(const sn_comparison *c, sn_str *out) {
    char device[24], host[24], disk[24], total[24];
    int width = 28;
    for (size_t i = 0; i < c->n; i++)
        if ((int)strlen(c->rows[i].change) > width) width = (int)strlen(c->rows[i].change);
    sn_str_printf(out, "%-*s %-9s %12s %12s %12s %12s %12s\n", width, "", "", "device", "host", "disk", "total", "s a step");
    for (size_t i = 0; i < c->n; i++) {
        const sn_compared *r = &c->rows[i];
        sn_str_printf(out, "%-*s %-9s ", width, r->pass ? r->change : "as it is", r->pass ? sn_choice_kind_name(r->kind) : "");
        if (*r->reason) {
            sn_str_printf(out, "refused: %s\n", r->reason);
            continue;
        }
        sn_str_printf(out, "%12s %12s %12s %12s %12.4g%s\n", sn_bytes_text(r->by_tier[SN_TIER_DEVICE], device),
                      sn_bytes_text(r->by_tier[SN_TIER_HOST], host), sn_bytes_text(r->by_tier[SN_TIER_DISK], disk),
                      sn_bytes_text(r->total, total), r->seconds, r->over ? "  over" : "");
    }
    sn_str_printf(out, "seconds are estimated%s; total: device, host and reserved of the largest rank",
                  c->measured ? "" : " from guessed rates (snug probe measures this machine, --device-shape names another)");
    if (c->stated) sn_str_add(out, "; over: more than the budget");
    for (int h = 0; h < SN_HOLD_COUNT; h++)
        if (c->limits.most[h] != UINT64_MAX)
            sn_str_printf(out, ", %s %s", sn_tier_name((sn_tier)h), sn_bytes_text(c->limits.most[h], total));
    sn_str_add(out, "\n");
}

void sn_comparison_json(const sn_comparison *c, sn_str *out) {
    sn_str_printf(out, "{\"rates_known\": %s, ", c->measured ? "true" : "false");
    if (c->limits.stated[SN_HOLD_DEVICE])
        sn_str_printf(out, "\"budget_bytes\": %llu, ", (unsigned long long)c->limits.most[SN_HOLD_DEVICE]);
    sn_str_add(out, "\"rows\": [");
    for (size_t i = 0; i < c->n; i++) {
        const sn_compared *r = &c->rows[i];
        sn_str_add(out, i ? ", {\"pass\": " : "{\"pass\": ");
        if (r->pass) sn_str_json(out, r->pass, strlen(r->pass));
        else sn_str_add(out, "null");
        sn_str_add(out, ", \"change\": ");
        sn_str_json(out, r->change, strlen(r->change));
        sn_str_printf(out, ", \"kind\": \"%s\"", sn_choice_kind_name(r->kind));
        if (*r->reason) {
            sn_str_add(out, ", \"refused\": ");
            sn_str_json(out, r->reason, strlen(r->reason));
        } else {
            for (int t = 0; t < SN_TIER_COUNT; t++)
                sn_str_printf(out, ", \"%s_bytes\": %llu", sn_tier_name((sn_tier)t), (unsigned long long)r->by_tier[t]);
            sn_str_printf(out, ", \"total_bytes\": %llu, \"rank\": %d, \"step_seconds\": %.6g, \"fits\": %s", (unsigned long long)r->total,
                          r->rank, r->seconds, r->over ? "false" : "true");
        }
        sn_str_add(out, "}");
    }
    sn_str_add(out, "]}\n");
}
