/* See past.h. */
#include "keeper/leases/past.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

#include "keeper/kernel/family.h"
#include "keeper/leases/event.h"
#include "keeper/leases/keeper.h"
#include "keeper/log.h"
#include "procfs/procfs.h"

#define CONFIRMS_MAX 16 /* in one look */

static int suspects_on_shown(void *arg, const struct procfs_lock *lock)
{
	const struct past_key key = past_key_of(lock);

	return memcmp(arg, &key, sizeof(key)) == 0;
}

bool suspects_are_shown(pid_t pid, int fd, const struct past_key *key, int *mount_id)
{
	struct past_key wanted = *key;
	struct procfs_text text = {0};
	struct procfs_fdinfo info;
	char name[64];
	bool shown;

	snprintf(name, sizeof(name), "/proc/%d/fdinfo/%d", (int)pid, fd);
	shown = procfs_read(AT_FDCWD, name, &text) == 0 &&
		procfs_fdinfo(text.text, &info, suspects_on_shown, &wanted) == 1;
	procfs_free(&text);
	if (shown && mount_id)
		*mount_id = info.mount_id;
	return shown;
}

void suspects_remove(struct suspect *s)
{
	struct past *p = &s->keeper->past;

	DL_DELETE(p->suspects, s);
	p->suspect_count--;
	s->known->suspect = NULL;
	s->known->sought_ns = 0;
	free(s->name);
	free(s->path);
	free(s->linked);
	free(s);
}

