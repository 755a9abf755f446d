/*
 * See stopped.h.
 *
 * Why no process keeps the parent from stopping the others. If PTRACE_SEIZE does not get a thread within its limit, the
 * parent tries again later, for a longer time; when the limit of the freeze is over, the process gets SIGSTOP. The
 * total time of vain waits is bounded, too: if it exceeds one limit, because there are thousands of such threads, the
 * rest get SIGSTOP at once.
 *
 * A process that another one traces (gdb, strace) gets SIGSTOP, too, and its tracer decides what becomes of that: the
 * process shows as stopped (t) while the tracer looks at the signal, and runs when the tracer drops it. What a stopped
 * tracer traces cannot go on: it waits for its tracer at the next signal. So tracers are stopped first, and a process that
 * one traces is stopped only if its tracer is. If that cannot be stopped (another user's), the process is killed before
 * the deadline (stopped.h). Left alone are keepers, also other ones, which drop no signal and must go on, and the tracer of
 * this parent or its keeper, which would then wait for it.
 *
 * PTRACE_INTERRUPT, GETEVENTMSG, DETACH and waitpid(WNOHANG) take no lock that a process may
 * keep.
 */
#include "keeper/guard/stopped.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/kernel/command.h"
#include "keeper/kernel/family.h"
#include "keeper/log.h"

/*
 * PTRACE_SEIZE with a limit of time.
 *
 * PTRACE_SEIZE waits for the target's cred_guard_mutex. A process has that mutex during all of an execve(), also while
 * the program's file system does not answer. After a signal the kernel begins the wait anew (ERESTARTNOINTR), so only a
 * signal handler that does not return ends it: a timer's handler jumps out. A free mutex is taken without waiting, so a
 * fraction of a millisecond is enough.
 *
 * The jump loses nothing: if it comes after the call has succeeded, PTRACE_INTERRUPT, which the kernel allows only to
 * the tracer, succeeds as well. So the parent always knows which threads it traces.
 *
 * To be called from one thread only: ptrace belongs to a thread, and so does the timer, whose handler takes SIGALRM.
 */

#define SEIZE_OPTIONS (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK)

static sigjmp_buf seize_out;
static volatile sig_atomic_t seize_armed;
static timer_t seize_timer;
static bool seize_has_timer;

static void seize_on_timer(int number)
{
	(void)number;
	if (seize_armed) {
		seize_armed = 0;
		siglongjmp(seize_out, 1);
	}
}

/* Without a timer the limit is not kept; the log says so. SA_NODEFER leaves the signal mask as it is over the jump. */
static void seize_prepare(void)
{
	struct sigaction action = {.sa_handler = seize_on_timer, .sa_flags = SA_NODEFER};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	seize_has_timer = sigaction(SIGALRM, &action, NULL) == 0 && sigprocmask(SIG_UNBLOCK, &alarm, NULL) == 0 &&
			  timer_create(CLOCK_MONOTONIC, &event, &seize_timer) == 0;
	if (!seize_has_timer)
		log_event(LINE_NOT_STOPPABLE,
			  "no timer (%s): a process that hangs in execve() when its lease runs out may keep the "
			  "keeper's parent from stopping the others",
			  strerror(errno));
}

static void seize_set_timer(int64_t ns)
{
	const struct itimerspec when = {.it_value.tv_nsec = ns};

	if (seize_has_timer)
		timer_settime(seize_timer, 0, &when, NULL);
}

/*
 * Seizes a thread, with EXITKILL and with a stop for each child or thread that it starts, and tells it to stop. limit_ns:
 * less than a second. 0; -errno of ptrace; -ETIMEDOUT: it did not come back in time, and the thread is not traced.
 */
static int seize_thread(pid_t tid, int64_t limit_ns)
{
	volatile int ret = -ETIMEDOUT;

	if (sigsetjmp(seize_out, 0) == 0) {
		seize_armed = 1;
		seize_set_timer(limit_ns);
		ret = syscall(SYS_ptrace, (long)PTRACE_SEIZE, (long)tid, 0l, (long)SEIZE_OPTIONS) == 0 ? 0 : -errno;
		seize_armed = 0;
	}
	seize_set_timer(0);
	if (ret == 0 || ret == -ETIMEDOUT)
		return ptrace(PTRACE_INTERRUPT, tid, 0, 0) == 0 ? 0 : ret;
	return ret;
}

