/* What the files of `dflock break` share: break.c has the command and hosts, break_lock.c locks, break_ask.c what both ask. */
#ifndef DFLOCK_CLI_BREAK_H
#define DFLOCK_CLI_BREAK_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/ask.h"

#define BREAK_PATIENCE_S 30 /* for one lease: more than the keeper has for it */

struct break_options {
	const char *lock, *host; /* one of them */
	bool yes, force;
};

/* Asks the operator on the terminal. False: not agreed, which has been said. */
bool break_agreed(const struct break_options *options, const char *question);
/* ask_about(), and says so if the keeper is too old for the question. */
int break_ask(struct ask *ask, enum wire_op op, const char *text, const struct place *place, char why[CLI_LINE_BYTES]);

/* Each does it, with all that is said about it, and returns the exit status. status: has "cluster". */
int break_lock(struct ask *ask, const struct break_options *options, const struct place *place, const json_t *status);
int break_host(struct ask *ask, const struct break_options *options, const struct place *place, const json_t *status);

#endif
