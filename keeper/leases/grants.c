/* See grants.h. */
#include "keeper/leases/grants.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/table_file.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"

/* --- the file --- */

#define GRANTS_MAGIC   UINT64_C(0x73746e6172676664)
#define GRANTS_VERSION 1

static uint64_t grants_sum(const struct grants_record *r)
{
	uint64_t sum = table_sum(r, offsetof(struct grants_record, sum));

	return sum ? sum : 1;
}

static int grants_open(struct keeper *k, bool make)
{
	struct grants *h = &k->grants;
	void *map;
	int ret = h->file ? 0
			  : table_file_map(k->dir_fd, GRANTS_NAME, GRANTS_MAGIC, GRANTS_VERSION, sizeof(*h->file), make,
					   &map);

	if (!h->file && ret == 0)
		h->file = map;
	return ret;
}

void grants_close(struct keeper *k)
{
	if (k->grants.file)
		munmap(k->grants.file, sizeof(*k->grants.file));
	k->grants.file = NULL;
}

/* NULL: there is no room, or the file is closed. */
static struct grants_record *grants_find_free(struct grants *h)
{
	for (size_t i = 0; h->file && i < GRANTS_RECORDS; i++) {
		size_t at = h->hint++ % GRANTS_RECORDS;

		if (!h->file->records[at].sum)
			return &h->file->records[at];
	}
	return NULL;
}

static void grants_set_sum(struct grants_record *r, uint64_t sum)
{
	if (r)
		__atomic_store_n(&r->sum, sum, __ATOMIC_RELEASE);
}

/* --- the running clock --- */

int64_t grants_now_ns(const struct keeper *k)
{
	const struct grants *h = &k->grants;
	int64_t passed = clock_now_ns() - h->last_ns;

	if (h->paused || passed < 0)
		return h->ran_ns;
	return h->ran_ns + (passed < GRANTS_TICK_MAX_MS * NS_PER_MS ? passed : GRANTS_TICK_MAX_MS * NS_PER_MS);
}

void grants_tick(struct keeper *k, bool paused)
{
	k->grants.ran_ns = grants_now_ns(k);
	k->grants.last_ns = clock_now_ns();
	k->grants.paused = paused;
	if (!k->grants.file)
		return;
	k->grants.file->ran_ns = k->grants.ran_ns;
	k->grants.file->ticked_ns = k->grants.last_ns;
}

int64_t grant_age_ms(const struct keeper *k, const struct grant *grant)
{
	return (grants_now_ns(k) - grant->at_ns) / NS_PER_MS;
}

/* --- grants --- */

struct grant *grants_find(struct lock *lock, pid_t locker)
{
	struct grant *grant;
	pid_t pid = locker > 0 ? locker : 0;

	HASH_FIND(hh, lock->grants, &pid, sizeof(pid), grant);
	return grant;
}

static struct grant *grants_add(struct lock *lock, pid_t pid, uid_t uid)
{
	struct grant *grant = HASH_COUNT(lock->grants) < GRANTS_MAX ? calloc(1, sizeof(*grant)) : NULL;

	if (!grant)
		return NULL;
	if (!lock->grants)
		DL_APPEND2(lock->file->keeper->grants.locks, lock, held_prev, held_next);
	grant->pid = pid;
	grant->uid = uid;
	HASH_ADD(hh, lock->grants, pid, sizeof(grant->pid), grant);
	return grant;
}

void grant_begin(struct grant *grant)
{
	grant->state = GRANT_QUIET;
	grant->said = false;
	grant->tries = 0;
}

/* For the next keeper. A record counts as a whole or not at all: its sum is written last. */
static void grants_keep(struct lock *lock, struct grant *grant)
{
	struct keeper *k = lock->file->keeper;
	struct grants_record r = {.dev = lock->file->key.dev,
				  .ino = lock->file->key.ino,
				  .at_ns = grant->at_ns,
				  .granted_ns = grant->granted_ns,
				  .since = grant->since,
				  .pid = grant->pid,
				  .uid = grant->uid,
				  .space = lock->space};
	bool opened = !k->grants.file;
	int ret = grants_open(k, true);

	if (ret < 0 && !k->grants.cannot_keep)
		log_event(LINE_GRANTS_NOT_KEPT,
			  "%s/" GRANTS_NAME ": %s; a keeper that is started for one that died will not know since when "
			  "locks with warn_after_ms or kill_after_ms are held",
			  k->runtime_dir, strerror(-ret));
	k->grants.cannot_keep = ret < 0;
	if (opened && !ret)
		grants_tick(k, k->grants.paused);
	if (!grant->kept)
		grant->kept = grants_find_free(&k->grants);
	if (!grant->kept)
		return;
	*grant->kept = r;
	grants_set_sum(grant->kept, grants_sum(&r)); /* mutant: grant-kept */
}

