/* See unseen.h. */
#include "keeper/leases/unseen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/kernel/hidden.h"
#include "keeper/kernel/mappers.h"
#include "keeper/kernel/holders.h"
#include "keeper/kernel/sight.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"

#define SOON_MS  100
#define LEAST_MS 1000 /* between two looks */
#define SHARE    20   /* after each look, a pause of so many times what the look took */
#define MOST     4096 /* leases in one look */

/* --- the search --- */

struct unseen_search {
	struct claims *claims;
	pid_t keeper;
	bool *shown; /* of each claim: no other process can have a lock on it */
	size_t shown_count;
	struct hidden hidden;
	struct holders_file *files; /* of locks whose holder is not known */
	size_t *locks;              /* ditto: which */
	bool *mapped;               /* ditto: a process has the file mapped, or has been told of */
	size_t count;
};

static int on_holder_seen(void *arg, const struct holder *h)
{
	(void)arg;
	(void)h;
	return 0;
}

static int on_seen(void *arg, const struct procfs_lock *lock)
{
	struct unseen_search *l = arg;
	size_t file = FILE_NONE;

	while (lock->mode == WIRE_EXCLUSIVE &&
	       (file = file_index_find(&l->hidden.index, lock->dev, lock->ino, file)) != FILE_NONE) {
		const struct claim *claim;
		size_t next = SIZE_MAX;

		while (file_index_is_plain(&l->claims->files[file]) &&
		       (claim = claims_next(l->claims, file, lock->space, lock->from, lock->to, &next))) {
			bool *shown = &l->shown[claims_index(l->claims, claim)];

			if (*shown || claim->from < lock->from || claim->to > lock->to)
				continue;
			*shown = true;
			l->shown_count++;
		}
	}
	return hidden_seen(&l->hidden, lock);
}

static int search(struct unseen_search *l)
{
	return holders_search(&(struct holders_search){.files = l->claims->files,
						       .count = l->claims->file_count,
						       .ignore_pid = l->keeper,
						       .how = HOLDERS_AT_ONCE,
						       .cb = on_holder_seen,
						       .seen = on_seen,
						       .arg = l});
}

static int on_mapper(void *arg, size_t file, pid_t pid)
{
	struct unseen_search *l = arg;

	l->mapped[file] = l->mapped[file] || pid != l->keeper;
	return 0;
}

/* Tells of one lock, for each claim that it is under. */
static int unseen_tell(struct unseen_search *l, const struct procfs_lock *lock, pid_t pid, bool beyond, unseen_cb *cb,
		       void *arg)
{
	size_t file = FILE_NONE;
	int ret = 0;

	while (!ret && (file = file_index_find(&l->hidden.index, lock->dev, lock->ino, file)) != FILE_NONE) {
		const struct claim *claim;
		size_t next = SIZE_MAX;

		while (!ret && (claim = claims_next(l->claims, file, lock->space, lock->from, lock->to, &next)))
			ret = cb(arg, claim, lock, pid, beyond);
	}
	return ret;
}

static int tell_all(struct unseen_search *l, unseen_cb *cb, void *arg)
{
	size_t passed_over;
	int ret = 0;

	for (size_t i = 0; !ret && i < hidden_count(&l->hidden); i++) {
		const struct procfs_lock *lock = hidden_lock(&l->hidden, i);
		enum sight sight = sight_of(lock->locker);

		if (lock->locker == l->keeper)
			continue;
		if (sight != SIGHT_GONE)
			ret = unseen_tell(l, lock, lock->locker, sight == SIGHT_BEYOND, cb, arg);
		if (sight == SIGHT_SIGNAL || sight == SIGHT_BEYOND)
			continue;
		l->mapped[l->count] = sight == SIGHT_OPEN;
		l->files[l->count] = (struct holders_file){.dev = lock->dev, .ino = lock->ino};
		l->locks[l->count++] = i;
	}
	if (!ret && l->count)
		ret = mappers_find(l->files, l->count, on_mapper, l, &passed_over);
	if (ret == -EAGAIN)
		ret = 0;
	for (size_t i = 0; !ret && i < l->count; i++)
		if (!l->mapped[i])
			ret = unseen_tell(l, hidden_lock(&l->hidden, l->locks[i]), 0, true, cb, arg);
	return ret;
}

int unseen_find(struct claims *claims, pid_t keeper, unseen_cb *cb, void *arg)
{
	struct unseen_search l = {.claims = claims, .keeper = keeper};
	int ret = hidden_begin(&l.hidden, claims->files, claims->file_count);

	l.shown = calloc(claims_count(claims) + 1, sizeof(*l.shown));
	if (!l.shown)
		ret = -ENOMEM;
	if (!ret)
		ret = search(&l);
	/* /proc/locks is not asked without need (hidden.h). */
	if (!ret && l.shown_count < claims_count(claims)) {
		ret = hidden_end(&l.hidden);
		if (!ret && hidden_count(&l.hidden))
			ret = search(&l);
		if (!ret && hidden_count(&l.hidden))
			ret = hidden_end(&l.hidden);
		l.files = calloc(hidden_count(&l.hidden) + 1, sizeof(*l.files));
		l.locks = calloc(hidden_count(&l.hidden) + 1, sizeof(*l.locks));
		l.mapped = calloc(hidden_count(&l.hidden) + 1, sizeof(*l.mapped));
		if (!ret)
			ret = l.files && l.locks && l.mapped ? tell_all(&l, cb, arg) : -ENOMEM;
	}
	hidden_free(&l.hidden);
	free(l.shown);
	free(l.files);
	free(l.locks);
	free(l.mapped);
	return ret;
}

