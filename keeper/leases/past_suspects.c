/* See past_suspects.h. */
#include "keeper/leases/past_suspects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/past_cover.h"
#include "keeper/log.h"
#include "procfs/procfs_process.h"

#define CONFIRMS_MAX 16 /* in one look: each reads two fdinfos in the loop */

static bool suspects_is_key(const struct opener_key *a, const struct opener_key *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->locker == b->locker;
}

static struct suspect *suspects_find(struct keeper *k, const struct openers_lock *lock)
{
	struct suspect *s;

	DL_FOREACH (k->past.suspects, s)
		if (s->space == lock->lock.space && suspects_is_key(&s->key, &lock->opener->key))
			return s;
	return NULL;
}

static void suspects_remove(struct keeper *k, struct suspect *s)
{
	DL_DELETE(k->past.suspects, s);
	k->past.suspect_count--;
	free(s->name);
	free(s->path);
	free(s);
}

static struct suspect *suspects_add(struct keeper *k, const struct openers_lock *lock, const char *name,
				    const char *path)
{
	struct suspect *s = k->past.suspect_count < PAST_MAX ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	s->keeper = k;
	s->key = lock->opener->key;
	s->space = lock->lock.space;
	s->since = time(NULL);
	s->name = strdup(name);
	s->path = strdup(path);
	DL_APPEND(k->past.suspects, s);
	k->past.suspect_count++;
	if (s->name && s->path)
		return s;
	suspects_remove(k, s);
	return NULL;
}

void suspects_found(struct keeper *k, const struct openers_lock *lock, const char *name, const char *path, bool sure)
{
	struct suspect *s = suspects_find(k, lock);

	if (!s && sure) {
		s = suspects_add(k, lock, name, path);
		k->past.over += !s;
	}
	if (!s)
		return;
	if (sure && s->look != k->past.openers.look) {
		s->looks++;
		s->mode = lock->lock.mode;
		s->from = lock->lock.from;
		s->to = lock->lock.to;
	}
	s->look = k->past.openers.look;
	s->before = lock->opener->before;
	s->plain = lock->opener->plain;
	s->pid = lock->opener->pid;
	s->fd = lock->opener->fd;
}

/* --- reports --- */

static void suspects_describe(const struct suspect *s, char *out, size_t size)
{
	if (strcmp(s->name, s->path) == 0)
		snprintf(out, size, "%s", s->path);
	else
		snprintf(out, size, "%s (%s)", s->name, s->path);
}

static void suspects_report(struct suspect *s)
{
	char what[LOCK_NAME_BYTES + PATH_MAX];

	s->reported = true;
	suspects_describe(s, what, sizeof(what));
	if (s->before)
		log_info(
			"%s: locked by pid %d (%s) since before the keeper or the rule came; no lease covers this lock",
			what, (int)s->pid, s->command);
	else
		log_error(
			"PAST DFLOCK: %s is locked by pid %d (%s), and no lease covers this lock: another host may have "
			"the lock, too. Start the program with `dflock run`; `dflock doctor PROGRAM` says why dflock does "
			"not reach it",
			what, (int)s->pid, s->command);
}

static void suspects_gone(struct keeper *k, struct suspect *s)
{
	char what[LOCK_NAME_BYTES + PATH_MAX];

	if (s->reported && !s->before) {
		suspects_describe(s, what, sizeof(what));
		log_info("%s: the lock that pid %d had taken past dflock has gone, or a lease covers it", what,
			 (int)s->pid);
	}
	suspects_remove(k, s);
}

/* --- confirming --- */

static bool suspects_is_stopped(pid_t pid)
{
	struct procfs_stat stat;
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
	return !procfs_stat_read(AT_FDCWD, name, &stat) || stat.state == 'T' || stat.state == 't';
}

/* May it stand between its kernel lock and its question? */
static bool suspects_may_ask(const struct suspect *s)
{
	const struct keeper *k = s->keeper;

	return k->past.is_asking(k, s->pid) || (s->key.locker > 0 && k->past.is_asking(k, (pid_t)s->key.locker)) ||
	       suspects_is_stopped(s->pid);
}

static struct procfs_lock suspects_lock(const struct suspect *s)
{
	return (struct procfs_lock){
		.dev = s->key.dev, .ino = s->key.ino, .space = s->space, .mode = s->mode, .from = s->from, .to = s->to};
}

static bool suspects_is_naked(const struct suspect *s)
{
	struct opener opener = {.key = s->key, .plain = s->plain};
	const struct openers_lock lock = {.opener = &opener, .lock = suspects_lock(s)};

	return past_cover_of(s->keeper, &lock, s->name) == PAST_NAKED;
}

static bool suspects_is_shown(const struct suspect *s)
{
	return openers_shown(s->pid, s->fd, &s->key, s->space);
}

struct suspects_question {
	struct suspect *suspect;
	void (*confirmed)(struct keeper *k);
};

static void suspects_answered(struct suspect *s, enum store_status status, const struct store_entry *entries,
			      size_t count)
{
	const struct keeper *k = s->keeper;
	const struct procfs_lock lock = suspects_lock(s);

	/* A store that has lost its memory may not have been told of all leases again. */
	if (status == STORE_OK && !store_in_grace(k->store) && suspects_is_shown(s) && suspects_is_naked(s) &&
	    !suspects_may_ask(s) &&
	    !past_entries_cover(entries, count, k->host, &lock, s->plain)) /* mutant: past-store */
		s->sure++;
	else
		s->sure = 0;
	if (s->sure >= PAST_SURE && s->looks >= PAST_LOOKS && !s->reported)
		suspects_report(s);
}

static void on_suspect_entries(void *arg, enum store_status status, const struct store_entry *entries, size_t count)
{
	struct suspects_question *q = arg;
	struct suspect *s = q->suspect;
	struct keeper *k = s->keeper;

	k->past.asking--;
	if (!k->leaving)
		suspects_answered(s, status, entries, count);
	q->confirmed(k);
	free(q);
}

static void suspects_confirm(struct suspect *s, void (*confirmed)(struct keeper *k))
{
	struct keeper *k = s->keeper;
	struct suspects_question *q;

	if (!suspects_is_shown(s)) {
		/* The descriptor was closed; another one, or another process, may have the lock. */
		struct opener *opener = openers_find(&k->past.openers, &s->key);

		if (opener)
			openers_seek_again(opener);
		s->sure = 0;
		return;
	}
	q = calloc(1, sizeof(*q));
	if (!q)
		return;
	*q = (struct suspects_question){.suspect = s, .confirmed = confirmed};
	k->past.asking++;
	store_entries(k->store, s->name, on_suspect_entries, q);
}

void suspects_judged(struct keeper *k, void (*confirmed)(struct keeper *k))
{
	struct suspect *s, *next;
	unsigned confirms = 0;

	DL_FOREACH_SAFE (k->past.suspects, s, next)
		if (s->look != k->past.openers.look)
			suspects_gone(k, s);
	DL_FOREACH (k->past.suspects, s)
		if (!s->reported && s->looks >= PAST_LOOKS - PAST_SURE + 1 && confirms++ < CONFIRMS_MAX)
			suspects_confirm(s, confirmed);
}

void suspects_free(struct keeper *k)
{
	while (k->past.suspects)
		suspects_remove(k, k->past.suspects);
}