#define STOPPED_SLICE_NS 200000ll /* time for PTRACE_SEIZE to return; twice as long each time */
#define STOPPED_AGAIN_NS (2 * NS_PER_MS)
#define STOPPED_DOUBLES  5 /* then both stay at that: 6.4 and 64 ms */
#define STOPPED_LIMIT_NS (100 * NS_PER_MS)

#define STOPPED_FOR_ALL UINT64_MAX

static struct thread *stopped_add_traced(struct stopped *s, pid_t pid, pid_t tid, uint64_t stores)
{
	return threads_add(&s->threads,
			   &(struct thread){.pid = pid, .tid = tid, .how = THREAD_TRACED, .stores = stores});
}

/* The kernel traces the child of a traced thread from its fork or clone. It may have reported the child's stop before
 * this event. */
static void stopped_add_child(struct stopped *s, const struct thread *parent, int event)
{
	unsigned long child;
	struct thread *t;
	pid_t pid;

	if (ptrace(PTRACE_GETEVENTMSG, parent->tid, 0, &child) != 0)
		return;
	pid = event == PTRACE_EVENT_CLONE ? parent->pid : (pid_t)child;
	t = threads_find(&s->threads, (pid_t)child);
	if (!t)
		stopped_add_traced(s, pid, (pid_t)child, parent->stores);
	else if (t->stores == STOPPED_FOR_ALL)
		t->stores = parent->stores;
	if (t)
		t->pid = pid;
}

/* A thread that is not in the table was born traced; its parent was killed before it could tell. status: the signal and
 * the event. */
static void stopped_take_stop(struct stopped *s, pid_t tid, int status)
{
	struct thread *t = threads_find(&s->threads, tid);
	int event = status >> 8;

	if (!t)
		t = stopped_add_traced(s, tid, tid, STOPPED_FOR_ALL);
	if (!t) {
		kill(tid, SIGKILL);
		return;
	}
	t->how = THREAD_TRACED;
	t->stopped = true;
	if (!event)
		t->signal = status;
	if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
		stopped_add_child(s, t, event);
}

/* SIGSTOP for the whole process, because ptrace is of no use. */
static void stopped_signal(struct stopped *s, pid_t pid, uint64_t stores)
{
	struct thread t = {.pid = pid, .tid = pid, .started = family_started(pid), .stores = stores};
	bool sent;
	int err;

	if (threads_find_process(&s->threads, pid))
		return;
	t.before = family_has_stop(pid);
	if (!t.before)
		signalled_note(&s->signalled, pid);
	sent = kill(pid, SIGSTOP) == 0;
	err = errno;
	if (!sent && !t.before)
		signalled_forget(&s->signalled, pid);
	if (!sent && err == ESRCH)
		return;
	if (!sent)
		log_process(LINE_NOT_STOPPABLE, pid,
			    "pid %d holds a lock whose lease runs out, or was started by one that does, and cannot be "
			    "stopped: %s",
			    (int)pid, strerror(err));
	t.how = sent ? THREAD_SIGNALLED : THREAD_REFUSED;
	t.stopped = !sent;
	threads_add(&s->threads, &t); /* no memory: the next look tries again */
}

/* Tries to seize a thread that is ASKED. False: its entry is not needed. May add an entry for its process. */
static bool stopped_try(struct stopped *s, struct thread *t)
{
	unsigned doubles = t->tries < STOPPED_DOUBLES ? t->tries : STOPPED_DOUBLES;
	int64_t now = clock_now_ns();
	int ret = -ETIMEDOUT;

	if (t->tries == 0 ? s->lost_ns <= s->limit_ns : now >= t->again_ns) {
		ret = seize_thread(t->tid, STOPPED_SLICE_NS << doubles);
		s->lost_ns += ret == -ETIMEDOUT ? clock_now_ns() - now : 0;
		t->again_ns = now + (STOPPED_AGAIN_NS << doubles);
		t->tries++;
	}
	if (ret == 0)
		t->how = THREAD_TRACED;
	if (ret == 0)
		return true;
	/* A thread that has ended is refused, too, though other threads of its process go on. */
	if (ret == -ESRCH || family_state(t->tid) == 'Z')
		return false;
	if (ret != -ETIMEDOUT || now - t->asked_ns > s->limit_ns || s->lost_ns > s->limit_ns)
		stopped_signal(s, t->pid, t->stores);
	return ret == -ETIMEDOUT;
}

