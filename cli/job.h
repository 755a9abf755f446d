/* Runs a job as a child, for commands that have something to do after its end. */
#ifndef DFLOCK_CLI_JOB_H
#define DFLOCK_CLI_JOB_H

/*
 * Runs argv, found in PATH, and waits for its end. Signals that other processes send to this one are passed on to the
 * job; those of a terminal reach it anyway. 0 with *status as waitpid(2) gives it, or -errno: it could not be executed.
 */
int job_run(char *const argv[], int *status);

/* The exit status of a job that exited. If a signal ended it, that signal ends this process too, without a core. */
int job_exit(int status);

#endif
