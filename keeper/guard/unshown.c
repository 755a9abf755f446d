/*
 * See unshown.h. While the search looks at descriptors it notes (`shown`) which claims have an exclusive lock on all of
 * their range: there can be no other lock. So most looks need not read /proc/locks.
 */
#include "keeper/guard/unshown.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "keeper/guard/slots.h"
#include "keeper/guard/table_words.h"
#include "keeper/kernel/hidden.h"
#include "keeper/kernel/mappers.h"
#include "keeper/kernel/sight.h"
#include "keeper/log.h"

struct unshown {
	struct look *look;
	struct hidden hidden;
	bool *shown; /* of each claim: an exclusive lock on all of it was seen */
	size_t shown_count;
	bool *beyond; /* of each claim: a lock on it has a holder that cannot be stopped */
	/* Locks whose holder only a mapping may show: */
	struct holders_file *files;
	size_t *locks; /* of each file: the lock's index in hidden.locks */
	bool *found;   /* of each file: a process counts as the holder */
	size_t count;
};

static int unshown_on_holder(void *arg, const struct holder *h)
{
	struct unshown *u = arg;

	return look_holder(u->look, h);
}

/* Where a walk over the claims that a lock is under has come to. */
struct unshown_walk {
	size_t file, next;
};

static struct unshown_walk unshown_walk_begin(void)
{
	return (struct unshown_walk){.file = FILE_NONE};
}

/* The next claim that the lock is under; NULL: no more. Several files may have the lock's number. */
static const struct claim *unshown_walk_next(const struct unshown *u, const struct procfs_lock *lock,
					     struct unshown_walk *at)
{
	const struct claims *claims = &u->look->claims;
	const struct claim *claim = NULL;

	if (at->file != FILE_NONE)
		claim = claims_next(claims, at->file, lock->space, lock->from, lock->to, &at->next);
	while (!claim && (at->file = file_index_find(&u->hidden.index, lock->dev, lock->ino, at->file)) != FILE_NONE) {
		at->next = SIZE_MAX;
		claim = claims_next(claims, at->file, lock->space, lock->from, lock->to, &at->next);
	}
	return claim;
}

static int unshown_on_seen(void *arg, const struct procfs_lock *lock)
{
	struct unshown *u = arg;
	struct unshown_walk at = unshown_walk_begin();
	const struct claim *claim;

	while (lock->mode == WIRE_EXCLUSIVE && (claim = unshown_walk_next(u, lock, &at))) {
		bool *shown = &u->shown[claims_index(&u->look->claims, claim)];

		if (*shown || !file_index_is_plain(&u->look->claims.files[at.file]) || claim->from < lock->from ||
		    claim->to > lock->to)
			continue;
		*shown = true;
		u->shown_count++;
	}
	return hidden_seen(&u->hidden, lock);
}

static int unshown_look(struct unshown *u)
{
	const struct look *look = u->look;

	return holders_search(&(struct holders_search){.files = look->claims.files,
						       .count = look->claims.file_count,
						       .ignore_pid = look->keeper,
						       .how = HOLDERS_AT_ONCE,
						       .cb = unshown_on_holder,
						       .seen = unshown_on_seen,
						       .arg = u});
}

/* Is this lock under one of the claims? The keeper's own probes do not count. */
static bool unshown_is_claimed(const struct unshown *u, const struct procfs_lock *lock)
{
	struct unshown_walk at = unshown_walk_begin();

	return lock->locker != u->look->keeper && unshown_walk_next(u, lock, &at);
}

/* The holder of this lock cannot be stopped: notes that on the claims that the lock is under. */
static void unshown_mark(struct unshown *u, const struct procfs_lock *lock)
{
	struct unshown_walk at = unshown_walk_begin();
	const struct claim *claim;

	while ((claim = unshown_walk_next(u, lock, &at)))
		u->beyond[claims_index(&u->look->claims, claim)] = true;
}

/* look_spares() of each claim that the lock is under. */
static bool unshown_spares(const struct unshown *u, const struct procfs_lock *lock, pid_t pid)
{
	struct unshown_walk at = unshown_walk_begin();
	const struct claim *claim;

	while ((claim = unshown_walk_next(u, lock, &at)))
		if (!look_spares(u->look, claim, pid))
			return false;
	return true;
}

static int unshown_on_mapper(void *arg, size_t file, pid_t pid)
{
	struct unshown *u = arg;

	u->found[file] = true;
	if (pid == getpid() || pid == u->look->keeper ||
	    unshown_spares(u, hidden_lock(&u->hidden, u->locks[file]), pid))
		return 0;
	return look_add(u->look, pid);
}