struct order *grants_order(const struct lock *lock, pid_t locker)
{
	const struct file_key *key = &lock->file->key;
	struct order *o;

	for (size_t i = 0; (o = order_at(lock->file->keeper->table, i)); i++)
		if (order_state(order_word(o)) != ORDER_FREE && o->file.dev == key->dev && o->file.ino == key->ino &&
		    o->space == lock->space && o->locker == locker)
			return o;
	return NULL;
}

/* If its holders are to be ended and were not asked to so far, they are not. Before the caller is told of its grant: guard/orders.c has the argument. */
static void grants_withdraw(struct lock *lock, struct grant *grant)
{
	struct order *o = grant->state == GRANT_ENDING ? grants_order(lock, grant->pid) : NULL;
	uint64_t word = o ? order_word(o) : 0;

	if (order_state(word) == ORDER_GIVEN && order_move(o, word, ORDER_FREE))
		grant->state = GRANT_WARNED;
}

static void grants_note(struct lock *lock, pid_t pid, uid_t uid, int64_t pin_ns)
{
	struct grant *grant = grants_find(lock, pid);

	if (!grant)
		grant = grants_add(lock, pid, uid);
	if (!grant)
		return;
	if (!pid && grant->uid != uid)
		grant->uid = LEASE_OF_NOBODY;
	if (pid)
		grant->uid = uid;
	grant->at_ns = grants_now_ns(lock->file->keeper) + pin_ns; /* mutant: grant-anew */
	grant->granted_ns = clock_now_ns();
	grant->since = time(NULL);
	grant->missed = 0;
	grants_keep(lock, grant);
	grants_withdraw(lock, grant);     /* mutant: toolong-withdraw */
	if (grant->state != GRANT_ENDING) /* else toolong.c sees that it is a younger one */
		grant_begin(grant);
}

void grants_note_granted(struct lock *lock, pid_t pid, uid_t uid, int64_t until_ns)
{
	int64_t pin_ns = until_ns - clock_now_ns();

	if (pin_ns < 0)
		pin_ns = 0;
	/* The file may be known under a path whose rule has no limit, too. */
	leasepage_close_lock(lock);
	grants_note(lock, 0, uid, pin_ns);
	if (pid > 0)
		grants_note(lock, pid, uid, pin_ns);
}

void grants_drop(struct lock *lock, struct grant *grant)
{
	grants_withdraw(lock, grant);
	HASH_DEL(lock->grants, grant);
	if (!lock->grants)
		DL_DELETE2(lock->file->keeper->grants.locks, lock, held_prev, held_next);
	grants_set_sum(grant->kept, 0);
	free(grant->command);
	free(grant);
}

void grants_drop_all(struct lock *lock)
{
	struct grant *grant, *next;

	HASH_ITER (hh, lock->grants, grant, next)
		grants_drop(lock, grant);
}

/* --- what an earlier keeper has granted --- */

/* A keeper of a version that keeps no grants may have served since: what was written before that counts no more. */
#define GRANTS_RECENT_NS (60000 * NS_PER_MS)

/* False: it does not count any more. */
static bool grants_adopt(struct keeper *k, struct grants_record *r)
{
	const struct file_key key = {.dev = r->dev, .ino = r->ino};
	struct lock *lock;
	struct grant *grant;
	struct file *file;

	HASH_FIND(hh, k->files, &key, sizeof(key), file);
	lock = file && r->space < WIRE_SPACES ? &file->locks[r->space] : NULL;
	if (!lock || !lock->leases || !file_is_limited(file) || r->pid < 0 || grants_find(lock, r->pid))
		return false;
	grant = grants_add(lock, r->pid, r->uid);
	if (!grant)
		return false;
	grant->at_ns = r->at_ns;
	grant->granted_ns = r->granted_ns;
	grant->since = (time_t)r->since;
	grant->kept = r;
	return true;
}

void grants_takeup(struct keeper *k)
{
	struct grants *h = &k->grants;
	bool recent;

	h->last_ns = clock_now_ns();
	if (grants_open(k, false) < 0)
		return; /* nothing was granted so far, or no grant counts any more */
	h->ran_ns = h->file->ran_ns;
	recent = h->last_ns - h->file->ticked_ns < GRANTS_RECENT_NS;
	for (size_t i = 0; i < GRANTS_RECORDS; i++) {
		struct grants_record *r = &h->file->records[i];
		bool whole = r->sum && r->sum == grants_sum(r); /* mutant: grants-sum */

		if (!whole || !recent || !grants_adopt(k, r)) /* mutant: grants-recent */
			grants_set_sum(r, 0);
	}
}
