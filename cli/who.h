/* Which processes hold a lock, on all hosts: the keeper's answer to WIRE_WHO. */
#ifndef DFLOCK_CLI_WHO_H
#define DFLOCK_CLI_WHO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/ask.h"
#include "cli/cli.h"
#include "wire/place.h"

/*
 * Asks about the file or lock name `lock`, as an operator writes it: a file, if a rule protects it; else a lock name; else
 * the NAME of a `dflock lock`. The answer (keeper/callers/whoreport.h has its form), which the caller ends with
 * json_decref(). NULL with one line in why, also for a file that no rule protects. Takes two seconds for each of these if
 * a host does not answer.
 */
json_t *who_ask(struct ask *ask, const struct place *place, const char *lock, char why[CLI_LINE_BYTES]);

/* Does a process hold it, or a host of which this is not known? */
bool who_is_held(const json_t *report);

/* Prints the answer for people. Every field may be missing, of another type, or hostile text. */
void who_print(const json_t *report, FILE *f);

#endif
