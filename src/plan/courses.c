#include "plan/courses.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/cluster.h"
#include "plan/planner.h"

/* What a rank does on the comm queue. */
struct sn_call_made {
    const char *op, *name, *program;
    int64_t attrs[SN_ATTR_INTS]; /* of communication they are integers */
    sn_arg whole;
    int number; /* in its program */
    bool pair;
    int16_t from, to;
    uint8_t axis, n_in, n_out;
};
typedef struct sn_call_made call;

/* An instruction as far as time goes. */
struct sn_pace {
    double seconds;
    uint32_t wait[SN_MAX_WAITS];
    int program;
    uint8_t queue;
};

/* The side that every rank has alike; on the other one ranks hold as much as there is for them, or nothing. */
static const sn_arg *whole_side(const sn_instr *in) {
    if (!strcmp(in->op, "reduce_scatter")) return &in->in[0];
    const sn_arg *a = in->n_in > 1 ? &in->in[1] : &in->out[0];
    return a->arena == SN_NO_ARENA ? &in->in[0] : a;
}

static sn_status take_calls(const sn_plan *plan, sn_course *out) {
    size_t n = 0;
    for (int k = 0; k < plan->n_programs; k++)
        for (uint32_t i = 0; i < plan->programs[k].program.count; i++) n += plan->programs[k].program.instrs[i].queue == SN_QUEUE_COMM;
    if (!(out->calls = sn_alloc_zero(n + 1, sizeof *out->calls))) return sn_plan_no_memory();
    for (int k = 0; k < plan->n_programs; k++) {
        const sn_program *p = &plan->programs[k].program;
        int number = 0;
        for (uint32_t i = 0; i < p->count; i++) {
            const sn_instr *in = &p->instrs[i];
            if (in->queue != SN_QUEUE_COMM) continue;
            call *c = &out->calls[out->n_calls++];
            *c = (call){in->op,   in->name, p->name, {0},      *whole_side(in), number++,
                        in->pair, in->from, in->to,  in->axis, in->n_in,        in->n_out};
            memcpy(c->attrs, in->attrs.i, sizeof in->attrs.i);
        }
    }
    return SN_OK;
}

static sn_status take_paces(const sn_plan *plan, const sn_rates *rates, sn_course *out) {
    size_t n = 0, longest = 0;
    for (int k = 0; k < plan->n_programs; k++) {
        const size_t count = plan->programs[k].program.count;
        n += count;
        if (count > longest) longest = count;
    }
    double *seconds = sn_alloc(longest * sizeof *seconds + 1);
    out->paces = sn_alloc_zero(n + 1, sizeof *out->paces);
    out->spans = sn_alloc_zero((size_t)plan->n_programs + 1, sizeof *out->spans);
    sn_status s = seconds && out->paces && out->spans ? sn_walk_open(longest, &out->walk) : sn_plan_no_memory();
    for (int k = 0; s == SN_OK && k < plan->n_programs; k++) {
        const sn_program *p = &plan->programs[k].program;
        sn_program_time t;
        s = sn_program_estimate(p, rates, &plan->mesh, seconds, &t);
        for (uint32_t i = 0; s == SN_OK && i < p->count; i++) {
            struct sn_pace *to = &out->paces[out->n_paces++];
            *to = (struct sn_pace){.seconds = seconds[i], .program = k, .queue = p->instrs[i].queue};
            memcpy(to->wait, p->instrs[i].wait, sizeof to->wait);
        }
    }
    sn_free(seconds);
    return s;
}

sn_status sn_course_of(const sn_plan *plan, const sn_rates *rates, sn_course *out) {
    *out = (sn_course){.rank = plan->rank};
    SN_TRY(take_calls(plan, out));
    return rates ? take_paces(plan, rates, out) : SN_OK;
}

void sn_course_free(sn_course *c) {
    sn_free(c->calls);
    sn_free(c->paces);
    sn_free(c->spans);
    sn_walk_close(&c->walk);
    *c = (sn_course){0};
}

static bool same_call(const call *a, const call *b) {
    return !strcmp(a->op, b->op) && !strcmp(a->program, b->program) && a->axis == b->axis && a->n_in == b->n_in && a->n_out == b->n_out &&
           !memcmp(a->attrs, b->attrs, sizeof a->attrs) && a->whole.arena == b->whole.arena && a->whole.dtype == b->whole.dtype &&
           (a->whole.arena == SN_NO_ARENA || sn_shape_equal(&a->whole.shape, &b->whole.shape));
}

static const call *head_of(const sn_course *r) { return r->at < r->n_calls ? &r->calls[r->at] : NULL; }

/* Whether a rank has a part in what another is about to do: both stand on one line along the axis, and it is for all of that or these two.
 */
static bool takes_part(const sn_mesh *mesh, const call *c, int rank, int other) {
    int index = sn_mesh_index(mesh, other, c->axis);
    return sn_mesh_neighbour(mesh, rank, c->axis, index) == other && (!c->pair || c->from == index || c->to == index);
}