/* Adds the process that the kernel names. Notes the lock, if other processes may have it, too: a mapping may show them. */
static int unshown_judge(struct unshown *u, size_t index)
{
	const struct procfs_lock *lock = hidden_lock(&u->hidden, index);
	enum sight sight;
	int ret = 0;

	if (!unshown_is_claimed(u, lock))
		return 0;
	sight = sight_of(lock->locker);
	if (sight == SIGHT_BEYOND)
		unshown_mark(u, lock);
	if (sight != SIGHT_GONE && !unshown_spares(u, lock, lock->locker))
		ret = look_add(u->look, lock->locker);
	if (ret || lock->owner == WIRE_OWNER_PROCESS || sight == SIGHT_SIGNAL || sight == SIGHT_BEYOND)
		return ret;
	u->found[u->count] = sight == SIGHT_OPEN;
	u->locks[u->count] = index;
	u->files[u->count++] = (struct holders_file){.dev = lock->dev, .ino = lock->ino};
	return 0;
}

static int unshown_find(struct unshown *u)
{
	size_t passed_over, room = hidden_count(&u->hidden) + 1;
	int ret = 0;

	u->files = malloc(room * sizeof(*u->files));
	u->locks = malloc(room * sizeof(*u->locks));
	u->found = calloc(room, sizeof(*u->found));
	if (!u->files || !u->locks || !u->found)
		return -ENOMEM;
	for (size_t i = 0; ret == 0 && i < hidden_count(&u->hidden); i++)
		ret = unshown_judge(u, i);
	if (ret == 0 && u->count)
		ret = mappers_find(u->files, u->count, unshown_on_mapper, u, &passed_over);
	if (ret == -EAGAIN) /* too many errands hang: then marks the locks without a known mapper */
		ret = 0;
	for (size_t i = 0; ret == 0 && i < u->count; i++)
		if (!u->found[i])
			unshown_mark(u, hidden_lock(&u->hidden, u->locks[i]));
	return ret;
}

static void unshown_log(const struct table_slot *slot)
{
	char subject[64];

	snprintf(subject, sizeof(subject), "%llx:%llx", (unsigned long long)slot->dev, (unsigned long long)slot->ino);
	log_about(LINE_NOT_STOPPABLE, &(struct log_about){.subject = subject},
		  "a lock on inode %llu of device %u:%u is held, but no process can be stopped for it: "
		  "the process that took it has ended, and its descriptor is on its way through a socket, or the "
		  "keeper may not look into the process that has it; `dflock status` names the lock",
		  (unsigned long long)slot->ino, major(slot->dev), minor(slot->dev));
}

static void unshown_publish(const struct unshown *u)
{
	for (size_t i = 0; i < claims_count(&u->look->claims); i++) {
		uint64_t tag = claims_at(&u->look->claims, i)->tag, generation = slots_tag_generation(tag);
		uint32_t number = slots_tag_slot(tag);
		struct table_slot *slot = &u->look->table->slots[number];

		if (u->beyond[i] && slot->hidden_said != generation)
			unshown_log(slot);
		if (u->beyond[i])
			table_put64(&slot->hidden_said, generation);
		table_set_hidden(u->look->table, number, generation, u->beyond[i]);
	}
}

/* The order of steps is hidden.h's. */
static int unshown_run(struct unshown *u)
{
	const struct claims *claims = &u->look->claims;
	int ret = hidden_begin(&u->hidden, claims->files, claims->file_count);

	u->shown = calloc(claims_count(claims) + 1, sizeof(*u->shown));
	u->beyond = calloc(claims_count(claims) + 1, sizeof(*u->beyond));
	if (!u->shown || !u->beyond)
		ret = -ENOMEM;
	if (ret == 0)
		ret = unshown_look(u);
	if (ret == 0 && u->shown_count < claims_count(claims)) {
		ret = hidden_end(&u->hidden);
		if (ret == 0 && hidden_count(&u->hidden))
			ret = unshown_look(u);
		if (ret == 0 && hidden_count(&u->hidden))
			ret = hidden_end(&u->hidden);
		if (ret == 0 && hidden_count(&u->hidden))
			ret = unshown_find(u);
	}
	if (ret == 0)
		unshown_publish(u);
	return ret;
}

int unshown_search(struct look *look)
{
	struct unshown u = {.look = look};
	int ret = 0;

	if (claims_count(&look->claims))
		ret = unshown_run(&u);
	hidden_free(&u.hidden);
	free(u.shown);
	free(u.beyond);
	free(u.files);
	free(u.locks);
	free(u.found);
	return ret;
}

void unshown_forget(struct table *table)
{
	uint32_t used = table_used(table);

	for (uint32_t i = 0; i < used; i++) {
		if (table->slots[i].hidden_said)
			table_put64(&table->slots[i].hidden_said, 0);
		if (table->slots[i].hidden)
			table_set_hidden(table, i, 0, false);
	}
}
