/* `dflock run` in two halves: what starts a job and needs no library but libc (run.c), and what stays until its end (run_stay.c). */
#ifndef DFLOCK_CLI_RUN_H
#define DFLOCK_CLI_RUN_H

#include <stdbool.h>
#include <stddef.h>

struct run_options {
	char **job;
	char **words; /* what is executed: the job, or the net with the job */
	bool require;
	bool taken;         /* the job must take a protected lock */
	const char **files; /* to be protected, file_count of them */
	size_t file_count;
	bool report, json, verbose;
	const char *report_file; /* NULL: standard error */
	bool net;                /* dflock-net catches the lock calls that the preload does not reach */
	bool init;               /* stays until the job ends, and ends what it left: container.h */
	int patience_s;
};

/*
 * dflock run. more: what does it if more is wanted than that the preload reaches the job; it gets the command line, too. Returns the
 * exit status; else it is the job.
 */
typedef int run_more_fn(struct run_options *options, int argc, char **argv);
int run_job(int argc, char **argv, run_more_fn *more);

/* Is the set-up fit for the job? 0, or the exit status, when a line was printed. */
typedef int run_fit_fn(const struct run_options *options);
/* Sets the environment of the job, and examines it; fit is asked in between (NULL: not). 0, or the exit status. */
int run_prepare(struct run_options *options, run_fit_fn *fit);
/* The line about words[0], which cannot be executed, and the exit status. */
int run_cannot(const struct run_options *options, int err);

#endif