/* The first rank that should be doing what rank k is about to do, but is not; n: none. */
static size_t find_missing(const sn_mesh *mesh, const sn_course *ranks, size_t n, size_t k) {
    const call *c = head_of(&ranks[k]), *other;
    size_t j = 0;
    while (j < n && (!takes_part(mesh, c, ranks[k].rank, ranks[j].rank) || ((other = head_of(&ranks[j])) && same_call(c, other)))) j++;
    return j;
}

static const char *text_of(const call *c, char text[256]) {
    char shape[96];
    if (!c) return "none";
    size_t bytes = 0;
    sn_shape_bytes(&c->whole.shape, c->whole.dtype, &bytes);
    snprintf(text, 256, "%s of %s, %s %s (%zu bytes)", c->op, c->name ? c->name : "?", sn_dtype_name(c->whole.dtype),
             sn_shape_text(&c->whole.shape, shape), bytes);
    return text;
}

static sn_status refuse(const sn_course *a, const sn_course *b) {
    const call *x = head_of(a), *y = head_of(b);
    char one[256], other[256];
    if (a->rank > b->rank) return refuse(b, a);
    if (x && y && strcmp(x->program, y->program)) y = NULL;
    const call *first = x ? x : y;
    return sn_fail(SN_ERR_PLAN,
                   "ranks %d and %d would wait for each other for ever in program %s: its collective %d is %s on rank %d and %s on rank %d",
                   a->rank, b->rank, first->program, first->number, text_of(x, one), a->rank, text_of(y, other), b->rank);
}

/* Walks on to the next instruction of the comm queue, or to the end. */
static void walk_alone(sn_course *c) {
    for (; c->at_pace < c->n_paces; c->at_pace++) {
        const struct sn_pace *p = &c->paces[c->at_pace];
        if (c->at_pace && p->program != p[-1].program) sn_walk_restart(&c->walk);
        if (p->queue == SN_QUEUE_COMM) return;
        sn_walk_take(&c->walk, p->queue, sn_walk_ready(&c->walk, p->queue, p->wait), p->seconds);
        c->spans[p->program] = c->walk.span;
    }
}

/* All that have a part in a call begin when the last of them is there, and end together. */
static void meet(const sn_mesh *mesh, const call *c, int rank, sn_course *ranks, size_t n) {
    double start = 0, took = 0;
    for (size_t j = 0; j < n; j++) {
        if (!takes_part(mesh, c, rank, ranks[j].rank)) continue;
        ranks[j].at++;
        if (!ranks[j].paces) continue;
        walk_alone(&ranks[j]);
        const struct sn_pace *p = &ranks[j].paces[ranks[j].at_pace];
        const double ready = sn_walk_ready(&ranks[j].walk, p->queue, p->wait);
        if (ready > start) start = ready;
        if (p->seconds > took) took = p->seconds;
    }
    for (size_t j = 0; j < n; j++) {
        if (!ranks[j].paces || !takes_part(mesh, c, rank, ranks[j].rank)) continue;
        sn_walk_take(&ranks[j].walk, SN_QUEUE_COMM, start, took);
        ranks[j].spans[ranks[j].paces[ranks[j].at_pace++].program] = ranks[j].walk.span;
    }
}

sn_status sn_courses_follow(const sn_mesh *mesh, sn_course *ranks, size_t n) {
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t k = 0; k < n; k++)
            while (head_of(&ranks[k]) && find_missing(mesh, ranks, n, k) == n) {
                call c = *head_of(&ranks[k]);
                meet(mesh, &c, ranks[k].rank, ranks, n);
                moved = true;
            }
    }
    for (size_t k = 0; k < n; k++)
        if (head_of(&ranks[k])) return refuse(&ranks[k], &ranks[find_missing(mesh, ranks, n, k)]);
    for (size_t k = 0; k < n; k++) walk_alone(&ranks[k]);
    return SN_OK;
}

double sn_courses_span(const sn_course *ranks, size_t n, int program) {
    double most = 0;
    for (size_t k = 0; k < n; k++)
        if (ranks[k].spans[program] > most) most = ranks[k].spans[program];
    return most;
}

sn_status sn_plan_compare_collectives(const sn_plan *a, const sn_plan *b) {
    sn_course ranks[2] = {{0}};
    if (a->n_programs != b->n_programs)
        return sn_fail(SN_ERR_PLAN, "rank %d has %d programs, rank %d has %d", a->rank, a->n_programs, b->rank, b->n_programs);
    sn_status s = sn_course_of(a, NULL, &ranks[0]);
    if (s == SN_OK) s = sn_course_of(b, NULL, &ranks[1]);
    if (s == SN_OK) s = sn_courses_follow(&a->mesh, ranks, 2);
    sn_course_free(&ranks[0]);
    sn_course_free(&ranks[1]);
    return s;
}
