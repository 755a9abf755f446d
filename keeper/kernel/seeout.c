/* See seeout.h. */
#include "keeper/kernel/seeout.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <utlist.h>

#include "keeper/kernel/errand.h"
#include "keeper/kernel/family.h"
#include "procfs/procfs.h"

#define SEEOUT_STACK (64u << 10)

struct seeout_job {
	struct seeouts *all;
	pid_t tid;
	uint64_t started;
	enum seeout_how how;
	uid_t uid;
	size_t tag;
	bool cancelled; /* atomic */
	enum seeout_answer answer;
	struct seeout_job *prev, *next; /* seeouts.running */
	struct seeout_job *done_next;   /* seeouts.done */
};

struct seeouts {
	uv_async_t wake;
	struct seeout_job *running; /* loop only: also those that are done, until the loop has taken them */
	seeout_cb *cb;              /* loop only, as the next */
	void *arg;
	pthread_mutex_t mutex; /* for all below */
	struct seeout_job *done;
	bool ending;
	unsigned users; /* threads, and `wake` while it is open: the last one frees this */
};

/* --- one thread --- */

/* flock, fcntl and fcntl64 of every architecture that a thread here may use. A number that means another call on this one
 * counts, too: then ptrace says it. */
static bool seeout_may_be_lock_call(long number)
{
	static const long numbers[] = {
#ifndef __aarch64__ /* on which they are pselect6() and ppoll(), where programs sleep for long */
		72, 73,
#endif
		25, 32, 55, 143, 221};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if ((number & ~0x40000000L) == numbers[i])
			return true;
	return false;
}

enum seeout_where { SEEOUT_UNKNOWN, SEEOUT_SLEEPS_IN_LOCK_CALL, SEEOUT_SLEEPS_ELSEWHERE };

/* "running", "-1 SP PC": it waits, but in no system call, or "NUMBER ARGUMENTS ...". */
static enum seeout_where seeout_look(pid_t tid)
{
	char path[40], text[64], *end;
	long number;

	snprintf(path, sizeof(path), "/proc/%d/syscall", (int)tid);
	if (procfs_head(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return SEEOUT_UNKNOWN;
	number = strtol(text, &end, 10);
	if (end == text || *end != ' ')
		return SEEOUT_UNKNOWN;
	/* mutant: seeout-elsewhere */
	return seeout_may_be_lock_call(number) ? SEEOUT_SLEEPS_IN_LOCK_CALL : SEEOUT_SLEEPS_ELSEWHERE;
}

/* The signal with which a thread that has stopped goes on: the one that it was about to get. */
static int seeout_signal(int status)
{
	return status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
}

static enum seeout_answer seeout_unless(pid_t tid, uint64_t started, enum seeout_how how, const bool *cancelled)
{
	int looks = how == SEEOUT_PATIENTLY ? SEEOUT_PATIENCE_MS : 0; /* mutant: seeout-on-its-way */
	enum seeout_where where = seeout_look(tid);
	int status;
	pid_t ret;

	/* It was called back lately, and may not have got to where it sleeps: a machine that is busy would be so for nothing else. */
	while (where == SEEOUT_UNKNOWN && looks-- > 0) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		where = seeout_look(tid);
	}
	if (family_has_ended(tid, started) || where == SEEOUT_SLEEPS_ELSEWHERE)
		return SEEOUT_OUT;
	if (how == SEEOUT_GENTLY ||
	    (how == SEEOUT_PATIENTLY && where == SEEOUT_SLEEPS_IN_LOCK_CALL)) /* mutant: seeout-patiently */
		return SEEOUT_REFUSED;
	if (__atomic_load_n(cancelled, __ATOMIC_RELAXED))
		return SEEOUT_REFUSED;
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0) /* it may have ended just now */
		return family_has_ended(tid, started) ? SEEOUT_OUT : SEEOUT_REFUSED;
	ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	/* It is the only one that this thread traces. Not by its number: execve() gives it that of its process, and who waits for the old
	 * one is never woken. */
	do
		ret = waitpid(-1, &status, __WALL | __WNOTHREAD); /* mutant: seeout-exec */
	while (ret < 0 && errno == EINTR);
	if (ret > 0 && WIFSTOPPED(status))
		ptrace(PTRACE_DETACH, ret, NULL, (void *)(long)seeout_signal(status));
	if (ret <= 0)
		return SEEOUT_REFUSED;
	return where == SEEOUT_SLEEPS_IN_LOCK_CALL && WIFSTOPPED(status) ? SEEOUT_CALLED_BACK : SEEOUT_OUT;
}

