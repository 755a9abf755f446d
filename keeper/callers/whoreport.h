/*
 * One line from what is known of the processes that hold a lock on all hosts (who.h). Pure, but for the time of day.
 *
 * A name that may be old is never shown as a holder: the program that asked for a lease may have ended, and another one
 * may have got the lock from this host's kernel since. It is "last known".
 */
#ifndef DFLOCK_KEEPER_WHOREPORT_H
#define DFLOCK_KEEPER_WHOREPORT_H

#include <jansson.h>
#include <stddef.h>

#include "store/store.h"

/* "PATH: held by host web3, pid 4711 (nightly), since 03:00:01": what is in the way of a lock that `but` wants. report:
 * docs/state.md, "One lock". */
void whoreport_line(const json_t *report, const char *path, const struct store_range *wanted, pid_t but, char *out,
		    size_t size);

#endif
