/* What ranks do with one another, followed through all their programs: whether one would wait for another for ever, and how long each
 * waits. Internal to plan/. */
#ifndef SN_PLAN_COURSES_H
#define SN_PLAN_COURSES_H

#include "plan/forecast.h"

/* A rank's calls of the comm queue, in order, and the time of all its instructions; kept when its plan is gone. */
typedef struct sn_course {
    int rank;
    struct sn_call_made *calls;
    size_t n_calls, at;    /* at: of the call that it is about to make */
    struct sn_pace *paces; /* NULL: time is not followed */
    size_t n_paces, at_pace;
    double *spans; /* by program: seconds of a run, with what the rank waits for others */
    sn_walk walk;
} sn_course;

/* Fails for want of memory only; what there is, is the caller's (sn_course_free). rates NULL: calls alone. */
sn_status sn_course_of(const sn_plan *plan, const struct sn_rates *rates, sn_course *out);
void sn_course_free(sn_course *c); /* also a zeroed one */

/* Lets all go on as far as they can: each makes a call when all that have a part in it are about to. SN_ERR_PLAN where some then still
 * wait: names two ranks, the program, both instructions and what differs. */
sn_status sn_courses_follow(const sn_mesh *mesh, sn_course *ranks, size_t n);

/* After that, of courses with rates: seconds of a run of the program on the rank that takes longest. */
double sn_courses_span(const sn_course *ranks, size_t n, int program);

#endif
