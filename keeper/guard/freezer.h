/*
 * What the parent does when leases run out, or are lost: it looks at the table of leases, and does what is due. The
 * parent's one thread does all of it, since ptrace belongs to a thread. Nothing here waits for a single process, so no
 * process can keep the parent from the others.
 *
 *   freezer.h   what is due, and when to look again
 *   freezer.c   what is due; processes are stopped, told and killed (leases that are lost or taken away)
 *   orders.h    locks that are held too long: processes are asked to end, and killed later
 *   freeze.h    leases run out: freezing, by rounds of search and stop, and their limits; or asking to end (on_lost = "kill")
 *   relying.h   which processes rely on locks
 *   stopped.h   stopping and letting go; threads.h, signalled.h
 *   slots.h     what the table of leases says
 */
#ifndef DFLOCK_KEEPER_FREEZER_H
#define DFLOCK_KEEPER_FREEZER_H

struct freeze;

/*
 * Looks at the table and does what is due: freezes when freeze_at has come, kills holders of lost leases, lets go when
 * everything is sure again. Returns how long it may take until the next look, in ms (at most max_ms).
 */
int freezer_look(struct freeze *freeze, int max_ms);

/* Kills the processes that rely on locks under TABLE_LOST slots, and frees the slots. Takes up to 100 ms for the
 * stopping, and LASTWORDS_MS for lines on their standard errors. */
void freezer_end_lost(struct freeze *freeze);

#endif
