/*
 * A line on the standard error of processes that are about to be killed: a job's own log, or cron's mail, then says why
 * the job ended. The keeper's parent calls it.
 */
#ifndef DFLOCK_KEEPER_LASTWORDS_H
#define DFLOCK_KEEPER_LASTWORDS_H

#include <stddef.h>
#include <sys/types.h>

/*
 * Writes "dflock: LINE" (no newline in it) to the standard error of each of the processes, once where several share it.
 * The processes should be stopped. Takes LASTWORDS_MS at the most, whatever their standard errors are; what could not be
 * written in that time, or may not be, is left out.
 */
#define LASTWORDS_MS 100
void lastwords(const pid_t *pids, size_t count, const char *line);

#endif
