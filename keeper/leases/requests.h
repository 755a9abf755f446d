/* A lease is asked for, given back and shrunk: the requests to the store and what their answers mean. Loop only. */
#ifndef DFLOCK_KEEPER_REQUESTS_H
#define DFLOCK_KEEPER_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct awaited;
struct member;
struct lease;
struct lock;
struct store_blocker;
struct store_range;

/*
 * Makes a new asking lease of the lock for a call of this user, and puts it into the table; sends nothing. 0; -ENOMEM;
 * -errno of table_ask().
 */
int lease_begin(struct lock *lock, const struct store_range *range, uid_t uid, struct lease **out);

/*
 * Asks the store for an asking lease (again). Names dead the hosts that were watched in silence for a ttl, and those in
 * `silent` (dead_ms).
 */
void lease_acquire(struct lease *lease, const struct store_blocker *silent, size_t silent_count);
/* A client may have released this key ("FORMAT KEY"): asks again for the leases that wait for it. */
void lease_ask_for_key(struct member *m, const char *key);
void lease_send_release(struct lease *lease);
/* The same release, to be sent by the probe's thread (early.c). NULL: the loop must send it. */
struct store_shot *lease_prepare_release(struct lease *lease, struct awaited *awaited);
void lease_send_shrink(struct lease *lease);

/* The store has granted an asking lease, for this range (`to` is 0: the one that was asked for): LEASE_CUE_GRANTED follows. */
void lease_granted(struct lease *lease, uint64_t fence, int64_t from, int64_t to);
/* The lease's step for that: is the lease still sure? Then it has its range, and its fence number is written to the table, before any caller
 * is told. False: asks for the lease again, and for no more than its callers want. */
bool lease_take(struct lease *lease);

#endif
