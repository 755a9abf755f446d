/* See grants.h. */
#include "keeper/leases/grants.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/table_file.h"
#include "keeper/guard/table_sums.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"

/* --- the file --- */

#define GRANTSFILE_MAGIC   UINT64_C(0x73746e6172676664)
#define GRANTSFILE_VERSION 1

struct grantsfile_head {
	uint64_t magic, version;
	char boot[CLOCK_BOOT_BYTES];
	int64_t ran_ns, ticked_ns;
	struct grantsfile_record records[GRANTSFILE_RECORDS];
};

static uint64_t grantsfile_sum(const struct grantsfile_record *r)
{
	uint64_t sum = table_sum(r, offsetof(struct grantsfile_record, sum));

	return sum ? sum : 1;
}

/* With `make`, a file that is void is made anew. */
static int grantsfile_check(struct grantsfile_head *head, bool make)
{
	char boot[CLOCK_BOOT_BYTES] = "";
	int ret = clock_boot(boot);

	if (ret < 0)
		return ret;
	if (head->magic == GRANTSFILE_MAGIC && head->version == GRANTSFILE_VERSION &&
	    memcmp(head->boot, boot, sizeof(boot)) == 0)
		return 0;
	if (!make)
		return -ENOENT;
	memset(head, 0, sizeof(*head));
	memcpy(head->boot, boot, sizeof(boot));
	head->version = GRANTSFILE_VERSION;
	head->magic = GRANTSFILE_MAGIC;
	return 0;
}

int grantsfile_open(struct grantsfile *file, int dir_fd, bool make)
{
	void *map;
	int ret;

	if (file->head)
		return 0;
	ret = table_file_map(dir_fd, GRANTSFILE_NAME, sizeof(*file->head), make, &map);
	if (ret < 0)
		return ret;
	ret = grantsfile_check(map, make);
	if (ret < 0)
		munmap(map, sizeof(*file->head));
	else
		file->head = map;
	return ret;
}

void grantsfile_close(struct grantsfile *file)
{
	if (file->head)
		munmap(file->head, sizeof(*file->head));
	file->head = NULL;
}

int64_t grantsfile_ran_ns(const struct grantsfile *file)
{
	return file->head ? file->head->ran_ns : 0;
}

int64_t grantsfile_ticked_ns(const struct grantsfile *file)
{
	return file->head ? file->head->ticked_ns : 0;
}

void grantsfile_tick(struct grantsfile *file, int64_t ran_ns, int64_t now_ns)
{
	if (!file->head)
		return;
	file->head->ran_ns = ran_ns;
	file->head->ticked_ns = now_ns;
}

const struct grantsfile_record *grantsfile_get(const struct grantsfile *file, size_t number)
{
	const struct grantsfile_record *r = &file->head->records[number - 1];

	return r->sum && r->sum == grantsfile_sum(r) ? r : NULL; /* mutant: grantsfile-sum */
}

static size_t grantsfile_find_free(struct grantsfile *file)
{
	for (size_t i = 0; i < GRANTSFILE_RECORDS; i++) {
		size_t at = (file->hint + i) % GRANTSFILE_RECORDS;

		if (file->head->records[at].sum)
			continue;
		file->hint = at + 1;
		return at + 1;
	}
	return 0;
}

size_t grantsfile_put(struct grantsfile *file, size_t number, const struct grantsfile_record *record)
{
	struct grantsfile_record *r, whole = *record;

	if (!file->head)
		return 0;
	number = number ? number : grantsfile_find_free(file);
	if (!number)
		return 0;
	r = &file->head->records[number - 1];
	whole.sum = 0;
	*r = whole;
	__atomic_store_n(&r->sum, grantsfile_sum(&whole), __ATOMIC_RELEASE);
	return number;
}

void grantsfile_drop(struct grantsfile *file, size_t number)
{
	if (file->head && number)
		__atomic_store_n(&file->head->records[number - 1].sum, 0, __ATOMIC_RELEASE);
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
	grantsfile_tick(&k->grants.file, k->grants.ran_ns, k->grants.last_ns);
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

/* For the next keeper. */
static void grants_keep(struct lock *lock, struct grant *grant)
{
	struct keeper *k = lock->file->keeper;
	const struct grantsfile_record record = {.dev = lock->file->key.dev,
						 .ino = lock->file->key.ino,
						 .at_ns = grant->at_ns,
						 .granted_ns = grant->granted_ns,
						 .since = grant->since,
						 .pid = grant->pid,
						 .uid = grant->uid,
						 .space = lock->space};
	int ret = grantsfile_open(&k->grants.file, k->dir_fd, true);

	if (ret < 0 && !k->grants.cannot_keep)
		log_event(LINE_GRANTS_NOT_KEPT,
			  "%s/" GRANTSFILE_NAME
			  ": %s; a keeper that is started for one that died will not know since when "
			  "locks with warn_after_ms or kill_after_ms are held",
			  k->runtime_dir, strerror(-ret));
	k->grants.cannot_keep = ret < 0;
	grantsfile_tick(&k->grants.file, k->grants.ran_ns, k->grants.last_ns);
	grant->kept = grantsfile_put(&k->grants.file, grant->kept, &record); /* mutant: grant-kept */
}

struct order *grants_order(const struct lock *lock, pid_t locker)
{
	const struct file_key *key = &lock->file->key;
	struct order *o;

	for (size_t i = 0; (o = deeds_order(lock->file->keeper->table, i)); i++)
		if (order_state(order_word(o)) != ORDER_FREE && o->file.dev == key->dev && o->file.ino == key->ino &&
		    o->space == lock->space && o->locker == locker)
			return o;
	return NULL;
}

/* If its holders are to be ended and were not asked to so far, they are not. Before the caller is told of its grant: guard/ender.c has the argument. */
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
	grantsfile_drop(&lock->file->keeper->grants.file, grant->kept);
	free(grant->command);
	free(grant);
}

void grants_drop_all(struct lock *lock)
{
	struct grant *grant, *next;

	HASH_ITER (hh, lock->grants, grant, next)
		grants_drop(lock, grant);
}

bool grants_adopt(struct lock *lock, const struct grantsfile_record *record, size_t number)
{
	struct grant *grant = grants_find(lock, record->pid) ? NULL : grants_add(lock, record->pid, record->uid);

	if (!grant)
		return false;
	grant->at_ns = record->at_ns;
	grant->granted_ns = record->granted_ns;
	grant->since = (time_t)record->since;
	grant->kept = number;
	return true;
}

void grants_close(struct keeper *k)
{
	grantsfile_close(&k->grants.file);
}