static bool stopped_still_asked(struct stopped *s, struct thread *t)
{
	bool there = family_started(t->tid) == t->started; /* else it has ended */

	/* If too much time was lost already, uses SIGSTOP. */
	if (there && !(s->lost_ns > s->limit_ns && threads_find_process(&s->threads, t->pid)))
		there = stopped_try(s, t);
	return there;
}

static int stopped_on_tracing(void *arg, pid_t pid, pid_t tid)
{
	const struct stopped *s = arg;
	const struct thread *t = threads_find(&s->threads, tid);

	if (!t)
		t = threads_find_process(&s->threads, pid);
	return !t || !t->stopped || t->how == THREAD_REFUSED;
}

static bool stopped_may_trace(const struct stopped *s, pid_t tracer)
{
	char name[COMM_BYTES];

	if (!tracer || tracer == getpid() || tracer == family_tracer(getpid()) || tracer == family_tracer(s->keeper))
		return true;
	comm_read(tracer, name);
	return strncmp(name, "dflockd", strlen("dflockd")) == 0; /* parents, too */
}

/* 1: this thread of a process that got SIGSTOP has a tracer that is not stopped (now). */
static int stopped_on_traced(void *arg, pid_t pid, pid_t tid)
{
	struct stopped *s = arg;
	const struct thread *traced = threads_find_process(&s->threads, pid);
	const pid_t tracer = family_tracer(tid);

	if (stopped_may_trace(s, tracer))
		return 0;
	stopped_stop(s, tracer, traced ? traced->stores : STOPPED_FOR_ALL);
	return family_threads(tracer, stopped_on_tracing, s);
}

/* Has the process that got SIGSTOP ended? Another one may have its number by now. */
static bool stopped_has_ended(const struct thread *t)
{
	struct procfs_stat stat;

	if (kill(t->pid, 0) != 0 && errno == ESRCH)
		return true;
	return t->started && family_stat(t->pid, &stat) && stat.started != t->started; /* mutant: stopped-another */
}

/* Who stopped it before, an operator or the parent of another keeper, may have continued it since. From then on the stop is ours alone, and
 * nobody else would end it. */
static void stopped_signal_again(struct stopped *s, struct thread *t)
{
	if (t->before && !family_is_stopped(t->pid)) { /* mutant: stopped-before */
		t->before = false;
		signalled_note(&s->signalled, t->pid);
	}
	kill(t->pid, SIGSTOP);
}

/* False: it has ended. May add an entry. */
static bool stopped_still_there(struct stopped *s, struct thread *t)
{
	pid_t tid = t->tid;
	int status;

	if (t->how == THREAD_ASKED)
		return stopped_still_asked(s, t);
	if (t->how == THREAD_TRACED) {
		pid_t got = waitpid(tid, &status, __WALL | WNOHANG);

		if (got == tid && WIFSTOPPED(status))
			stopped_take_stop(s, tid, status >> 8);
		else if (got == 0 &&
			 !t->stopped) /* a process's first thread: its end is told when all threads have ended */
			t->stopped = family_state(tid) == 'Z';
		return got == 0 || (got == tid && WIFSTOPPED(status));
	}
	if (stopped_has_ended(t)) {
		signalled_forget(&s->signalled, t->pid);
		return false;
	}
	if (t->how == THREAD_SIGNALLED) {
		t->at_mercy = family_threads(t->pid, stopped_on_traced, s); /* first: see the top */
		t->stopped = !t->at_mercy && family_is_stopped(t->pid);
		if (!t->stopped)
			stopped_signal_again(s, t);
	}
	return true;
}

void stopped_collect(struct stopped *s)
{
	siginfo_t info = {0};
	struct thread *next;

	for (struct thread *t = s->threads.all; t; t = next) {
		bool there = stopped_still_there(s, t);

		next = t->hh.next;
		if (!there)
			threads_remove(&s->threads, t);
	}
	/* Threads that are not in the table: each call goes through all that are traced. Stops only: supervise.c waits
	 * for the keeper's end. */
	while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG | __WALL) == 0 && info.si_pid) {
		if (info.si_code == CLD_TRAPPED)
			stopped_take_stop(s, info.si_pid, info.si_status);
		info = (siginfo_t){0};
	}
}

void stopped_adopt(struct stopped *s, struct table_signalled *noted, size_t room)
{
	seize_prepare();
	s->limit_ns = STOPPED_LIMIT_NS;
	signalled_init(&s->signalled, noted, room);
	for (size_t i = 0; i < room; i++)
		if (noted[i].pid && noted[i].noted == TABLE_OURS)
			threads_add(&s->threads, &(struct thread){.pid = noted[i].pid,
								  .tid = noted[i].pid,
								  .how = THREAD_SIGNALLED,
								  .started = noted[i].started,
								  .stores = STOPPED_FOR_ALL});
}

