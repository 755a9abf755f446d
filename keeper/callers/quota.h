/*
 * What one user of a system keeper may have under way, so that users leave room for each other. Root, and the keeper's own user,
 * are not counted; a keeper that serves one user counts nothing. Leases have shares of their own (leases/room.h). Loop only.
 *
 * Work counts from its begin to its end, also if the connection that asked for it was closed meanwhile: else a user could begin
 * any amount of it by asking and hanging up.
 */
#ifndef DFLOCK_KEEPER_QUOTA_H
#define DFLOCK_KEEPER_QUOTA_H

#include <stdbool.h>
#include <sys/types.h>

struct keeper;
struct quota_user;

enum quota_kind {
	QUOTA_CONNECTION, /* a quarter of listener.limit for each user; seven eighths for all together */
	QUOTA_STATUS,     /* WIRE_STATUS: looks through /proc, and asks the store */
	QUOTA_WHO,        /* WIRE_WHO, WIRE_HELD: the same about one lock, on all hosts */
	QUOTA_KINDS
};

#define QUOTA_STATUS_EACH 2
#define QUOTA_STATUS_ALL  6 /* workers.h has sixteen threads */
#define QUOTA_WHO_EACH    8
#define QUOTA_WHO_ALL     48 /* of 64 searches (who.c) */

/* Part of struct sessions. */
struct quotas {
	struct quota_user *users;
	unsigned all[QUOTA_KINDS];
};

/* Is this user one whose share is limited? */
bool quota_is_limited(const struct keeper *k, uid_t uid);
/* 0: begin; quota_give() when it has ended. -EDQUOT: this user has its share already; -EBUSY: all users together have theirs;
 * -ENOMEM. */
int quota_take(struct keeper *k, uid_t uid, enum quota_kind kind);
void quota_give(struct keeper *k, uid_t uid, enum quota_kind kind);

#endif