/* --- the log --- */

struct row {
	char token[STORE_TOKEN_BYTES];
	bool found;
	pid_t pid;
};

struct unseen_job {
	uv_work_t work;
	struct keeper *keeper;
	struct claims claims; /* tag: the row */
	struct row *rows;
	size_t count;
	pid_t self;
	int64_t begun_ns;
	int error;
};

static int on_unseen_lock(void *arg, const struct claim *claim, const struct procfs_lock *lock, pid_t pid, bool beyond)
{
	struct unseen_job *job = arg;
	struct row *row = &job->rows[claim->tag];

	(void)lock;
	if (!beyond || row->found)
		return 0;
	row->found = true;
	row->pid = pid;
	return 0;
}

static void unseen_work(uv_work_t *req)
{
	struct unseen_job *job = req->data;

	job->error = claims_build(&job->claims);
	if (!job->error)
		job->error = unseen_find(&job->claims, job->self, on_unseen_lock, job);
}

static void say(struct lease *lease, pid_t pid)
{
	const struct file *file = lease->lock->file;
	char who[64] = "a process that the keeper cannot find or may not look into";

	if (lease->unseen == UNSEEN_SAID)
		return;
	lease->unseen = UNSEEN_SAID;
	if (pid)
		snprintf(who, sizeof(who), "pid %d, which the keeper may not look into", (int)pid);
	log_about(LINE_NOT_STOPPABLE, &(struct log_about){.lock = file->name, .pid = pid},
		  "%s (%s): its lock is held by %s: it cannot be stopped if the store does not answer, and another "
		  "host may then get the lock; see \"unstoppable\" in dflock.conf(5)",
		  file->name, file->path, who);
}

static void unseen_look_in(struct keeper *k, int64_t ms);

static void unseen_looked(uv_work_t *req, int status)
{
	struct unseen_job *job = req->data;
	struct keeper *k = job->keeper;
	int64_t took = clock_now_ns() - job->begun_ns, pause = SHARE * took / NS_PER_MS;

	(void)status;
	for (size_t i = 0; !job->error && i < job->count; i++) {
		struct lease *lease = job->rows[i].found ? lease_find(k, job->rows[i].token) : NULL;

		if (lease)
			say(lease, job->rows[i].pid);
	}
	k->unseen.looking = false;
	k->unseen.not_before_ns = clock_now_ns() + (pause > LEAST_MS ? pause : LEAST_MS) * NS_PER_MS;
	if (k->unseen.due_count && !k->leaving)
		unseen_look_in(k, SOON_MS);
	claims_free(&job->claims);
	free(job->rows);
	free(job);
}

static void unseen_add(struct unseen_job *job, struct lease *lease)
{
	struct holders_file file = file_searched(lease->lock->file);

	if (claims_add(&job->claims, &file, lease->range.space, lease->range.from, lease->range.to, job->count) < 0)
		return;
	memcpy(job->rows[job->count++].token, lease->token, sizeof(lease->token));
}

static void unseen_look(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct unseen_job *job = calloc(1, sizeof(*job));
	struct lease *lease, *next;

	if (!job || !(job->rows = calloc(MOST, sizeof(*job->rows)))) {
		free(job);
		return;
	}
	*job = (struct unseen_job){.keeper = k, .rows = job->rows, .self = getpid(), .begun_ns = clock_now_ns()};
	job->work.data = job;
	k->unseen.due_count = 0;
	HASH_ITER (hh, k->leases, lease, next) {
		if (lease->unseen != UNSEEN_DUE)
			continue;
		if (job->count == MOST) {
			k->unseen.due_count++;
			continue;
		}
		lease->unseen = UNSEEN_LEFT_ALONE;
		unseen_add(job, lease);
	}
	if (job->count && uv_queue_work(k->loop, &job->work, unseen_work, unseen_looked) == 0) {
		k->unseen.looking = true;
		return;
	}
	claims_free(&job->claims);
	free(job->rows);
	free(job);
}

static void unseen_look_in(struct keeper *k, int64_t ms)
{
	int64_t left = (k->unseen.not_before_ns - clock_now_ns()) / NS_PER_MS + 1;

	uv_timer_start(&k->unseen.timer, unseen_look, (uint64_t)(left > ms ? left : ms), 0);
}

void unseen_due(struct lease *lease)
{
	struct keeper *k = lease->lock->file->keeper;

	if (lease->unseen != UNSEEN_LEFT_ALONE || k->leaving)
		return;
	lease->unseen = UNSEEN_DUE;
	k->unseen.due_count++;
	if (!k->unseen.looking && !uv_is_active((uv_handle_t *)&k->unseen.timer))
		unseen_look_in(k, SOON_MS);
}

void unseen_start(struct keeper *k)
{
	uv_timer_init(k->loop, &k->unseen.timer);
	k->unseen.timer.data = k;
}

void unseen_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->unseen.timer, NULL);
}