void stopped_limit(struct stopped *s, int64_t limit_ns)
{
	s->limit_ns = limit_ns;
	s->lost_ns = 0;
}

/* One process, and what it is stopped for. */
struct stopping {
	struct stopped *stopped;
	uint64_t stores;
};

static int stopped_on_thread(void *arg, pid_t pid, pid_t tid)
{
	const struct stopping *stopping = arg;
	struct stopped *s = stopping->stopped;
	struct thread *known = threads_find(&s->threads, tid), *process = threads_find_process(&s->threads, pid);
	struct thread t = {.pid = pid, .tid = tid, .stores = stopping->stores};

	if (known)
		known->going = false;
	if (known)
		known->stores |= stopping->stores;
	if (process)
		process->stores |= stopping->stores;
	if (known || process || pid == s->keeper || pid == getpid())
		return 0;
	t.asked_ns = clock_now_ns();
	t.started = family_started(tid);
	if (stopped_try(s, &t) && !threads_add(&s->threads, &t))
		kill(pid, SIGKILL); /* there is no memory for its entry: it must end, since it must not go on */
	return 0;
}

void stopped_stop(struct stopped *s, pid_t pid, uint64_t stores)
{
	family_threads(pid, stopped_on_thread, &(struct stopping){.stopped = s, .stores = stores});
}

uint64_t stopped_stores(const struct stopped *s)
{
	uint64_t stores = 0;

	for (const struct thread *t = s->threads.all; t; t = t->hh.next)
		stores |= t->stores;
	return stores;
}

/*
 * False: the kernel has not stopped it yet, or it is about to end. Then it stays in the table until waitpid() has told
 * its end: the kernel tells the tracer before the parent.
 */
static bool stopped_let_go_thread(struct thread *t)
{
	if (t->how != THREAD_TRACED)
		return true;
	if (t->stopped && ptrace(PTRACE_DETACH, t->tid, 0, (long)t->signal) == 0)
		return true;
	t->stopped = false;
	t->going = true;
	return false;
}

bool stopped_may_go(const struct stopped *s, uint64_t still)
{
	for (const struct thread *t = s->threads.all; t; t = t->hh.next)
		if (t->stores & ~still || !t->stores)
			return true;
	return false;
}

/* Processes that got SIGSTOP go on before all others: a parent that was stopped, too, then finds its child running. */
static void stopped_continue_signalled(struct stopped *s, const struct family *stay)
{
	for (struct thread *t = s->threads.all; t; t = t->hh.next)
		if (t->how == THREAD_SIGNALLED && !t->before && !family_has(stay, t->pid))
			signalled_continue(&s->signalled, t->pid);
	for (struct thread *t = s->threads.all; t; t = t->hh.next) {
		const struct thread *process = threads_find_process(&s->threads, t->pid);

		if (t->signal == SIGSTOP && process && process->how == THREAD_SIGNALLED && !process->before &&
		    !family_has(stay, t->pid))
			t->signal = 0; /* SIGCONT took it out of the queue */
	}
}

/* The processes that stay. Without memory all do. */
static bool stopped_find_staying(struct stopped *s, uint64_t still, struct family *stay)
{
	for (struct thread *t = s->threads.all; t; t = t->hh.next)
		if (t->stores & still && family_add(stay, t->pid) < 0)
			return false;
	for (struct thread *t = s->threads.all; t; t = t->hh.next)
		t->stores &= still;
	return true;
}

unsigned stopped_let_go(struct stopped *s, uint64_t still)
{
	struct family stay = {0};
	struct thread *t, *next;
	unsigned count;

	if (!stopped_find_staying(s, still, &stay)) {
		family_free(&stay);
		return 0;
	}
	HASH_ITER (hh, s->threads.all, t, next)
		if (t->how == THREAD_ASKED && !family_has(&stay, t->pid)) /* nothing of the parent's is left in these */
			threads_remove(&s->threads, t);
	stopped_collect(s);
	count = threads_processes(&s->threads);
	stopped_continue_signalled(s, &stay);
	HASH_ITER (hh, s->threads.all, t, next)
		if (!family_has(&stay, t->pid) && !(t->stores & still) && stopped_let_go_thread(t))
			threads_remove(&s->threads, t);
	family_free(&stay);
	return count - threads_processes(&s->threads);
}
