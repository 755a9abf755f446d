/*
 * Freezes the processes that rely on locks, until the leases are sure again: repeats the search (relying.h) and the
 * stopping (stopped.h) until every process that it finds is stopped. Where on_lost is "kill", asks them to end instead.
 *
 * Time. Each freeze has a margin, from freeze_at to the deadline: a tenth of it for PTRACE_SEIZE (then SIGSTOP), and
 * another tenth for processes that are inert (stopped.h). A process that is neither stopped nor inert after half of the
 * remaining time is watched; if it runs on for another quarter, it is killed.
 *
 * Parent only.
 */
#ifndef DFLOCK_KEEPER_FREEZE_H
#define DFLOCK_KEEPER_FREEZE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/guard/deeds.h"
#include "keeper/guard/table.h"
#include "keeper/guard/relying.h"
#include "keeper/guard/slots.h"
#include "keeper/guard/stopped.h"
#include "keeper/kernel/family.h"

struct freeze {
	struct table *table; /* not owned */
	struct relying relying;
	/* on_lost = "kill": */
	uint64_t asked, killed; /* SLOTS_OF() of the stores for which SIGTERM was sent, and SIGKILL, ... */
	struct family targets;  /* ... to these processes; marks: for which stores */
	struct stopped stopped;
	struct look_found found;  /* stops each process that is found */
	uint64_t said;            /* SLOTS_OF() of the stores for which the log says that processes are frozen */
	struct slots_times times; /* of the store that is due first, as freezer.c found it */
	int64_t limited_for;      /* freeze_at of the freeze for which the limits were set */
	int64_t patient_until;    /* until then the freeze waits for processes that are inert */
	/* freezer.c: */
	unsigned reprieves; /* how often the kill of holders of broken leases was put off */
	struct orders orders;
	int pause_ms; /* until the next look: grows while no new process is found */
};

/* Also takes up the processes that an earlier parent stopped by SIGSTOP. The struct must not move afterwards. */
void freeze_init(struct freeze *freeze, struct table *table);
/* NULL: no memory. Lives as long as the parent. */
struct freeze *freeze_new(struct table *table);
/* keeper: never touched, as the caller itself. */
void freeze_set_keeper(struct freeze *freeze, pid_t keeper);

/* A freeze is due (relying.due): sets its limits, if that was not done. */
void freeze_begin(struct freeze *freeze, int64_t now_ns);
/* Stops a process for leases in these stores (SLOTS_OF()), unless it was asked to end. */
void freeze_process(struct freeze *freeze, pid_t pid, uint64_t stores);
/*
 * on_lost = "kill": asks the holders to end by SIGTERM when the margin begins, and kills them when half of it is over, that is before the
 * leases end; once each. To be called when the margin begins, and at each later look.
 */
void freeze_ask(struct freeze *freeze, int64_t now_ns);
/* SLOTS_OF() of the stores for which processes were asked to end, and still have time to do so. They may have given up their locks, and the
 * host its leases, and what they had started goes on. */
uint64_t freeze_asks(const struct freeze *freeze);
/* The leases in these stores are sure again. */
void freeze_forget_asked(struct freeze *freeze, uint64_t stores);
/* Sends a signal to each process of the family that has not ended since the search, but not to the caller itself. */
void freeze_signal(const struct family *family, int number);
/* Freezes the holders of locks under leases whose on_lost is "freeze". */
void freeze_holders(struct freeze *freeze);
/*
 * Stops the processes that rely on locks under such slots (slots.h), and adds them to `family` (begin with {0}). True:
 * all are stopped; past patient_ns: stopped or inert. False: the time is over.
 */
bool freeze_until(struct freeze *freeze, struct family *family, uint64_t which, int64_t patient_ns, int64_t until_ns);
/* Lets all processes go that are not stopped for one of the stores in `still` (SLOTS_OF()). Some may not be able to go at once: call
 * it again. */
void freeze_thaw(struct freeze *freeze, uint64_t still);
/* Tells the keeper how many processes are stopped. */
void freeze_publish(struct freeze *freeze);

/*
 * --- freezer.c ---
 *
 * What the parent does when leases run out, or are lost: it looks at the table of leases, and does what is due. The
 * parent's one thread does all of it, since ptrace belongs to a thread. Nothing here waits for a single process, so no
 * process can keep the parent from the others.
 *
 *   freezer.c   what is due, and when to look again; processes are stopped, told and killed (leases that are lost or taken away)
 *   orders.c    locks that are held too long: processes are asked to end, and killed later
 *   freeze.c    leases run out: freezing, by rounds of search and stop, and their limits; or asking to end (on_lost = "kill")
 *   relying.h   which processes rely on locks
 *   stopped.h   stopping and letting go; threads.c, signalled.c
 *   slots.h     what the table of leases says
 */

/*
 * Looks at the table and does what is due: freezes when freeze_at has come, kills holders of lost leases, lets go when
 * everything is sure again. Returns how long it may take until the next look, in ms (at most max_ms).
 */
int freezer_look(struct freeze *freeze, int max_ms);

/* Before the parent ends in good order, after table_unsure(): lets all processes go if no lease is left. A process that waits in the kernel,
 * for a mount that does not answer, since it was to be stopped cannot be let go before it has left there: the kernel kills it with its tracer.
 * Says so. */
void freezer_leave(struct freeze *freeze);

/* Kills the processes that rely on locks under TABLE_LOST slots, and frees the slots. Takes up to 100 ms for the
 * stopping, and LASTWORDS_MS for lines on their standard errors. */
void freezer_end_lost(struct freeze *freeze);

#endif
