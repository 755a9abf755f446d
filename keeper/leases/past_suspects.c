/* See past_suspects.h. */
#include "keeper/leases/past_suspects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

#include "keeper/leases/event.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/past_cover.h"
#include "keeper/log.h"
#include "procfs/procfs.h"

#define CONFIRMS_MAX 16 /* in one look */
#define PATIENCE     10 /* looks: then a lock is reported without the command of its process */

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
	free(s->linked);
	free(s);
}

static struct suspect *suspects_add(struct keeper *k, const struct openers_lock *lock, const char *name,
				    const char *path, const char *linked)
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
	s->linked = linked ? strdup(linked) : NULL;
	DL_APPEND(k->past.suspects, s);
	k->past.suspect_count++;
	if (s->name && s->path && (s->linked || !linked))
		return s;
	suspects_remove(k, s);
	return NULL;
}

void suspects_found(struct keeper *k, const struct openers_lock *lock, const char *name, const char *path,
		    const char *linked, bool sure)
{
	struct suspect *s = suspects_find(k, lock);

	if (!s && sure) {
		s = suspects_add(k, lock, name, path, linked);
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
	if (s->linked)
		snprintf(out, size, "%s (%s, a link of %s that no rule names)", s->name, s->path, s->linked);
	else if (strcmp(s->name, s->path) == 0)
		snprintf(out, size, "%s", s->path);
	else
		snprintf(out, size, "%s (%s)", s->name, s->path);
}

static void suspects_report(struct suspect *s)
{
	const struct store_range range = {.space = s->space, .mode = s->mode, .from = s->from, .to = s->to};
	char what[LOCK_NAME_BYTES + 2 * PATH_MAX];

	s->reported = true;
	suspects_describe(s, what, sizeof(what));
	if (s->before)
		log_about(
			LINE_TAKEN_BEFORE, &(struct log_about){.lock = s->name, .pid = s->pid},
			"%s: locked by pid %d (%s) since before the keeper or the rule came; no lease covers this lock",
			what, (int)s->pid, s->command);
	else {
		s->keeper->past.reported++;
		event_raise(
			s->keeper,
			&(struct event){.kind = EVENT_TAKEN_PAST,
					.name = s->name,
					.path = s->path,
					.range = &range,
					.pids = &s->pid,
					.pid_count = 1,
					.command = s->command},
			"PAST DFLOCK: %s is locked by pid %d (%s), and no lease covers this lock: another host may have "
			"the lock, too. Start the program with `dflock run`; `dflock doctor PROGRAM` says why dflock does "
			"not reach it",
			what, (int)s->pid, s->command);
	}
}

static void suspects_gone(struct keeper *k, struct suspect *s)
{
	char what[LOCK_NAME_BYTES + 2 * PATH_MAX];

	if (s->reported && !s->before) {
		suspects_describe(s, what, sizeof(what));
		log_about(LINE_TAKEN_PAST_OVER, &(struct log_about){.lock = s->name, .pid = s->pid},
			  "%s: the lock that pid %d had taken past dflock has gone, or a lease covers it", what,
			  (int)s->pid);
	}
	suspects_remove(k, s);
}

/* --- confirming --- */

/* Some suspects at a time: a worker looks whether the lock is there, the store is asked, a worker looks again. */
struct suspects_item {
	struct suspects_batch *batch;
	struct suspect *suspect;
	struct opener_key key; /* for the worker, with the next three: the suspect is the loop's */
	enum wire_space space;
	pid_t pid;
	int fd;
	bool shown, stopped; /* what the worker saw last */
	bool bare;           /* the store has nothing that covers it */
};

struct suspects_batch {
	uv_work_t work;
	struct keeper *keeper;
	void (*confirmed)(struct keeper *k);
	struct suspects_item items[CONFIRMS_MAX];
	unsigned count, asked;
};

static bool suspects_is_stopped(pid_t pid)
{
	struct procfs_stat stat;
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
	return !procfs_stat_read(AT_FDCWD, name, &stat) || stat.state == 'T' || stat.state == 't';
}

/* A protected link may have been removed, and its inode's number may be another file's now. */
static bool suspects_is_linked(const struct suspect *s)
{
	struct stat st;

	return !s->linked || (stat(s->linked, &st) == 0 && st.st_ino == s->key.ino);
}

/* In a worker: fdinfo is as long as its process wants. */
static void suspects_work(uv_work_t *work)
{
	struct suspects_batch *batch = work->data;

	for (struct suspects_item *item = batch->items; item < batch->items + batch->count; item++) {
		item->shown = openers_shown(item->pid, item->fd, &item->key, item->space) &&
			      suspects_is_linked(item->suspect);
		item->stopped = suspects_is_stopped(item->pid);
	}
}

/* May it stand between its kernel lock and its question? */
static bool suspects_may_ask(const struct suspects_item *item)
{
	const struct keeper *k = item->batch->keeper;

	return item->stopped || k->past.is_asking(k, item->pid) ||
	       (item->key.locker > 0 && k->past.is_asking(k, (pid_t)item->key.locker));
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

static void suspects_finish(struct suspects_batch *batch)
{
	struct keeper *k = batch->keeper;

	k->past.confirming = false;
	batch->confirmed(k);
	free(batch);
}

static void suspects_judge(struct suspects_item *item)
{
	struct suspect *s = item->suspect;
	struct opener *opener;

	if (item->bare && item->shown && !suspects_may_ask(item) && suspects_is_naked(s))
		s->sure++;
	else
		s->sure = 0;
	if (s->sure >= PAST_SURE && s->looks >= PAST_LOOKS)
		suspects_report(s);
	/* The descriptor was closed; another one, or another process, may have the lock. */
	opener = item->shown ? NULL : openers_find(&s->keeper->past.openers, &s->key);
	if (opener)
		openers_seek_again(opener);
}

static void on_suspects_seen_again(uv_work_t *work, int status)
{
	struct suspects_batch *batch = work->data;

	(void)status;
	for (unsigned i = 0; batch->keeper->past.on && i < batch->count; i++)
		suspects_judge(&batch->items[i]);
	suspects_finish(batch);
}

static void suspects_look(struct suspects_batch *batch, uv_after_work_cb then)
{
	batch->work.data = batch;
	if (!batch->keeper->past.on || uv_queue_work(batch->keeper->loop, &batch->work, suspects_work, then) != 0)
		suspects_finish(batch);
}

static void on_suspects_entries(void *arg, enum store_status status, const struct store_entry *entries, size_t count,
				const struct store_aside *aside)
{
	struct suspects_item *item = arg;
	struct suspects_batch *batch = item->batch;
	const struct keeper *k = batch->keeper;

	(void)aside;
	/* A store that has lost its memory may not have been told of all leases again. */
	if (status == STORE_OK && !store_in_grace(k->store)) {
		const struct procfs_lock lock = suspects_lock(item->suspect);

		/* mutant: past-store */
		item->bare = !past_entries_cover(entries, count, k->host, &lock, item->suspect->plain);
	}
	if (!--batch->asked)
		suspects_look(batch, on_suspects_seen_again);
}

static void on_suspects_seen(uv_work_t *work, int status)
{
	struct suspects_batch *batch = work->data;

	(void)status;
	for (unsigned i = 0; batch->keeper->past.on && i < batch->count; i++) {
		if (!batch->items[i].shown)
			continue;
		batch->asked++;
		store_entries(batch->keeper->store, batch->items[i].suspect->name, NULL, on_suspects_entries,
			      &batch->items[i]);
	}
	if (!batch->asked)
		on_suspects_seen_again(work, 0);
}

/* The command comes with the next look but one; without it a report is of little use. */
static bool suspects_is_due(const struct suspect *s)
{
	return !s->reported && s->looks > PAST_LOOKS - PAST_SURE && (*s->command || s->looks > PATIENCE);
}

static void suspects_confirm(struct keeper *k, void (*confirmed)(struct keeper *k))
{
	struct suspects_batch *batch = calloc(1, sizeof(*batch));
	struct suspect *s, *next, *last = k->past.suspects ? k->past.suspects->prev : NULL;

	for (s = k->past.suspects; batch && s && batch->count < CONFIRMS_MAX; s = s == last ? NULL : next) {
		next = s->next;
		if (!suspects_is_due(s))
			continue;
		batch->items[batch->count++] = (struct suspects_item){
			.batch = batch, .suspect = s, .key = s->key, .space = s->space, .pid = s->pid, .fd = s->fd};
		/* The others come first the next time. */
		DL_DELETE(k->past.suspects, s);
		DL_APPEND(k->past.suspects, s);
	}
	if (!batch || !batch->count) {
		free(batch);
		return;
	}
	batch->keeper = k;
	batch->confirmed = confirmed;
	k->past.confirming = true;
	suspects_look(batch, on_suspects_seen);
}

void suspects_judged(struct keeper *k, void (*confirmed)(struct keeper *k))
{
	struct suspect *s, *next;

	DL_FOREACH_SAFE (k->past.suspects, s, next)
		if (s->look != k->past.openers.look)
			suspects_gone(k, s);
	suspects_confirm(k, confirmed);
}

void suspects_free(struct keeper *k)
{
	while (k->past.suspects)
		suspects_remove(k, k->past.suspects);
}