enum seeout_answer seeout_now(pid_t tid, uint64_t started, enum seeout_how how)
{
	const bool cancelled = false;

	return seeout_unless(tid, started, how, &cancelled);
}

/* --- many --- */

static void seeouts_unuse(struct seeouts *all)
{
	bool last;

	pthread_mutex_lock(&all->mutex);
	last = --all->users == 0;
	pthread_mutex_unlock(&all->mutex);
	if (!last)
		return;
	pthread_mutex_destroy(&all->mutex);
	free(all);
}

static void *seeout_main(void *arg)
{
	struct seeout_job *job = arg;
	struct seeouts *all = job->all;

	job->answer = seeout_unless(job->tid, job->started, job->how, &job->cancelled);
	pthread_mutex_lock(&all->mutex);
	if (all->ending) {
		free(job);
	} else {
		LL_PREPEND2(all->done, job, done_next);
		uv_async_send(&all->wake);
	}
	pthread_mutex_unlock(&all->mutex);
	seeouts_unuse(all);
	return NULL;
}

static void on_seen_out(uv_async_t *wake)
{
	struct seeouts *all = wake->data;
	struct seeout_job *done, *job, *next;

	pthread_mutex_lock(&all->mutex);
	done = all->done;
	all->done = NULL;
	pthread_mutex_unlock(&all->mutex);
	LL_FOREACH_SAFE2(done, job, next, done_next)
	{
		DL_DELETE(all->running, job);
		all->cb(all->arg, job->tag, job->answer);
		free(job);
	}
}

struct seeouts *seeouts_new(uv_loop_t *loop, seeout_cb *cb, void *arg)
{
	struct seeouts *all = calloc(1, sizeof(*all));

	if (!all)
		return NULL;
	if (uv_async_init(loop, &all->wake, on_seen_out) != 0) {
		free(all);
		errno = EMFILE;
		return NULL;
	}
	uv_unref((uv_handle_t *)&all->wake);
	pthread_mutex_init(&all->mutex, NULL);
	all->wake.data = all;
	all->cb = cb;
	all->arg = arg;
	all->users = 1;
	return all;
}

static void on_seeouts_closed(uv_handle_t *handle)
{
	seeouts_unuse(handle->data);
}

void seeouts_free(struct seeouts *all)
{
	struct seeout_job *job, *next;

	pthread_mutex_lock(&all->mutex);
	all->ending = true;
	LL_FOREACH_SAFE2(all->done, job, next, done_next)
	free(job);
	all->done = NULL;
	pthread_mutex_unlock(&all->mutex);
	uv_close((uv_handle_t *)&all->wake, on_seeouts_closed);
}

void seeout_cancel(struct seeouts *all, size_t tag)
{
	struct seeout_job *job;

	DL_FOREACH (all->running, job)
		if (job->tag == tag)
			__atomic_store_n(&job->cancelled, true, __ATOMIC_RELAXED);
}

static bool seeouts_have_room(const struct seeouts *all, uid_t uid, enum seeout_how how)
{
	unsigned part = how == SEEOUT_GENTLY ? SEEOUT_GENTLE_PART : 1; /* mutant: seeout-part */
	const struct seeout_job *job;
	unsigned count = 0, users = 0;

	DL_FOREACH (all->running, job) {
		if (how == SEEOUT_GENTLY && job->how != SEEOUT_GENTLY)
			continue;
		count++;
		users += job->uid == uid;
	}
	/* mutant: seeout-room */
	return users < SEEOUT_USER_MAX / part && count < (uid ? SEEOUT_MAX - SEEOUT_USER_MAX : SEEOUT_MAX) / part;
}

int seeout_start(struct seeouts *all, pid_t tid, uint64_t started, enum seeout_how how, uid_t uid, size_t tag)
{
	struct seeout_job *job = seeouts_have_room(all, uid, how) ? calloc(1, sizeof(*job)) : NULL;

	if (!job)
		return -EAGAIN;
	*job = (struct seeout_job){.all = all, .tid = tid, .started = started, .how = how, .uid = uid, .tag = tag};
	pthread_mutex_lock(&all->mutex);
	all->users++;
	pthread_mutex_unlock(&all->mutex);
	if (errand_thread(SEEOUT_STACK, 0, seeout_main, job) != 0) {
		seeouts_unuse(all);
		free(job);
		return -EAGAIN;
	}
	DL_APPEND(all->running, job);
	return 0;
}
