/* Training. */
#include "engine/train.h"

#include <string.h>

#include "api/api.h"
#include "engine/probe_file.h"

/* Between the engine's hooks and the caller's. */
typedef struct bridge {
    const snug_train_hooks *hooks;
    snug_bill bill;
    double flops_per_token, peak_flops; /* peak 0: unknown */
} bridge;

static double role_flops(const sn_plan *plan, sn_role role) {
    double sum = 0;
    for (int k = 0; k < plan->n_programs; k++)
        for (uint32_t i = 0; plan->programs[k].role == role && i < plan->programs[k].program.count; i++)
            sum += plan->programs[k].program.instrs[i].flops;
    return sum;
}

static void planned(void *context, const sn_session *session, const sn_options *recipe, const sn_fit *fit) {
    bridge *b = context;
    const sn_plan *plan = session->plan;
    double tokens = (double)sn_options_int(recipe, "per_device_train_batch_size") * (double)sn_options_int(recipe, "cutoff_len");
    sn_probe p;
    bool found = false;
    sn_bill_out(session, recipe, &b->bill);
    b->flops_per_token = role_flops(plan, SN_ROLE_TRAIN) / tokens;
    if (sn_probe_cached((int)sn_options_int(recipe, "threads"), &p, &found) == SN_OK && found)
        b->peak_flops = !strcmp(sn_options_string(recipe, "precision"), "bf16") && p.bf16_flops > 0 ? p.bf16_flops : p.f32_flops;
    if (b->hooks && b->hooks->planned) b->hooks->planned(b->hooks->context, &b->bill);
    if (!b->hooks || !b->hooks->fitted || !fit->search.n_fits) return;
    sn_str json = {0};
    sn_fit_json(fit, &json);
    if (!json.failed) b->hooks->fitted(b->hooks->context, json.data);
    sn_str_free(&json);
}

static void step(void *context, const sn_step_report *r) {
    const bridge *b = context;
    if (!b->hooks || !b->hooks->step) return;
    snug_step out = {.step = r->step,
                     .total = r->total,
                     .loss = r->loss,
                     .grad_norm = r->grad_norm,
                     .learning_rate = r->learning_rate,
                     .tokens_per_s = r->tokens_per_s,
                     .seconds_left = r->seconds_left,
                     .share_of_peak = b->peak_flops > 0 ? r->tokens_per_s * b->flops_per_token / b->peak_flops : 0,
                     .memory_bytes = r->memory,
                     .planned_bytes = r->budget};
    b->hooks->step(b->hooks->context, &out);
}

snug_status snug_train(snug_model *m, const snug_options *o, const snug_train_hooks *hooks, snug_train_summary *out) {
    const char *data = snug_options_text(o, "data"), *dir = snug_options_text(o, "out");
    bridge b = {.hooks = hooks};
    sn_train_hooks inner = {.planned = planned, .step = step, .context = &b, .stop = hooks ? hooks->stop : NULL};
    sn_train_summary s;
    if (!data || !*data) return (snug_status)sn_fail(SN_ERR_USAGE, "data: no file is named");
    if (!dir || !*dir) return (snug_status)sn_fail(SN_ERR_USAGE, "out: no folder is named");
    sn_status status = sn_train(&m->model, o->store, data, dir, &inner, &s);
    if (status != SN_OK) return (snug_status)status;
    *out = (snug_train_summary){.planned_bytes = s.planned_bytes,
                                .peak_bytes = s.peak_bytes,
                                .tokens_per_s = s.tokens_per_s,
                                .first_loss = s.first_loss,
                                .last_loss = s.last_loss,
                                .eval_loss = s.eval_loss,
                                .start_seconds = s.start_seconds,
                                .step_seconds = s.step_seconds,
                                .estimated_step_seconds = s.estimated_step_seconds,
                                .estimate_measured = s.estimate_measured,
                                .steps = s.steps,
                                .skipped = s.skipped,
                                .tokens = s.tokens,
                                .interrupted = s.interrupted,
                                .rank = s.rank};
    return SNUG_OK;
}
