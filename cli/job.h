/* Runs a job as a child, for commands that have something to do after its end. */
#ifndef DFLOCK_CLI_JOB_H
#define DFLOCK_CLI_JOB_H

#include <stdbool.h>

/*
 * Runs argv, found in PATH, and waits for its end. Signals that other processes send to this one are passed on to the
 * job; those of a terminal reach it anyway. Other children of this process, which may have been there before, are reaped.
 * 0 with *status as waitpid(2) gives it, or -errno: it could not be executed. stay_blocked: afterwards the signals stay
 * blocked, so that none ends this process before it has done what is left to do; it is to end then.
 */
int job_run(char *const argv[], bool stay_blocked, int *status);

/* The exit status of a job that exited. If a signal ended it, that signal ends this process too, without a core; the
 * first process of a pid namespace gets 128 and the signal's number, as in a shell. */
int job_exit(int status);

#endif
