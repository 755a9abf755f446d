/* See ages.h. */
#include "keeper/leases/ages.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/table_file.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"

/* --- the file --- */

#define AGES_MAGIC   UINT64_C(0x73746e6172676664)
#define AGES_VERSION 1

static uint64_t ages_sum(const struct ages_record *r)
{
	uint64_t sum = table_sum(r, offsetof(struct ages_record, sum));

	return sum ? sum : 1;
}

static int ages_open(struct keeper *k, bool make)
{
	struct ages *h = &k->ages;
	void *map;
	int ret =
		h->file ? 0
			: table_file_map(k->dir_fd, AGES_NAME, AGES_MAGIC, AGES_VERSION, sizeof(*h->file), make, &map);

	if (!h->file && ret == 0)
		h->file = map;
	return ret;
}

void ages_close(struct keeper *k)
{
	if (k->ages.file)
		munmap(k->ages.file, sizeof(*k->ages.file));
	k->ages.file = NULL;
}

/* NULL: there is no room, or the file is closed. */
static struct ages_record *ages_find_free(struct ages *h)
{
	for (size_t i = 0; h->file && i < AGES_RECORDS; i++) {
		size_t at = h->hint++ % AGES_RECORDS;

		if (!h->file->records[at].sum)
			return &h->file->records[at];
	}
	return NULL;
}

static void ages_set_sum(struct ages_record *r, uint64_t sum)
{
	if (r)
		__atomic_store_n(&r->sum, sum, __ATOMIC_RELEASE);
}

/* --- the running clock --- */

int64_t ages_now_ns(const struct keeper *k)
{
	const struct ages *h = &k->ages;
	int64_t passed = clock_now_ns() - h->last_ns;

	if (h->paused || passed < 0)
		return h->ran_ns;
	return h->ran_ns + (passed < AGES_TICK_MAX_MS * NS_PER_MS ? passed : AGES_TICK_MAX_MS * NS_PER_MS);
}

void ages_tick(struct keeper *k, bool paused)
{
	k->ages.ran_ns = ages_now_ns(k);
	k->ages.last_ns = clock_now_ns();
	k->ages.paused = paused;
	if (!k->ages.file)
		return;
	k->ages.file->ran_ns = k->ages.ran_ns;
	k->ages.file->ticked_ns = k->ages.last_ns;
}

int64_t age_ms_of(const struct keeper *k, const struct age *age)
{
	return (ages_now_ns(k) - age->at_ns) / NS_PER_MS;
}

/* --- grants --- */

struct age *ages_find(struct lock *lock, pid_t locker)
{
	struct age *age;
	pid_t pid = locker > 0 ? locker : 0;

	HASH_FIND(hh, lock->ages, &pid, sizeof(pid), age);
	return age;
}

static struct age *ages_add(struct lock *lock, pid_t pid, uid_t uid)
{
	struct age *age = HASH_COUNT(lock->ages) < AGES_MAX ? calloc(1, sizeof(*age)) : NULL;

	if (!age)
		return NULL;
	if (!lock->ages)
		DL_APPEND2(lock->file->keeper->ages.locks, lock, held_prev, held_next);
	age->pid = pid;
	age->uid = uid;
	HASH_ADD(hh, lock->ages, pid, sizeof(age->pid), age);
	return age;
}

void age_begin(struct age *age)
{
	age->state = AGE_QUIET;
	age->said = false;
	age->tries = 0;
}

/* For the next keeper. A record counts as a whole or not at all: its sum is written last. */
static void ages_keep(struct lock *lock, struct age *age)
{
	struct keeper *k = lock->file->keeper;
	struct ages_record r = {.dev = lock->file->key.dev,
				.ino = lock->file->key.ino,
				.at_ns = age->at_ns,
				.granted_ns = age->granted_ns,
				.since = age->since,
				.pid = age->pid,
				.uid = age->uid,
				.space = lock->space};
	bool opened = !k->ages.file;
	int ret = ages_open(k, true);

	if (ret < 0 && !k->ages.cannot_keep)
		log_event(LINE_GRANTS_NOT_KEPT,
			  "%s/" AGES_NAME ": %s; a keeper that is started for one that died will not know since when "
			  "locks with warn_after_ms or kill_after_ms are held",
			  k->runtime_dir, strerror(-ret));
	k->ages.cannot_keep = ret < 0;
	if (opened && !ret)
		ages_tick(k, k->ages.paused);
	if (!age->kept)
		age->kept = ages_find_free(&k->ages);
	if (!age->kept)
		return;
	*age->kept = r;
	ages_set_sum(age->kept, ages_sum(&r)); /* mutant: age-kept */
}

