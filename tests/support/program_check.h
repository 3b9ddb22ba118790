/* Independent readers of a program: what a planner must keep, recomputed from the instructions alone. */
#ifndef SN_TESTS_PROGRAM_CHECK_H
#define SN_TESTS_PROGRAM_CHECK_H

#include "run/run.h"

/* Live bytes of the device tier recomputed from the instructions: the arena is at most 1.03 times their maximum and has no
 * byte that no value covers. */
void check_program_is_tight(const sn_plan *plan, int index);

/* Every two instructions on overlapping bytes, one of them writing, are ordered by their queue or by a chain of events. */
void check_program_is_ordered(const sn_program *p);

/* Runs a program on this thread: any queue whose next instruction has seen its events may go next. */
void run_in_random_order(sn_run *run, const sn_plan *plan, int index, int slot, uint32_t seed);

#endif
