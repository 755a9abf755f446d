/*
 * The store, the gate and the lists of calls of gate.c.
 */
#ifndef DFLOCK_TESTS_GATE_H
#define DFLOCK_TESTS_GATE_H

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "net.h"

#define SPACES 2 /* 0: flock, 1: record */
#define CALLS  256

/* Of a lease, a lock and the gate. The gate is EXCLUSIVE - lease. */
enum mode { NONE, SHARED, EXCLUSIVE };

/* What both hosts see, under the mutex. */
struct store {
	atomic_bool ready;
	pthread_mutex_t mutex; /* also for what is below of each host */
	/* A futex: a condition variable does not outlive the death of a process that waits on it. */
	_Atomic unsigned changes;
	struct {
		enum mode has[2], wants[2];
		bool busy[2]; /* this host waits for its gate */
	} spaces[SPACES];
};

/* A call that came, and may be under way still. */
struct started {
	pid_t tid;
	int nr, fd, space;
	enum mode mode;
	bool waits;
	bool kept; /* not continued so far */
};

/* A call that has no answer so far. */
struct kept {
	uint64_t id;
	struct started *call;
	struct timespec since;
};

/* What the two supervisors of a host see, under the mutex of the store. */
struct net {
	enum mode lease[SPACES];
	bool closing
		[SPACES]; /* the shared gate of flock() is being made exclusive: no call may be on its way past it */
	struct started started[CALLS];
	struct kept kept[CALLS];
	struct seccomp_notif received;
	long calls, returned, called_back, sent_back;
};

static struct store *store;
static struct net *net;
static int me, listener, gate, log_fd;
static bool leave_open;
static _Atomic long die_at;
static struct stat file;

/* With --die N the first supervisor kills itself at the N-th of these places. */
static void point(void)
{
	if (die_at > 0 && atomic_fetch_sub(&die_at, 1) == 1)
		kill(getpid(), SIGKILL);
}

static void say(const char *text, long number)
{
	dprintf(log_fd, "host %d, supervisor %d: %s %ld\n", me, getpid(), text, number);
}

static void store_lock(void)
{
	if (pthread_mutex_lock(&store->mutex) == EOWNERDEAD)
		pthread_mutex_consistent(&store->mutex);
}

static void store_unlock(void)
{
	pthread_mutex_unlock(&store->mutex);
}

