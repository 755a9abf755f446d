/*
 * Room for leases: a keeper has a bounded number of descriptors and of places in the fence, and a name in the store has
 * a bounded number of ranges. What nobody uses makes room for what somebody asks for, the lease that was unused for
 * longest first; and no user of a system keeper can take all the room. Loop only.
 *
 * Each lease is counted for the user whose call asked for it. A lease that an earlier keeper left is nobody's.
 */
#ifndef DFLOCK_KEEPER_ROOM_H
#define DFLOCK_KEEPER_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

struct keeper;
struct lease;
struct lock;
struct room_user;
struct waiter;

struct room {
	unsigned limit;          /* how many leases there may be */
	unsigned count;          /* how many there are */
	struct room_user *users; /* how many each user has */
	struct lease *unused;    /* those that may be unused, the one that was used last at the end */
	struct waiter *roomless; /* callers that wait for room */
	unsigned fruitless;      /* leases that were looked at since one was given back */
	uv_timer_t timer;        /* the next look */
	uv_timer_t serve;        /* room was made: callers that wait for it are looked at */
};

/* descriptors: how many the process may have. */
void room_start(struct keeper *k, unsigned descriptors);
void room_stop(struct keeper *k);

/* Is there room for one more lease of this user? 0; -EDQUOT: the user has a share that others must have, too; -ENFILE:
 * there is none for anybody. Callers wait with room_wait(), or are refused. */
int room_check(const struct keeper *k, uid_t uid);

/* A lease began, for lease->uid; it was used; it is about to be freed. */
void room_add(struct lease *lease);
void room_used(struct lease *lease);
void room_remove(struct lease *lease);

/*
 * The caller waits until there is room (waiter->roomless), and unused leases are given back; then it is told
 * WAITER_SERVE. Its own timer bounds how long. room_leave(): it does not wait any more; may be called for any waiter.
 */
void room_wait(struct waiter *waiter);
void room_leave(struct waiter *waiter);
/* Why the caller has no room, in one line. */
void room_why(const struct waiter *waiter, char *why, size_t size);

/* The store has no room for more ranges of this name: gives some back that nobody here uses. */
void room_make_in(struct lock *lock);

#endif