static struct suspect *suspects_add(const struct suspect *found, const char *name, const char *path, const char *linked)
{
	struct past *p = &found->keeper->past;
	struct suspect *s = p->suspect_count < PAST_MAX ? malloc(sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	*s = *found;
	s->since = time(NULL);
	s->name = strdup(name);
	s->path = strdup(path);
	s->linked = linked ? strdup(linked) : NULL;
	s->known->suspect = s;
	DL_APPEND(p->suspects, s);
	p->suspect_count++;
	if (s->name && s->path && (s->linked || !linked))
		return s;
	suspects_remove(s);
	return NULL;
}

void suspects_watch(const struct suspect *found, const struct procfs_lock *lock, const char *name, const char *path,
		    const char *linked)
{
	struct suspect *s = found->known->suspect;

	if (!s)
		s = suspects_add(found, name, path, linked);
	found->known->crowded = !s;
	if (!s)
		return;
	s->plain = found->plain;
	s->pid = found->pid;
	s->fd = found->fd;
	memcpy(s->command, found->command, sizeof(s->command));
	suspects_see(s, lock);
}

bool suspects_is(const struct suspect *s, const char *name, const char *path)
{
	return name && strcmp(s->name, name) == 0 && strcmp(s->path, path) == 0;
}

void suspects_see(struct suspect *s, const struct procfs_lock *lock)
{
	enum past_cover cover = past_cover_of(s->keeper, lock, s->name, s->plain);

	if (cover == PAST_COVERED)
		return;
	s->look = s->keeper->past.look;
	s->mode = lock->mode;
	s->from = lock->from;
	s->to = lock->to;
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
	const struct store_range range = {
		.space = (enum wire_space)s->known->key.space, .mode = s->mode, .from = s->from, .to = s->to};
	char what[LOCK_NAME_BYTES + 2 * PATH_MAX];

	s->reported = true;
	suspects_describe(s, what, sizeof(what));
	if (s->known->before)
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

void suspects_gone(struct suspect *s)
{
	char what[LOCK_NAME_BYTES + 2 * PATH_MAX];

	if (s->reported && !s->known->before) {
		suspects_describe(s, what, sizeof(what));
		log_about(LINE_TAKEN_PAST_OVER, &(struct log_about){.lock = s->name, .pid = s->pid},
			  "%s: the lock that pid %d had taken past dflock has gone, or a lease covers it", what,
			  (int)s->pid);
	}
	suspects_remove(s);
}

/* --- confirming --- */

/* Some suspects at a time: a worker looks whether the lock is there, the store is asked, a worker looks again. */
struct suspects_item {
	struct suspects_batch *batch;
	struct suspect *suspect; /* the loop's, which changes nothing of it meanwhile */
	bool shown, stopped;     /* what the worker saw last */
	bool bare;               /* the store has nothing that covers it */
};

struct suspects_batch {
	uv_work_t work;
	struct keeper *keeper;
	void (*done)(struct keeper *k);
	struct suspects_item items[CONFIRMS_MAX];
	unsigned count, asked;
};

/* A protected link may have been removed, and its inode's number may be another file's now. */
static bool suspects_is_linked(const struct suspect *s)
{
	struct stat st;

	return !s->linked || (stat(s->linked, &st) == 0 && st.st_ino == s->known->key.ino);
}

static void suspects_work(uv_work_t *work)
{
	struct suspects_batch *batch = work->data;

	for (struct suspects_item *item = batch->items; item < batch->items + batch->count; item++) {
		const struct suspect *s = item->suspect;

		item->shown = suspects_are_shown(s->pid, s->fd, &s->known->key, NULL) && suspects_is_linked(s);
		item->stopped = strchr("Tt", family_state(s->pid)); /* 0, of a process that has gone, is found */
	}
}

/* May it stand between its kernel lock and its question? */
static bool suspects_may_ask(const struct suspects_item *item)
{
	const struct suspect *s = item->suspect;
	const struct past *p = &s->keeper->past;

	return item->stopped || p->is_asking(s->keeper, s->pid) ||
	       (s->known->key.locker > 0 && p->is_asking(s->keeper, s->known->key.locker));
}

static struct procfs_lock suspects_lock(const struct suspect *s)
{
	return (struct procfs_lock){.dev = s->known->key.dev,
				    .ino = s->known->key.ino,
				    .space = (enum wire_space)s->known->key.space,
				    .mode = s->mode,
				    .from = s->from,
				    .to = s->to};
}

static void suspects_finish(struct suspects_batch *batch)
{
	batch->done(batch->keeper);
	free(batch);
}

static void suspects_judge(struct suspects_item *item)
{
	struct suspect *s = item->suspect;
	const struct procfs_lock lock = suspects_lock(s);

	if (item->bare && item->shown && !suspects_may_ask(item) &&
	    past_cover_of(s->keeper, &lock, s->name, s->plain) == PAST_NAKED)
		s->sure++;
	else
		s->sure = 0;
	if (s->sure >= PAST_SURE && s->known->looks >= PAST_LOOKS)
		suspects_report(s);
	/* The descriptor was closed; another one, or another process, may have the lock. */
	if (!item->shown)
		s->known->sought_ns = 0;
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
	const struct member *m = member_of_name(batch->keeper, item->suspect->name);

	(void)aside;
	/* A store that has lost its memory may not have been told of all leases again. */
	if (status == STORE_OK && !store_in_grace(m->store)) {
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
		store_entries(member_of_name(batch->keeper, batch->items[i].suspect->name)->store,
			      batch->items[i].suspect->name, NULL, on_suspects_entries, &batch->items[i]);
	}
	if (!batch->asked)
		on_suspects_seen_again(work, 0);
}

void suspects_confirm(struct keeper *k, void (*done)(struct keeper *k))
{
	struct suspects_batch *batch = calloc(1, sizeof(*batch));
	struct suspect *s, *next, *last = k->past.suspects ? k->past.suspects->prev : NULL;

	for (s = k->past.suspects; batch && s && batch->count < CONFIRMS_MAX; s = s == last ? NULL : next) {
		next = s->next;
		if (s->reported)
			continue;
		batch->items[batch->count++] = (struct suspects_item){.batch = batch, .suspect = s};
		/* The others come first the next time. */
		DL_DELETE(k->past.suspects, s);
		DL_APPEND(k->past.suspects, s);
	}
	if (!batch || !batch->count) {
		free(batch);
		done(k);
		return;
	}
	batch->keeper = k;
	batch->done = done;
	suspects_look(batch, on_suspects_seen);
}

void suspects_forget(struct keeper *k)
{
	struct suspect *s, *next;

	DL_FOREACH_SAFE (k->past.suspects, s, next)
		if (s->look != k->past.look)
			suspects_gone(s);
}