static void store_changed(void)
{
	store->changes++;
	syscall(SYS_futex, &store->changes, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

/* Without the mutex, until the next change, or for a while. */
static void store_wait(int ms)
{
	const struct timespec timeout = {.tv_nsec = ms * 1000000};
	unsigned seen = store->changes;

	store_unlock();
	syscall(SYS_futex, &store->changes, FUTEX_WAIT, seen, &timeout, NULL, 0);
	store_lock();
}

/* --- the gate --- */

/* An upgrade of flock() is no single step: the kernel takes the shared lock away before it waits. */
static bool gate_set(int space, enum mode mode, bool wait)
{
	static const int op[] = {LOCK_UN, LOCK_SH, LOCK_EX};
	static const short type[] = {F_UNLCK, F_RDLCK, F_WRLCK};
	struct flock l = {.l_type = type[mode], .l_whence = SEEK_SET};

	if (space == 0)
		return flock(gate, op[mode] | (wait ? 0 : LOCK_NB)) == 0;
	return fcntl(gate, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l) == 0;
}

/* Does the gate keep out who wants this mode, whatever happens next? */
static bool gate_stands(int space, enum mode wanted)
{
	return EXCLUSIVE - net->lease[space] + wanted > EXCLUSIVE && !net->closing[space];
}

/* --- calls that came --- */

/* A thread is in one call at a time: its earlier one is over. */
static struct started *note_started(const struct seccomp_notif *q, int space, enum mode mode, bool waits)
{
	struct started *free = NULL, *s;

	for (s = net->started; s < net->started + CALLS && s->tid != (pid_t)q->pid; s++)
		if (s->tid == 0 && !free)
			free = s;
	s = s < net->started + CALLS ? s : free;
	for (struct started *old = net->started; !s && old < net->started + CALLS; old++)
		if (!old->kept && net_state(old->tid) == 0)
			s = old;
	if (s)
		*s = (struct started){.tid = q->pid,
				      .nr = q->data.nr,
				      .fd = (int)q->data.args[0],
				      .space = space,
				      .mode = mode,
				      .waits = waits};
	return s;
}

/* The thread is in a call that matters to nobody: its earlier one is over. */
static void forget_started(pid_t tid)
{
	store_lock();
	for (struct started *s = net->started; s < net->started + CALLS; s++)
		if (s->tid == tid)
			s->tid = 0;
	store_unlock();
}

/* The strongest mode for which a call of this space waits. Forgets calls that are seen to be over. */
static enum mode mode_wanted(int space, bool *unsure)
{
	enum mode wanted = NONE;
	long nr;

	for (struct started *s = net->started; s < net->started + CALLS; s++) {
		if (s->tid == 0 || s->space != space || (!s->waits && !s->kept))
			continue;
		nr = net_sleeps_in(s->tid);
		if (s->kept || nr == s->nr)
			wanted = s->mode > wanted ? s->mode : wanted;
		else if (nr >= 0 || net_state(s->tid) == 0)
			s->tid = 0;
		else
			*unsure = true;
	}
	return wanted;
}

/* Threads that this supervisor has interrupted. They stop when they leave the kernel, and that is not waited for: one that has
 * begun its next call is deaf until this supervisor has answered that. */
static pid_t interrupted[CALLS];

static void interrupt_call(pid_t tid)
{
	pid_t *free = NULL;

	for (pid_t *i = interrupted; i < interrupted + CALLS; i++) {
		if (*i == tid)
			return;
		if (*i == 0)
			free = i;
	}
	if (!free || ptrace(PTRACE_SEIZE, tid, 0, 0) < 0)
		return; /* a debugger has the thread, or it has ended: see the next look */
	*free = tid;
	ptrace(PTRACE_INTERRUPT, tid, 0, 0);
}

/* One that stops is in no call; it goes on at once, and a call that was interrupted begins anew. */
static void let_interrupted_go(void)
{
	int status, ret;

	for (pid_t *i = interrupted; i < interrupted + CALLS; i++) {
		if (*i == 0 || (ret = waitpid(*i, &status, __WALL | WNOHANG)) == 0)
			continue;
		for (struct started *s = net->started; s < net->started + CALLS; s++)
			if (s->tid == *i && !s->kept)
				s->tid = 0;
		/* A signal that was about to be delivered goes on its way. */
		if (ret > 0 && WIFSTOPPED(status)) {
			net->called_back++;
			ptrace(PTRACE_DETACH, *i, 0, status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status));
		}
		*i = 0;
	}
}

/* A thread that is stopped and not let go may have the lock that is waited for next. */
static bool have_interrupted(void)
{
	let_interrupted_go();
	for (pid_t *i = interrupted; i < interrupted + CALLS; i++)
		if (*i != 0)
			return true;
	return false;
}

/* Is no exclusive call of this space under way any more? Only for the thread that looks after flock() leases. */
static bool call_back_all(int space)
{
	bool all = true;

	let_interrupted_go();
	for (struct started *s = net->started; s < net->started + CALLS; s++) {
		if (s->tid == 0 || s->kept || s->space != space || s->mode != EXCLUSIVE)
			continue;
		if (net_state(s->tid) == 0) {
			s->tid = 0;
			continue;
		}
		interrupt_call(s->tid);
		all = false;
	}
	return all;
}

/* --- calls that have no answer so far --- */

/* What a conversion that cannot be granted at once does in the kernel, too: the earlier lock goes. */
static void give_up_shared(const struct started *call)
{
	int pidfd = syscall(SYS_pidfd_open, call->tid, O_EXCL /* PIDFD_THREAD */), fd;

	if (pidfd < 0)
		pidfd = syscall(SYS_pidfd_open, call->tid, 0);
	fd = syscall(SYS_pidfd_getfd, pidfd, call->fd, 0);
	if (fd >= 0)
		flock(fd, LOCK_UN);
	close(fd);
	close(pidfd);
}

static bool keep(const struct seccomp_notif *q, struct started *call)
{
	for (struct kept *k = net->kept; k < net->kept + CALLS; k++)
		if (k->id == 0) {
			call->kept = true;
			k->call = call;
			clock_gettime(CLOCK_MONOTONIC, &k->since);
			k->id = q->id;
			return true;
		}
	return false;
}

/* Those of the space that may be continued now; with refuse, also those that do not wait and meet the gate. */
static void continue_kept(int space, bool refuse)
{
	for (struct kept *k = net->kept; k < net->kept + CALLS; k++) {
		if (k->id == 0 || k->call->space != space ||
		    (net->lease[space] < k->call->mode &&
		     !((refuse || k->call->waits) && gate_stands(space, k->call->mode))))
			continue;
		k->call->kept = false;
		net_continue(listener, k->id);
		k->id = 0;
	}
}

/* While a call waits here and not in the kernel: signals; and one that does not wait does not wait long. */
static bool look_at_kept(void)
{
	struct timespec now;
	bool some = false;
	int error;

	clock_gettime(CLOCK_MONOTONIC, &now);
	for (struct kept *k = net->kept; k < net->kept + CALLS; k++) {
		if (k->id == 0)
			continue;
		error = 0;
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &k->id) < 0) {
			k->call->tid = 0; /* it was killed */
			k->id = 0;
			continue;
		}
		if (k->call->waits && net_state(k->call->tid) == 'D')
			error = -RESTARTSYS;
		else if (!k->call->waits && net->closing[k->call->space] &&
			 (now.tv_sec - k->since.tv_sec) * 1000 + (now.tv_nsec - k->since.tv_nsec) / 1000000 > 20)
			error = -EWOULDBLOCK;
		some = true;
		if (error == 0)
			continue;
		net->sent_back += error == -RESTARTSYS;
		if (error == -EWOULDBLOCK)
			give_up_shared(k->call);
		k->call->tid = 0;
		net_answer(listener, k->id, error, 0);
		k->id = 0;
	}
	return some;
}

#endif
