/*
 * A line on the standard error of processes that are about to be killed: a job's own log, or cron's mail, then says why
 * the job ended. Parent only.
 */
#ifndef DFLOCK_KEEPER_LASTWORDS_H
#define DFLOCK_KEEPER_LASTWORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define LASTWORDS_MS  100
#define LASTWORDS_MAX 256 /* different standard errors; further ones get no line */

struct lastword {
	pid_t pid;
	const char *line; /* no newline in it; NULL: it gets none */
};

/*
 * Writes "dflock: LINE" to the standard error of each of the processes, once where several share it and have the same
 * line. The processes should be stopped. Takes at most `ms`, whatever their standard errors are.
 *
 * True: every line that may be written is written, or will be in a moment, whatever becomes of the processes. False: the
 * machine is too busy, or a standard error does not answer; then no line is written, unless this is the `last` attempt:
 * then those are whose standard errors are found in time.
 */
bool lastwords(const struct lastword *words, size_t count, int ms, bool last);

#endif
