/*
 * A line on the standard error of processes that are about to be killed: a job's own log, or cron's mail, then says why
 * the job ended. The keeper's parent calls it; in the keeper, a
 * forked child without the keeper's descriptors.
 */
#ifndef DFLOCK_KEEPER_LASTWORDS_H
#define DFLOCK_KEEPER_LASTWORDS_H

#include <stddef.h>
#include <sys/types.h>

#define LASTWORDS_MS  100
#define LASTWORDS_MAX 256 /* different standard errors; further ones get no line */

struct lastword {
	pid_t pid;
	const char *line; /* no newline in it */
};

/*
 * Writes "dflock: LINE" to the standard error of each of the processes, once where several share it and have the same
 * line. The processes should be stopped. Takes at most `ms`, whatever their standard errors are. A line that cannot be
 * written in that time, or may not be, is left out.
 */
void lastwords(const struct lastword *words, size_t count, int ms);

#endif
