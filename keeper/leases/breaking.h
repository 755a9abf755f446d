/*
 * Takes leases away from programs of this host, for an operator (`dflock break`). Loop only.
 *
 * Three things happen in this order (rules/lease.h, BREAKING and ENDING): the lease is closed to all callers, and the
 * last pin ends; a worker finds the processes that hold the lock, and the lease stays if one of them may not or cannot
 * be ended; the parent stops and kills the holders and all that they started. Only then is the lease released, and the
 * store gives it to those that wait, in their order.
 *
 * What is broken is a fence number, never a name: a lease that came after the operator had looked has another one.
 */
#ifndef DFLOCK_KEEPER_BREAKING_H
#define DFLOCK_KEEPER_BREAKING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "keeper/rules/lease.h"
#include "store/store.h"

struct keeper;
struct member;

#define BREAKING_EACH    4     /* of them for each of these users */
#define BREAKING_MAX     64    /* at once, half of them for users other than root and the keeper's; more are refused */
#define BREAKING_WAIT_MS 15000 /* after that the answer is STORE_BROKEN_LATE: for a machine that has too much to do */

/* Who is told how it ended (queue_news.broken, or a store message): a session of this host, or a host. */
struct breaking_asker {
	uid_t uid;                   /* the user; only the keeper's and root may end other users' processes */
	char host[STORE_HOST_BYTES]; /* "": a session */
	uint64_t question;           /* the session's or host's number for it */
};

struct breaking;
/* Part of struct keeper. */
struct breakings {
	struct breaking *all;
	unsigned count;
	bool open;
	uint64_t last; /* question of a session of this host */
	uv_timer_t timer;
};

void breaking_open(struct keeper *k);
void breaking_close(struct keeper *k);

/*
 * Begins to take away this host's lease of this name with this fence number. `limit`: the largest fence number that the operator has
 * seen; if a younger lease of this host is open over a part of it, nothing is broken. The asker is told the end from a later turn
 * of the loop. False: BREAKING_MAX are under way, or no memory.
 */
bool breaking_start(struct member *m, const char *name, uint64_t fence, uint64_t limit,
		    const struct breaking_asker *asker);

/* A store message: another host wants it. */
void breaking_asked(struct member *m, const struct store_message *message);

/* Has this host a lease of this name with this fence number, or one that was taken away and is not yet released? */
bool breaking_knows(const struct member *m, const char *name, uint64_t fence);

#endif
