/*
 * See room.h.
 *
 * The list knows only when a caller was last granted a lease: it does not see locks that were taken through the page.
 * So the place in the list never decides alone: a lease is given back like one that lingered, which asks the kernel
 * first, and a lease that turns out to be in use goes to the end of the list.
 *
 * Bounded: LOOKS leases are looked at per PAUSE_MS, which costs two system calls each; and when a look at all leases
 * has found none that could go, the next look is FRUITLESS_MS later.
 */
#include "keeper/leases/room.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"

#define OWN_DESCRIPTORS     128 /* the loop's, the store's, one for each thread that looks at a file */
#define LEAST_FOR_QUESTIONS 64
#define MOST_FOR_QUESTIONS  2048
#define LEAST_LEASES        64
#define LOOKS               64
#define PAUSE_MS            10
#define FRUITLESS_MS        1000

struct room_user {
	uid_t uid;
	unsigned count;
	UT_hash_handle hh;
};

/* From this number of leases on, unused ones are given back before a caller has to wait for room. */
static bool is_crowded(const struct room *room)
{
	return room->count > room->limit - room->limit / 8;
}

static bool has_room(const struct room *room)
{
	return room->count < room->limit;
}

/* Root has more programs than other users, but must leave them some room, too. */
static unsigned room_share(const struct keeper *k, uid_t uid)
{
	if (!k->system || uid == LEASE_OF_NOBODY)
		return k->room.limit;
	return uid == 0 ? k->room.limit - k->room.limit / 4 : k->room.limit / 4;
}

static struct room_user *find_user(const struct keeper *k, uid_t uid)
{
	struct room_user *user;

	HASH_FIND(hh, k->room.users, &uid, sizeof(uid), user);
	return user;
}

/* Many users together (one with subordinate user ids, too) must leave root some room. It is less than what is_crowded() keeps free,
 * so unused leases are given back before a user has to wait for that. */
static unsigned room_of_others(const struct keeper *k)
{
	const struct room_user *root = find_user(k, 0);

	return k->room.count - (root ? root->count : 0);
}

int room_check(const struct keeper *k, uid_t uid)
{
	const struct room_user *user = find_user(k, uid);

	if (!has_room(&k->room) || (uid != 0 && k->system && room_of_others(k) >= k->room.limit - k->room.limit / 16))
		return -ENFILE;
	return user && user->count >= room_share(k, uid) ? -EDQUOT : 0;
}

/* --- giving back unused leases --- */

/* Only leases of one user, if that user's share is used up. */
static bool may_help(const struct keeper *k, const struct lease *lease)
{
	const struct waiter *w;

	if (is_crowded(&k->room))
		return true;
	DL_FOREACH2 (k->room.roomless, w, room_next)
		if (w->uid == lease->uid)
			return true;
	return false;
}

/* True: the lease goes back, if the kernel says that it is unused. */
static bool give_back(struct lease *lease)
{
	if (lease->state != LEASE_OPEN || lease->recalled.level > RECALL_LINGER || lease_is_part(lease) ||
	    lease->split.running || waiters_rest_pinned(lease->lock, &lease->range) || lease_is_in_use(lease))
		return false;
	lease->recalled.level = RECALL_LINGER;
	queue_raise(lease, LEASE_CUE_LINGERED);
	return true;
}

static void room_look(struct keeper *k)
{
	struct room *room = &k->room;
	struct lease *lease;

	/* None twice. */
	for (unsigned looks = 0; looks < LOOKS && looks < room->count && room->fruitless <= room->count; looks++) {
		lease = room->unused;
		room_used(lease);
		if (may_help(k, lease) && give_back(lease))
			room->fruitless = 0;
		else
			room->fruitless++;
	}
}

static void on_room_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct room *room = &k->room;
	bool all;

	if (!room->roomless && !is_crowded(room))
		return;
	room_look(k);
	all = room->fruitless > room->count;
	if (all)
		room->fruitless = 0;
	uv_timer_start(timer, on_room_timer, all ? FRUITLESS_MS : PAUSE_MS, 0);
	queue_settle(k);
}

static void room_begin(struct keeper *k)
{
	if (!uv_is_active((uv_handle_t *)&k->room.timer))
		uv_timer_start(&k->room.timer, on_room_timer, 0, 0);
}

