/*
 * See census.h. What is hidden:
 *
 *   search         notes all locks that descriptors show. If each claim has an exclusive lock on all of its range, there can be
 *                  no other lock: done
 *   /proc/locks    what is listed under a claim and was not seen is hidden, or came or went meanwhile. If that is none: done
 *   search again, /proc/locks again: what was listed before this search, was not seen by it, and is still listed. The rest
 *                  came and went
 *
 * /proc/locks is read after the search, never before it: the kernel takes time that grows with the square of the number
 * of locks (0.7 s for 60,000), and holds up all lock calls of the machine meanwhile. The processes that the search
 * found are stopped before that.
 */
#include "keeper/kernel/census.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "keeper/array.h"
#include "procfs/procfs.h"

/* Without memory, leaves the lock out: uthash's default would end the process, which may be the keeper's parent. */
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(item) ((item)->added = false)
#include <uthash.h>

/* A set of locks, by hash. The whole key is compared: padding must not differ. */
struct census_lock {
	struct {
		uint64_t dev, ino;
		int64_t from, to;
		int32_t space, owner, mode, locker;
	} key;
	bool added;
	UT_hash_handle hh;
};

/* A hidden lock which a process with a mapping may have. */
struct census_orphan {
	size_t lock;
	bool found; /* a process counts as the holder */
};

struct census {
	const struct claims *claims;
	struct holders_search *ask;
	struct file_index index;
	struct census_lock *seen, *before;
	bool *shown; /* of each claim: an exclusive lock on all of it was seen */
	size_t shown_count;
	UT_array hidden;  /* struct procfs_lock */
	UT_array files;   /* struct holders_file: of each orphan */
	UT_array orphans; /* struct census_orphan */
};

/* --- sets of locks --- */

/* Is it in the set? Otherwise adds it, if asked to. 0: it was not; 1: it was; -ENOMEM. */
static int census_note(struct census_lock **set, const struct procfs_lock *l, bool add)
{
	struct census_lock made = {.key = {.dev = l->dev,
					   .ino = l->ino,
					   .from = l->from,
					   .to = l->to,
					   .space = (int32_t)l->space,
					   .owner = (int32_t)l->owner,
					   .mode = (int32_t)l->mode,
					   .locker = l->locker},
				   .added = true};
	struct census_lock *item;

	HASH_FIND(hh, *set, &made.key, sizeof(made.key), item);
	if (item || !add)
		return item != NULL;
	item = malloc(sizeof(*item));
	if (!item)
		return -ENOMEM;
	*item = made;
	HASH_ADD(hh, *set, key, sizeof(item->key), item);
	if (item->added)
		return 0;
	free(item);
	return -ENOMEM;
}

static void census_empty(struct census_lock **set)
{
	struct census_lock *item, *next;

	HASH_ITER (hh, *set, item, next) {
		HASH_DEL(*set, item);
		free(item);
	}
}

/* --- the search --- */

static int census_on_holder(void *arg, const struct holder *h)
{
	const struct census *c = arg;

	return c->ask->cb(c->ask->arg, h);
}

static int census_on_known(void *arg, const struct holder *h)
{
	(void)arg, (void)h;
	return 0;
}

static int census_on_seen(void *arg, const struct procfs_lock *lock)
{
	struct census *c = arg;
	size_t file = FILE_NONE;
	int ret;

	while (lock->mode == WIRE_EXCLUSIVE &&
	       (file = file_index_find(&c->index, lock->dev, lock->ino, file)) != FILE_NONE) {
		const struct claim *claim;
		size_t next = SIZE_MAX;

		while (file_index_is_plain(&c->claims->files[file]) &&
		       (claim = claims_next(c->claims, file, lock->space, lock->from, lock->to, &next))) {
			bool *shown = &c->shown[claims_index(c->claims, claim)];

			if (*shown || claim->from < lock->from || claim->to > lock->to)
				continue;
			*shown = true;
			c->shown_count++;
		}
	}
	ret = census_note(&c->seen, lock, true);
	return ret < 0 ? ret : 0;
}

static int census_on_turn(void *arg)
{
	const struct census *c = arg;

	return c->ask->turn(c->ask->arg);
}

static int census_search(struct census *c, bool again)
{
	struct holders_search search = *c->ask;
	int ret;

	search.cb = again && !(search.how & HOLDERS_AT_ONCE) ? census_on_known : census_on_holder;
	search.how |= again ? HOLDERS_AT_ONCE : 0;
	search.seen = census_on_seen;
	search.turn = c->ask->turn ? census_on_turn : NULL;
	search.arg = c;
	ret = holders_search(&search);
	if (!again)
		c->ask->unseen = search.unseen;
	return ret;
}

/* --- hidden locks --- */

/* Calls back for each file that has the lock's number, if the lock is under a claim. cb may be NULL: then 1 if it is. */
static int census_tell(const struct census *c, const struct procfs_lock *lock, const struct holder *known,
		       holders_cb *cb)
{
	struct holder h = *known;
	int ret = 0;

	h.fd = -1;
	h.space = lock->space;
	h.owner = lock->owner;
	h.mode = lock->mode;
	h.from = lock->from;
	h.to = lock->to;
	h.locker = lock->locker;
	h.command = "";
	h.file = FILE_NONE;
	while (!ret && (h.file = file_index_find(&c->index, lock->dev, lock->ino, h.file)) != FILE_NONE) {
		size_t next = SIZE_MAX;

		if (c->claims->files[h.file].by_number || !claims_next(c->claims, h.file, h.space, h.from, h.to, &next))
			continue;
		ret = cb ? cb(c->ask->arg, &h) : 1;
		ret = ret == HOLDERS_LATER ? 0 : ret;
	}
	return ret;
}

