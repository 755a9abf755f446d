/*
 * Room for leases: a keeper has a bounded number of descriptors and of slots in the table of leases, and a name in the
 * store has a bounded number of ranges. Unused leases make room for new ones, the lease that was unused for longest
 * first; and no user of a system keeper can take all the room. Loop only.
 *
 * Each lease counts for the user whose call asked for it, also one that an earlier keeper left.
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
	struct lease *unused;    /* leases that may be unused; the one used last is at the end */
	struct waiter *roomless; /* callers that wait for room */
	unsigned fruitless;      /* leases that were looked at since one was given back */
	uv_timer_t timer;        /* the next look */
	uv_timer_t serve;        /* room was made: callers that wait for it are looked at */
};

/* descriptors: how many the process may have. */
void room_start(struct keeper *k, unsigned descriptors);
void room_stop(struct keeper *k);

/* Is there room for one more lease of this user? 0; -EDQUOT: the user's share is used up; -ENFILE: there is no room for
 * any user. Callers wait with room_wait(), or are refused. */
int room_check(const struct keeper *k, uid_t uid);

/* A lease began, for lease->uid; it was used; it will be freed. */
void room_add(struct lease *lease);
void room_used(struct lease *lease);
void room_remove(struct lease *lease);

/*
 * The caller waits until there is room (waiter->roomless), and unused leases are given back; then it is told
 * WAITER_SERVE. Its own timer bounds how long. room_leave(): the caller does not wait for room any more; may be called
 * for any waiter.
 */
void room_wait(struct waiter *waiter);
void room_leave(struct waiter *waiter);
/* Why the caller has no room, in one line. */
void room_why(const struct waiter *waiter, char *why, size_t size);

/* The store has no room for more ranges of this name: gives back some that no local process uses. */
void room_make_in(struct lock *lock);

#endif