void room_make_in(struct lock *lock)
{
	struct lease *lease;
	unsigned begun = 0;

	DL_FOREACH (lock->leases, lease)
		if (begun < LOOKS && give_back(lease))
			begun++;
}

/* --- callers --- */

static void on_serve(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct waiter *w;

	DL_FOREACH2 (k->room.roomless, w, room_next)
		if (room_check(k, w->uid) == 0)
			queue_tell(w, WAITER_SERVE);
	queue_settle(k);
}

void room_wait(struct waiter *waiter)
{
	struct keeper *k = waiter->lock->file->keeper;

	if (!waiter->roomless)
		DL_APPEND2(k->room.roomless, waiter, room_prev, room_next);
	waiter->roomless = true;
	room_begin(k);
}

void room_leave(struct waiter *waiter)
{
	if (waiter->roomless)
		DL_DELETE2(waiter->lock->file->keeper->room.roomless, waiter, room_prev, room_next);
	waiter->roomless = false;
}

void room_why(const struct waiter *waiter, char *why, size_t size)
{
	const struct keeper *k = waiter->lock->file->keeper;

	if (room_check(k, waiter->uid) == -EDQUOT)
		snprintf(why, size,
			 "this user has %u files or ranges in use, which is %s of what the keeper has room for: unlock "
			 "some, or raise the keeper's RLIMIT_NOFILE",
			 room_share(k, waiter->uid), waiter->uid == 0 ? "three quarters" : "a quarter");
	else if (has_room(&k->room))
		snprintf(why, size,
			 "the keeper has room for %u files or ranges, and users other than root have all in use that "
			 "they may have: unlock some, or raise its RLIMIT_NOFILE",
			 k->room.limit);
	else
		snprintf(why, size,
			 "the keeper has room for %u files or ranges, and all are in use: unlock some, or raise its "
			 "RLIMIT_NOFILE",
			 k->room.limit);
}

/* --- the leases --- */

void room_add(struct lease *lease)
{
	struct keeper *k = lease_keeper(lease);
	struct room_user *user = find_user(k, lease->uid);

	k->room.count++;
	DL_APPEND2(k->room.unused, lease, unused_prev, unused_next);
	if (!user && (user = calloc(1, sizeof(*user)))) { /* without memory its leases are nobody's */
		user->uid = lease->uid;
		HASH_ADD(hh, k->room.users, uid, sizeof(user->uid), user);
	}
	if (user)
		user->count++;
	else
		lease->uid = LEASE_OF_NOBODY;
	if (is_crowded(&k->room))
		room_begin(k);
}

void room_used(struct lease *lease)
{
	struct room *room = &lease_keeper(lease)->room;

	DL_DELETE2(room->unused, lease, unused_prev, unused_next);
	DL_APPEND2(room->unused, lease, unused_prev, unused_next);
}

void room_remove(struct lease *lease)
{
	struct keeper *k = lease_keeper(lease);
	struct room_user *user = find_user(k, lease->uid);

	k->room.count--;
	DL_DELETE2(k->room.unused, lease, unused_prev, unused_next);
	if (user && --user->count == 0) {
		HASH_DEL(k->room.users, user);
		free(user);
	}
	if (k->room.roomless && !uv_is_active((uv_handle_t *)&k->room.serve))
		uv_timer_start(&k->room.serve, on_serve, 0, 0);
}

static unsigned limited(unsigned n, unsigned least, unsigned most)
{
	return n < least ? least : n > most ? most : n;
}

/* A file has one descriptor in the keeper, and mostly one lease; a question has up to two descriptors while it
 * lasts. */
void room_start(struct keeper *k, unsigned descriptors)
{
	unsigned reserved = OWN_DESCRIPTORS + limited(descriptors / 8, LEAST_FOR_QUESTIONS, MOST_FOR_QUESTIONS);

	k->room.limit = limited(descriptors > reserved ? descriptors - reserved : 0, LEAST_LEASES, TABLE_SLOTS);
	uv_timer_init(k->loop, &k->room.timer);
	uv_timer_init(k->loop, &k->room.serve);
	k->room.timer.data = k->room.serve.data = k;
}

void room_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->room.timer, NULL);
	uv_close((uv_handle_t *)&k->room.serve, NULL);
}
