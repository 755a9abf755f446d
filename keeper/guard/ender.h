/*
 * Ends processes: whatever the reason, the parent does it.
 *
 *   a lease runs out, on_lost = "kill"   ender_expire()   SIGTERM when the margin before the deadline begins, SIGKILL when half
 *                                                          of it is over, that is before the leases end
 *   a lease is lost, or taken away       freezer_end_lost()   stopped, told, SIGKILL (freezer.c)
 *   a lock is held too long              ender_late()     SIGTERM, and SIGKILL when the patience of the order is over
 *
 * Each step is a search of /proc, and at most LASTWORDS_MS for lines on standard errors.
 */
#ifndef DFLOCK_KEEPER_ENDER_H
#define DFLOCK_KEEPER_ENDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/array.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/relying.h"
#include "keeper/kernel/family.h"

/* An order that the parent works on. */
struct ender_late {
	struct order order; /* a copy; word 0: none */
	UT_array targets;   /* struct late_target */
	bool killed;        /* SIGKILL was sent, not only SIGTERM */
	int64_t left_ns;    /* until the next step, while no process is frozen */
};

/* Begin with {.relying = ...}. */
struct ender {
	struct relying *relying; /* not owned */
	bool asked;              /* SIGTERM was sent ... */
	bool killed;             /* ... and SIGKILL */
	struct family targets;   /* to these processes */
	int64_t looked_ns;       /* ender_late() was called last */
	struct ender_late late[ORDERS];
};

/* To be called when the margin begins, and at each later look: asks the holders to end, or kills them, once each. */
void ender_expire(struct ender *ender, int64_t now_ns);
/* Were holders asked to end, and is there still time for them to do so? */
bool ender_is_under_way(const struct ender *ender);
/* Was this process, or one of its ancestors, asked to end by ender_expire()? It must not be stopped, since it could not obey.
 * False when all have got SIGKILL. */
bool ender_has_asked(const struct ender *ender, pid_t pid);
/* The leases are sure again. */
void ender_forget(struct ender *ender);

/* Does what is due of the keeper's orders (deeds.h). paused: leases are not sure, or processes are frozen; then nothing is, and
 * no time passes. True: to be called again soon. */
bool ender_late(struct ender *ender, int64_t now_ns, bool paused);

/* Sends a signal to each process of the family, but not to the caller itself. */
void ender_signal(const struct family *family, int number);

#endif
