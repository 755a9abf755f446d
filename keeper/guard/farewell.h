/*
 * Why processes are about to be killed, said on the standard error of each: which lock, what became of its lease, and
 * what to do. The keeper's parent calls it.
 */
#ifndef DFLOCK_KEEPER_FAREWELL_H
#define DFLOCK_KEEPER_FAREWELL_H

#include "keeper/kernel/claims.h"
#include "keeper/kernel/family.h"
#include "keeper/guard/fence.h"

enum farewell_end {
	FAREWELL_LOST, /* the lease is lost: killed */
	FAREWELL_ASK,  /* on_lost = "kill": SIGTERM */
	FAREWELL_KILL, /* ditto: SIGKILL */
};

/*
 * claims: built, what they hold (tag: the slot of the fence). family: who gets a line: those that hold one of the
 * claims, with the file's path as they opened it, and what they started, with the same line. keeper: left out of the
 * search. Takes a search of /proc, and `ms` at the most for the writing. Errors are nobody's concern: then a line is
 * missing.
 */
void farewell(const struct fence *fence, struct claims *claims, const struct family *family, enum farewell_end how,
	      pid_t keeper, int ms);

#endif
