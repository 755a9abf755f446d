/*
 * DFLOCK_REQUIRE: the program starts only if its locks will be protected. For jobs that are preloaded without `dflock
 * run --require`, whose conditions these are, but for those of the program itself: this code runs in it.
 */
#ifndef DFLOCK_SHIM_REQUIRE_H
#define DFLOCK_SHIM_REQUIRE_H

/* As `dflock run --require`. */
#define REQUIRE_EXIT 123

/*
 * Last in the constructor. Without the variable, or if it is "0" or empty: nothing. Else takes it out of the
 * environment, so that of a job only the first process asks: an outage must not end a job's commands half-way. Then
 * looks whether the configuration is in force, a keeper runs (or starts one), the store grants locks, and the file that
 * the variable names ("1": none) is protected. If not, ends the process with a line and REQUIRE_EXIT. Waits for a
 * second until a keeper reaches the store, ASK_JOB_PATIENCE_NS for its answers, and START_PATIENCE_MS for a new one. No signal is touched, and no descriptor stays open.
 */
void require_check(void);

#endif
