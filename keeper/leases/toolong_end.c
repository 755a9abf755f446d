/*
 * See toolong_end.h. A worker finds out which processes those are and writes their last lines; the loop looks once more and
 * signals (toolong.h has the argument).
 *
 * A process is named by its number and its start. The holders and what they started get SIGTERM together; what is left of
 * these gets SIGKILL when freeze_margin_ms is over, also if it has let go of the lock: a job whose flock(1) has ended must not
 * work on beside the next one.
 */
#include "keeper/leases/toolong_end.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/array.h"
#include "keeper/clock.h"
#include "keeper/guard/lastwords.h"
#include "keeper/kernel/family.h"
#include "keeper/kernel/openers.h"
#include "keeper/leases/event.h"
#include "keeper/leases/keeper.h"
#include "keeper/log.h"

#define TARGETS_MAX 1024
#define LINE_BYTES  900
#define PIDS_MAX    64 /* that an event names */

enum toolong_step { TOOLONG_FINDING, TOOLONG_ASKED, TOOLONG_KILLED };

/* A holder, on one descriptor. */
struct toolong_holder {
	pid_t pid;
	int fd;
	pid_t locker;
};

struct toolong_target {
	pid_t pid;
	uint64_t started;
	uid_t owner;  /* who may signal it: of /proc/PID */
	bool refused; /* it may not be signalled */
};

struct toolong_end {
	uv_work_t work;
	struct keeper *keeper;
	struct file_key key; /* with space and pid: the grant */
	struct identity id;  /* the kernel's number */
	enum wire_space space;
	pid_t pid;
	uid_t uid;     /* of the process that took the lock */
	int64_t at_ns; /* the grant's: it is the same one */
	int64_t held_ms;
	int64_t due_ns; /* running clock: of the next step */
	enum toolong_step step;
	bool refused; /* some may not be signalled */
	UT_array holders, targets;
	char what[LOCK_NAME_BYTES + PATH_MAX]; /* the lock, for people */
	char line[LINE_BYTES];                 /* for their standard errors */
	struct toolong_end *prev, *next;
};

/* Has one of the holders the lock? Any thread. */
static bool toolong_is_shown(const struct toolong_end *e)
{
	for (size_t i = 0; i < utarray_len(&e->holders); i++) {
		const struct toolong_holder *holder = array_at(&e->holders, i);
		const struct opener_key key = {.dev = e->id.dev, .ino = e->id.ino, .locker = holder->locker};

		/* mutant: toolong-shown */
		if (openers_shown(holder->pid, holder->fd, &key, e->space))
			return true;
	}
	return false;
}

/* --- in a worker --- */

static int toolong_add_target(struct toolong_end *e, pid_t pid)
{
	struct toolong_target target = {.pid = pid};
	struct procfs_stat stat_line;
	char name[32];
	struct stat st;

	snprintf(name, sizeof(name), "/proc/%d", (int)pid);
	if (!family_stat(pid, &stat_line) || pid == getpid() || utarray_len(&e->targets) >= TARGETS_MAX ||
	    stat(name, &st) < 0)
		return 0;
	target.started = stat_line.started;
	target.owner = st.st_uid;
	return array_push(&e->targets, &target, sizeof(target));
}