/* The caller's own locks do not count: the keeper's probes. */
static int census_on_listed(void *arg, const struct procfs_lock *lock)
{
	struct census *c = arg;

	if ((c->ask->ignore_pid && lock->locker == c->ask->ignore_pid) || census_note(&c->seen, lock, false) ||
	    !census_tell(c, lock, &(struct holder){0}, NULL))
		return 0;
	return array_push(&c->hidden, lock, sizeof(*lock));
}

static int census_list(struct census *c, bool again)
{
	size_t kept = 0;
	int ret;

	array_cut(&c->hidden, 0);
	ret = procfs_locks(census_on_listed, c);
	ret = ret == -EAGAIN ? 0 : ret; /* better most of them than none */
	census_empty(&c->seen);
	for (size_t i = 0; ret >= 0 && i < utarray_len(&c->hidden); i++) {
		const struct procfs_lock *lock = array_at(&c->hidden, i);

		ret = census_note(&c->before, lock, !again);
		if (again && ret > 0)
			*(struct procfs_lock *)array_at(&c->hidden, kept++) = *lock;
	}
	if (again)
		array_cut(&c->hidden, kept);
	return ret < 0 ? ret : 0;
}

static int census_on_mapper(void *arg, size_t file, pid_t pid)
{
	struct census *c = arg;
	struct census_orphan *orphan = array_at(&c->orphans, file);

	if (pid == getpid() || pid == c->ask->ignore_pid)
		return 0;
	orphan->found = true;
	return census_tell(c, array_at(&c->hidden, orphan->lock),
			   &(struct holder){.how = HOLDER_MAPPER, .pid = pid, .sight = SIGHT_OPEN}, c->ask->cb);
}

/* Tells of the process that the kernel names. Notes the lock, if other processes may have it, too: a mapping may show them. */
static int census_judge(struct census *c, size_t i)
{
	const struct procfs_lock *lock = array_at(&c->hidden, i);
	const struct holder taker = {.how = HOLDER_TAKER, .pid = lock->locker, .sight = sight_of(lock->locker)};
	const struct census_orphan orphan = {.lock = i, .found = taker.sight == SIGHT_OPEN};
	const struct holders_file file = {.dev = lock->dev, .ino = lock->ino};
	int ret = 0;

	if (taker.sight != SIGHT_GONE)
		ret = census_tell(c, lock, &taker, c->ask->cb);
	if (ret || lock->owner == WIRE_OWNER_PROCESS || taker.sight == SIGHT_SIGNAL || taker.sight == SIGHT_BEYOND)
		return ret;
	ret = array_push(&c->files, &file, sizeof(file));
	return ret ? ret : array_push(&c->orphans, &orphan, sizeof(orphan));
}

static int census_tell_hidden(struct census *c)
{
	const struct census_orphan *orphan = NULL;
	size_t passed_over;
	int ret = 0;

	for (size_t i = 0; !ret && i < utarray_len(&c->hidden); i++)
		ret = census_judge(c, i);
	if (!ret && utarray_len(&c->orphans))
		ret = mappers_find(array_items(&c->files), utarray_len(&c->files), census_on_mapper, c, &passed_over);
	if (ret == -EAGAIN) /* too many errands hang: then nobody is known to have the lock */
		ret = 0;
	while (!ret && (orphan = utarray_next(&c->orphans, orphan)))
		if (!orphan->found)
			ret = census_tell(c, array_at(&c->hidden, orphan->lock),
					  &(struct holder){.how = HOLDER_NOBODY, .sight = SIGHT_BEYOND}, c->ask->cb);
	return ret;
}

static int census_run(struct census *c)
{
	size_t count = claims_count(c->claims);
	int ret = file_index_build(&c->index, c->claims->files, c->claims->file_count);

	c->shown = calloc(count + 1, sizeof(*c->shown));
	for (size_t i = 0; c->shown && i < count; i++)
		c->shown_count += c->shown[i] = claims_at(c->claims, i)->file.by_number;
	if (!ret)
		ret = c->shown ? census_search(c, false) : -ENOMEM;
	if (ret || c->shown_count == count)
		return ret;
	ret = census_list(c, false);
	if (!ret && utarray_len(&c->hidden))
		ret = census_search(c, true);
	if (!ret && utarray_len(&c->hidden))
		ret = census_list(c, true);
	return ret ? ret : census_tell_hidden(c);
}

int census_take(const struct claims *claims, struct holders_search *ask)
{
	struct census c = {.claims = claims, .ask = ask};
	int ret = 0;

	ask->files = claims->files;
	ask->count = claims->file_count;
	if (ask->count)
		ret = census_run(&c);
	census_empty(&c.seen);
	census_empty(&c.before);
	file_index_free(&c.index);
	free(c.shown);
	utarray_done(&c.hidden);
	utarray_done(&c.files);
	utarray_done(&c.orphans);
	return ret;
}