struct order *ages_order(const struct lock *lock, pid_t locker)
{
	const struct file_key *key = &lock->file->key;
	struct order *o;

	for (size_t i = 0; (o = order_at(lock->file->keeper->table, i)); i++)
		if (order_state(order_word(o)) != ORDER_FREE && o->file.dev == key->dev && o->file.ino == key->ino &&
		    o->space == lock->space && o->locker == locker)
			return o;
	return NULL;
}

/* If its holders are to be ended and were not asked to so far, they are not. Before the caller is told of its age: guard/orders.c has the argument. */
static void ages_withdraw(struct lock *lock, struct age *age)
{
	struct order *o = age->state == AGE_ENDING ? ages_order(lock, age->pid) : NULL;
	uint64_t word = o ? order_word(o) : 0;

	if (order_state(word) == ORDER_GIVEN && order_move(o, word, ORDER_FREE))
		age->state = AGE_WARNED;
}

static void ages_note(struct lock *lock, pid_t pid, uid_t uid, int64_t pin_ns)
{
	struct age *age = ages_find(lock, pid);

	if (!age)
		age = ages_add(lock, pid, uid);
	if (!age)
		return;
	if (!pid && age->uid != uid)
		age->uid = LEASE_OF_NOBODY;
	if (pid)
		age->uid = uid;
	age->at_ns = ages_now_ns(lock->file->keeper) + pin_ns; /* mutant: age-anew */
	age->granted_ns = clock_now_ns();
	age->since = time(NULL);
	age->missed = 0;
	ages_keep(lock, age);
	ages_withdraw(lock, age);     /* mutant: toolong-withdraw */
	if (age->state != AGE_ENDING) /* else toolong.c sees that it is a younger one */
		age_begin(age);
}

void ages_note_granted(struct lock *lock, pid_t pid, uid_t uid, int64_t until_ns)
{
	int64_t pin_ns = until_ns - clock_now_ns();

	if (pin_ns < 0)
		pin_ns = 0;
	/* The file may be known under a path whose rule has no limit, too. */
	leasepage_close_lock(lock);
	ages_note(lock, 0, uid, pin_ns);
	if (pid > 0)
		ages_note(lock, pid, uid, pin_ns);
}

void ages_drop(struct lock *lock, struct age *age)
{
	ages_withdraw(lock, age);
	HASH_DEL(lock->ages, age);
	if (!lock->ages)
		DL_DELETE2(lock->file->keeper->ages.locks, lock, held_prev, held_next);
	ages_set_sum(age->kept, 0);
	free(age->command);
	free(age);
}

void ages_drop_all(struct lock *lock)
{
	struct age *age, *next;

	HASH_ITER (hh, lock->ages, age, next)
		ages_drop(lock, age);
}

/* --- what an earlier keeper has granted --- */

/* A keeper of a version that keeps no grants may have served since: what was written before that counts no more. */
#define AGES_RECENT_NS (60000 * NS_PER_MS)

/* False: it does not count any more. */
static bool ages_adopt(struct keeper *k, struct ages_record *r)
{
	const struct file_key key = {.dev = r->dev, .ino = r->ino};
	struct lock *lock;
	struct age *age;
	struct file *file;

	HASH_FIND(hh, k->files, &key, sizeof(key), file);
	lock = file && r->space < WIRE_SPACES ? &file->locks[r->space] : NULL;
	if (!lock || !lock->leases || !file_is_limited(file) || r->pid < 0 || ages_find(lock, r->pid))
		return false;
	age = ages_add(lock, r->pid, r->uid);
	if (!age)
		return false;
	age->at_ns = r->at_ns;
	age->granted_ns = r->granted_ns;
	age->since = (time_t)r->since;
	age->kept = r;
	return true;
}

void ages_takeup(struct keeper *k)
{
	struct ages *h = &k->ages;
	bool recent;

	h->last_ns = clock_now_ns();
	if (ages_open(k, false) < 0)
		return; /* nothing was granted so far, or no age counts any more */
	h->ran_ns = h->file->ran_ns;
	recent = h->last_ns - h->file->ticked_ns < AGES_RECENT_NS;
	for (size_t i = 0; i < AGES_RECORDS; i++) {
		struct ages_record *r = &h->file->records[i];
		bool whole = r->sum && r->sum == ages_sum(r); /* mutant: grants-sum */

		if (!whole || !recent || !ages_adopt(k, r)) /* mutant: grants-recent */
			ages_set_sum(r, 0);
	}
}