/* The keeper's descriptors must not live on in the processes that write. lastwords.c says what such a child may call. */
static void toolong_speak(const struct toolong_end *e)
{
	struct lastword words[LASTWORDS_MAX];
	size_t count = 0;
	pid_t child;

	for (; count < utarray_len(&e->targets) && count < LASTWORDS_MAX; count++) {
		const struct toolong_target *target = array_at(&e->targets, count);

		words[count] = (struct lastword){.pid = target->pid, .line = e->line};
	}
	child = _Fork();
	if (child == 0) {
		if (syscall(SYS_close_range, 3, ~0u, 0) == 0)
			lastwords(words, count, LASTWORDS_MS, true);
		_exit(0);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

static void toolong_find(uv_work_t *work)
{
	struct toolong_end *e = work->data;
	struct family family = {0};
	const struct toolong_holder *h;
	size_t i;

	for (i = 0; i < utarray_len(&e->holders); i++) {
		h = array_at(&e->holders, i);
		if (h->pid > 1)
			(void)!family_add(&family, h->pid);
	}
	/* A descendant that is missing for want of memory is found the next time. */
	(void)!family_add_descendants(&family, getppid());
	for (i = 0; i < family_count(&family); i++)
		(void)!toolong_add_target(e, family_at(&family, i));
	family_free(&family);
	if (toolong_is_shown(e))
		toolong_speak(e);
}

/* --- signals --- */

static bool toolong_is_gone(const struct toolong_target *target)
{
	struct procfs_stat stat;

	return !family_stat(target->pid, &stat) || stat.started != target->started || stat.state == 'Z' ||
	       stat.state == 'X';
}

/* 0; -ESRCH: it is gone; -EPERM: it is another user's. */
static int toolong_signal(const struct toolong_end *e, const struct toolong_target *target, int number)
{
	int fd = (int)syscall(SYS_pidfd_open, target->pid, 0), ret = 0;

	if (fd < 0)
		return -errno;
	if (toolong_is_gone(target))
		ret = -ESRCH;
	else if (geteuid() == 0 && e->uid != 0 && e->uid != target->owner)
		ret = -EPERM;
	else if (syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static void toolong_tell_refused(const struct toolong_end *e, pid_t pid, int error)
{
	log_about(LINE_NOT_ENDED, &(struct log_about){.subject = e->what, .pid = pid},
		  "%s: held too long (kill_after_ms), but pid %d is not ended: %s", e->what, (int)pid,
		  error == -EPERM
			  ? "it is another user's than the process that took the lock, or the keeper may not signal "
			    "it; end it yourself"
			  : strerror(-error));
}

static void toolong_tell_signalled(const struct toolong_end *e, size_t count, bool kill)
{
	const struct file *file = file_find(e->keeper, e->key.dev, e->key.ino);
	pid_t pids[PIDS_MAX];
	size_t listed = 0;

	if (!count)
		return;
	*(kill ? &e->keeper->toolong.killed : &e->keeper->toolong.terminated) += count;
	for (size_t i = 0; i < utarray_len(&e->targets) && listed < PIDS_MAX; i++) {
		const struct toolong_target *target = array_at(&e->targets, i);

		if (!target->refused)
			pids[listed++] = target->pid;
	}
	event_raise(
		e->keeper,
		&(struct event){.kind = EVENT_HOLDERS_KILLED,
				.name = file ? file->name : NULL,
				.path = file ? file->path : NULL,
				.pids = pids,
				.pid_count = listed,
				.processes = count,
				.reason = "held for longer than kill_after_ms",
				.for_ms = e->held_ms},
		"HELD TOO LONG: %s, held for %lld ms, longer than kill_after_ms: %zu processes that have it, or were started by "
		"one that has, get %s (pid %d, ...)",
		e->what, (long long)e->held_ms, count, kill ? "SIGKILL" : "SIGTERM", (int)pids[0]);
}

/* To how many it was sent. A process that may not be signalled is left out from then on, and the log names the first. */
static size_t toolong_signal_all(struct toolong_end *e, int number)
{
	const struct toolong_target *first = NULL;
	size_t count = 0;
	int error = 0;

	for (size_t i = 0; i < utarray_len(&e->targets); i++) {
		struct toolong_target *target = array_at(&e->targets, i);
		int ret = target->refused ? -ESRCH : toolong_signal(e, target, number);

		count += ret == 0;
		if (ret == 0 || ret == -ESRCH)
			continue;
		target->refused = true;
		first = first ? first : target;
		error = first == target ? ret : error;
	}
	if (first)
		toolong_tell_refused(e, first->pid, error);
	e->refused = e->refused || first;
	return count;
}

/* --- step by step --- */

static struct grant *toolong_end_holding(const struct toolong_end *e)
{
	struct file *file = file_find(e->keeper, e->key.dev, e->key.ino);

	return file ? grants_find(&file->locks[e->space], e->pid) : NULL;
}

static void toolong_end_free(struct toolong_end *e)
{
	utarray_done(&e->holders);
	utarray_done(&e->targets);
	free(e);
}

/* state: of the grant from now on. */
static void toolong_end_finish(struct toolong_end *e, enum grant_state state)
{
	struct grant *h = toolong_end_holding(e);

	if (h && h->state == GRANT_ENDING && h->at_ns == e->at_ns)
		h->state = state;
	else if (h && h->state == GRANT_ENDING) /* granted again */
		grant_begin(h);
	DL_DELETE(e->keeper->toolong.ends, e);
	toolong_end_free(e);
}

/* Steps 1 and 2 of toolong.h. */
static bool toolong_is_certain(const struct toolong_end *e)
{
	const struct file *file = file_find(e->keeper, e->key.dev, e->key.ino);
	const struct grant *h = toolong_end_holding(e);

	/* mutant: toolong-young */
	if (!h || h->at_ns != e->at_ns || !file->kill_after_ms || grant_age_ms(e->keeper, h) < file->kill_after_ms)
		return false;
	return toolong_is_shown(e);
}

static void on_toolong_found(uv_work_t *work, int status)
{
	struct toolong_end *e = work->data;
	struct keeper *k = e->keeper;
	size_t count;

	(void)status;
	if (!k->toolong.on || k->leaving || k->grants.paused || !toolong_is_certain(e)) {
		toolong_end_finish(e, GRANT_WARNED);
		return;
	}
	e->held_ms = grant_age_ms(k, toolong_end_holding(e));
	count = toolong_signal_all(e, SIGTERM);
	if (!count) {
		toolong_end_finish(e, e->refused ? GRANT_STUCK : GRANT_WARNED);
		return;
	}
	toolong_end_holding(e)->tries++;
	toolong_tell_signalled(e, count, false);
	e->step = TOOLONG_ASKED;
	e->due_ns = grants_now_ns(k) + k->config->lease.freeze_margin_ms * NS_PER_MS;
}

static const struct toolong_target *toolong_left(const struct toolong_end *e)
{
	for (size_t i = 0; i < utarray_len(&e->targets); i++) {
		const struct toolong_target *target = array_at(&e->targets, i);

		if (!target->refused && !toolong_is_gone(target))
			return target;
	}
	return NULL;
}

static void toolong_end_step(struct toolong_end *e)
{
	const struct toolong_target *left = toolong_left(e);
	int64_t now_ns = grants_now_ns(e->keeper);
	struct procfs_stat stat;

	if (!left) {
		toolong_end_finish(e, GRANT_WARNED);
		return;
	}
	if (now_ns < e->due_ns)
		return;
	if (e->step == TOOLONG_ASKED) {
		toolong_tell_signalled(e, toolong_signal_all(e, SIGKILL), true);
		e->step = TOOLONG_KILLED;
		e->due_ns = now_ns + TOOLONG_GONE_MS * NS_PER_MS;
		return;
	}
	log_about(
		LINE_NOT_ENDED, &(struct log_about){.subject = e->what, .pid = left->pid},
		"%s: held too long, but pid %d cannot be ended: it has got SIGKILL and is in state %c; it is not tried again",
		e->what, (int)left->pid, family_stat(left->pid, &stat) ? stat.state : 'X');
	toolong_end_finish(e, GRANT_STUCK);
}

void toolong_end_tick(struct keeper *k, bool paused)
{
	struct toolong_end *e, *next;

	DL_FOREACH_SAFE (k->toolong.ends, e, next)
		if (!paused && e->step != TOOLONG_FINDING)
			toolong_end_step(e);
}

static void toolong_end_describe(struct toolong_end *e, const struct lock *lock, const struct grant *h)
{
	char since[32] = "?";
	struct tm tm;

	if (localtime_r(&h->since, &tm))
		strftime(since, sizeof(since), "%F %T", &tm);
	lock_describe(lock, e->what, sizeof(e->what));
	snprintf(
		e->line, sizeof(e->line),
		"%.500s: the lock is held too long, since %s: this process is ended (kill_after_ms = %lld, see dflock.conf(5))",
		lock->file->path, since, (long long)lock->file->kill_after_ms);
	for (char *c = e->line; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

void toolong_end_begin(struct lock *lock, struct grant *grant, const struct toolong_line *const *lines, size_t count)
{
	struct keeper *k = lock->file->keeper;
	struct toolong_end *e;

	if (grant->tries == TOOLONG_TRIES) {
		grant->state = GRANT_STUCK;
		log_about(
			LINE_NOT_ENDED, &(struct log_about){.lock = lock->file->name},
			"%s: held too long, and its holders were ended %u times: other processes have the lock since, and are left "
			"alone",
			lock->file->path, grant->tries);
		return;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return;
	*e = (struct toolong_end){.work = {.data = e},
				  .keeper = k,
				  .key = lock->file->key,
				  .id = lock->file->id,
				  .space = lock->space,
				  .pid = grant->pid,
				  .uid = grant->uid,
				  .at_ns = grant->at_ns};
	for (size_t i = 0; i < count; i++) {
		const struct toolong_holder h = {.pid = lines[i]->pid, .fd = lines[i]->fd, .locker = lines[i]->locker};

		(void)!array_push(&e->holders, &h, sizeof(h)); /* without memory: the next time */
	}
	toolong_end_describe(e, lock, grant);
	if (uv_queue_work(k->loop, &e->work, toolong_find, on_toolong_found) != 0) {
		toolong_end_free(e);
		return;
	}
	grant->state = GRANT_ENDING;
	DL_APPEND(k->toolong.ends, e);
}

void toolong_end_free_all(struct keeper *k)
{
	struct toolong_end *e, *next;

	DL_FOREACH_SAFE (k->toolong.ends, e, next) {
		DL_DELETE(k->toolong.ends, e);
		toolong_end_free(e);
	}
}
