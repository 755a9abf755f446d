/* dflock run --report: what the tally (wire/tally.h) of a job says, for people and as JSON. */
#ifndef DFLOCK_CLI_REPORT_H
#define DFLOCK_CLI_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "config/config.h"
#include "wire/tally.h"

struct report {
	int fd; /* of the memfd */
	struct tally *tally;
	struct tally_line *lines; /* sorted by file; one for each program, file and space */
	size_t count;
};

/* Makes the tally and names it in DFLOCK_REPORT, for the job. 0; end it with report_end(). Or -errno. */
int report_start(struct report *report);
/* Reads what the job counted. 0 or -errno. */
int report_read(struct report *report);
void report_end(struct report *report);

/*
 * Has the job got a lock on a protected file; on this one, if `file` is not NULL? A call that was told that the lock is taken counts, too:
 * it did not go past dflock, and on all hosts but one this is how a job of cron's ends. config as below.
 */
bool report_has_taken(const struct report *report, const struct config *config, const char *file);

/* `config` (NULL: there is none) gives the lock names. False: it could not be written; errno says why. */
bool report_print(const struct report *report, const struct config *config, const char *job, FILE *f);
bool report_print_json(const struct report *report, const struct config *config, const char *job, FILE *f);

#endif
