/*
 * Tells processes that are about to be killed why, on their standard errors: which lock, what became of its lease, and
 * what to do. Parent only.
 */
#ifndef DFLOCK_KEEPER_FAREWELL_H
#define DFLOCK_KEEPER_FAREWELL_H

#include <stdbool.h>

#include "keeper/guard/table.h"
#include "keeper/kernel/family.h"

enum farewell_end {
	FAREWELL_LOST, /* the lease is lost: killed */
	FAREWELL_ASK,  /* on_lost = "kill": SIGTERM */
	FAREWELL_KILL, /* ditto: SIGKILL */
};

/*
 * Writes a line to each process of the family of which relying.h has noted a lock, with the path of the file as that process opened
 * it, and the same line to the processes that it started.
 *
 * Reads one link of each process, then writes for at most LASTWORDS_MS; less if leases run out soon. An error costs a line, and is not
 * reported. False: there was not enough time, and unless this was the `last` attempt no process has got a line
 * (lastwords.h).
 */
bool farewell(struct table *table, const struct family *family, enum farewell_end how, bool last);
/* For how many ms lines may be written: less than LASTWORDS_MS while leases run out. */
int farewell_ms(struct table *table);

#endif
