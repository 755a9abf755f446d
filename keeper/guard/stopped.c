/*
 * See stopped.h.
 *
 * Why no process keeps us from the others. PTRACE_SEIZE waits for the target's cred_guard_mutex, which a process has
 * from the beginning of an execve() to its end, also while the file system does not answer that has the program. The
 * kernel begins that wait anew after a signal (ERESTARTNOINTR), so only a handler that does not return ends it: a timer's
 * signal jumps out (seize()). A free mutex is taken without waiting, so that a fraction of a millisecond is enough, and
 * a target that is not had then is tried again later, and gets SIGSTOP when its limit is over. What is waited in vain is
 * bounded as a whole, too: if more is lost than one limit, because there are thousands of such targets, the rest gets
 * SIGSTOP at once. PTRACE_INTERRUPT, GETEVENTMSG, DETACH and waitpid(WNOHANG) take no such lock.
 *
 * Nothing is lost in the jump: it may come when the call has succeeded already, and then PTRACE_INTERRUPT, which the
 * kernel allows to the tracer only, succeeds as well. Nobody is traced but who is known to be.
 *
 * Why who is held runs nothing. Both PTRACE_INTERRUPT and SIGSTOP leave a mark at each thread that the kernel looks at
 * on every way back to the program: the stop comes before the program's next instruction, also if that is the first of
 * a new program after execve(), which drops neither. A thread in state D was in the kernel when it was looked at, after
 * the mark was left. SIGCONT of somebody else takes the mark of SIGSTOP away; it is left anew in each collection.
 * A thread in state R may be in a call that writes on and on: it is not held. But where it got no processor since it was
 * looked at last, it only waits for one, on a machine that has much to do, and the stop is the first thing that it will
 * find: it is not killed either.
 */
#include "keeper/guard/stopped.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/kernel/family.h"
#include "keeper/log.h"

#define SLICE_NS      200000ll /* for PTRACE_SEIZE to come back; twice as long each time */
#define AGAIN_NS      (2 * NS_PER_MS)
#define DOUBLES       5        /* then both stay at that: 6.4 and 64 ms */
#define RAN_NS        NS_PER_MS /* one that has had a processor for so long would have stopped, were it not busy in the kernel */
#define LIMIT_NS      (100 * NS_PER_MS)

#define STOP_OPTION (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK)

/* --- PTRACE_SEIZE with a limit --- */

static sigjmp_buf out;
static volatile sig_atomic_t armed;
static timer_t timer;
static bool has_timer;

static void on_timer(int number)
{
	(void)number;
	if (armed) {
		armed = 0;
		siglongjmp(out, 1);
	}
}

/* SIGALRM is used for nothing else here, and SA_NODEFER leaves the mask as it is over the jump. */
static void make_timer(void)
{
	struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_NODEFER};
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	has_timer = sigaction(SIGALRM, &action, NULL) == 0 && sigprocmask(SIG_UNBLOCK, &alarm, NULL) == 0 &&
		    timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
	if (!has_timer)
		log_error("no timer (%s): a process that hangs in execve() when its lease runs out may keep the "
			  "keeper's parent from stopping the others",
			  strerror(errno));
}

static void set_timer(int64_t ns)
{
	const struct itimerspec when = {.it_value.tv_nsec = ns};

	if (has_timer)
		timer_settime(timer, 0, &when, NULL);
}

/* Seizes it and tells it to stop. 0, -errno, or -ETIMEDOUT: it did not come back. */
static int seize(pid_t tid, int64_t slice_ns)
{
	volatile int ret = -ETIMEDOUT;

	if (sigsetjmp(out, 0) == 0) {
		armed = 1;
		set_timer(slice_ns);
		ret = syscall(SYS_ptrace, (long)PTRACE_SEIZE, (long)tid, 0l, (long)STOP_OPTION) == 0 ? 0 : -errno;
		armed = 0;
	}
	set_timer(0);
	if (ret == 0 || ret == -ETIMEDOUT)
		return ptrace(PTRACE_INTERRUPT, tid, 0, 0) == 0 ? 0 : ret;
	return ret;
}

/* --- the table --- */

/* Of a thread, and of a process as a whole. */
static bool is_whole(const struct thread *t)
{
	return t->how == SIGNALLED || t->how == REFUSED;
}

static struct thread *find(const struct stopped *s, pid_t tid, bool whole)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->threads[i].tid == tid && is_whole(&s->threads[i]) == whole)
			return &s->threads[i];
	return NULL;
}

static struct thread *find_thread(const struct stopped *s, pid_t tid)
{
	return find(s, tid, false);
}

static struct thread *find_process(const struct stopped *s, pid_t pid)
{
	return find(s, pid, true);
}

static struct thread *add_thread(struct stopped *s, const struct thread *thread)
{
	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct thread *threads = realloc(s->threads, room * sizeof(*threads));

		if (!threads)
			return NULL;
		s->threads = threads;
		s->room = room;
	}
	s->threads[s->count] = *thread;
	s->changed = true;
	return &s->threads[s->count++];
}

static struct thread *add_traced(struct stopped *s, pid_t pid, pid_t tid)
{
	return add_thread(s, &(struct thread){.pid = pid, .tid = tid, .how = TRACED});
}

static void forget_thread(struct stopped *s, struct thread *t)
{
	*t = s->threads[--s->count];
	s->changed = true;
}

/* It begins to be traced because of this thread's fork or clone. The kernel may have told of its stop before. */
static void add_child(struct stopped *s, const struct thread *parent, int event)
{
	unsigned long child;
	struct thread *t;
	pid_t pid;

	if (ptrace(PTRACE_GETEVENTMSG, parent->tid, 0, &child) != 0)
		return;
	pid = event == PTRACE_EVENT_CLONE ? parent->pid : (pid_t)child;
	t = find_thread(s, (pid_t)child);
	if (!t)
		add_traced(s, pid, (pid_t)child);
	else
		t->pid = pid;
}

/* One that is not known was born traced, of one that was killed before it could tell. status: the signal and the event.
 */
static void take_stop(struct stopped *s, pid_t tid, int status)
{
	struct thread *t = find_thread(s, tid);
	int event = status >> 8;

	if (!t)
		t = add_traced(s, tid, tid);
	if (!t) {
		kill(tid, SIGKILL);
		return;
	}
	t->how = TRACED;
	t->stopped = true;
	if (!event)
		t->signal = status;
	if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
		add_child(s, t, event);
}

/* Where ptrace is of no use: the whole process, by SIGSTOP. */
static void stop_process(struct stopped *s, pid_t pid)
{
	struct thread t = {.pid = pid, .tid = pid};
	bool sent;
	int err;

	if (find_process(s, pid))
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
		log_error("pid %d holds a lock whose lease runs out, or was started by one that does, and cannot be "
			  "stopped: %s",
			  (int)pid, strerror(err));
	t.how = sent ? SIGNALLED : REFUSED;
	t.stopped = !sent;
	add_thread(s, &t); /* without memory: it is tried again */
}

/* Tries to seize one that is ASKED. False: there is nothing to try, or nothing any more. May add an entry. */
static bool try_thread(struct stopped *s, struct thread *t)
{
	unsigned doubles = t->tries < DOUBLES ? t->tries : DOUBLES;
	int64_t now = clock_now_ns();
	int ret = -ETIMEDOUT;

	if (t->tries == 0 ? s->lost_ns <= s->limit_ns : now >= t->again_ns) {
		ret = seize(t->tid, SLICE_NS << doubles);
		s->lost_ns += ret == -ETIMEDOUT ? clock_now_ns() - now : 0;
		t->again_ns = now + (AGAIN_NS << doubles);
		t->tries++;
	}
	if (ret == 0)
		t->how = TRACED;
	if (ret == 0)
		return true;
	/* A thread that has ended is refused, too, though its process goes on with others. */
	if (ret == -ESRCH || family_state(t->tid) == 'Z')
		return false;
	if (ret != -ETIMEDOUT || now - t->asked_ns > s->limit_ns || s->lost_ns > s->limit_ns)
		stop_process(s, t->pid);
	return ret == -ETIMEDOUT;
}

static bool still_asked(struct stopped *s, size_t i)
{
	struct thread t = s->threads[i];
	bool there = family_started(t.tid) == t.started; /* else it has ended */

	/* If too much was lost already, SIGSTOP must do. */
	if (there && !(s->lost_ns > s->limit_ns && find_process(s, t.pid)))
		there = try_thread(s, &t);
	s->threads[i] = t;
	return there;
}

/* False: it is no more. */
static bool still_there(struct stopped *s, size_t i)
{
	struct thread *t = &s->threads[i];
	pid_t tid = t->tid;
	int status;

	if (t->how == ASKED)
		return still_asked(s, i);
	if (t->how == TRACED) {
		pid_t got = waitpid(tid, &status, __WALL | WNOHANG);

		if (got == tid && WIFSTOPPED(status))
			take_stop(s, tid, status >> 8);
		else if (got == 0 &&
			 !t->stopped) /* the first of several threads: its end is told when all have ended */
			t->stopped = family_state(tid) == 'Z';
		return got == 0 || (got == tid && WIFSTOPPED(status));
	}
	if (kill(t->pid, 0) != 0 && errno == ESRCH) {
		signalled_forget(&s->signalled, t->pid);
		return false;
	}
	if (t->how == SIGNALLED) {
		t->stopped = family_is_stopped(t->pid);
		if (!t->stopped)
			kill(t->pid, SIGSTOP);
	}
	return true;
}

/* Takes what the kernel has to say of them. */
void stopped_collect(struct stopped *s)
{
	siginfo_t info = {0};

	/* Stops alone: the keeper's end is not for us. */
	while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG | __WALL) == 0 && info.si_pid) {
		if (info.si_code == CLD_TRAPPED)
			take_stop(s, info.si_pid, info.si_status);
		info = (siginfo_t){0};
	}
	for (size_t i = 0; i < s->count;)
		if (still_there(s, i))
			i++;
		else
			forget_thread(s, &s->threads[i]);
}

void stopped_adopt(struct stopped *s, struct fence_signalled *noted, size_t room)
{
	make_timer();
	s->limit_ns = LIMIT_NS;
	signalled_init(&s->signalled, noted, room);
	for (size_t i = 0; i < room; i++)
		if (noted[i].pid && noted[i].noted == FENCE_OURS)
			add_thread(s, &(struct thread){.pid = noted[i].pid, .tid = noted[i].pid, .how = SIGNALLED});
}

void stopped_limit(struct stopped *s, int64_t limit_ns)
{
	s->limit_ns = limit_ns;
	s->lost_ns = 0;
}

static int on_thread(void *arg, pid_t pid, pid_t tid)
{
	struct stopped *s = arg;
	struct thread *known = find_thread(s, tid), t = {.pid = pid, .tid = tid};

	if (known)
		known->going = false;
	if (known || find_process(s, pid) || pid == s->keeper || pid == getpid())
		return 0;
	t.asked_ns = clock_now_ns();
	t.started = family_started(tid);
	if (try_thread(s, &t) && !add_thread(s, &t))
		kill(pid, SIGKILL); /* cannot be kept stopped: better it ends than that it goes on */
	return 0;
}

void stopped_stop(struct stopped *s, pid_t pid)
{
	family_threads(pid, on_thread, s);
}

bool stopped_all(const struct stopped *s)
{
	bool all = true;

	for (size_t i = 0; i < s->count; i++)
		all = all && s->threads[i].stopped;
	return all;
}

/* See the top. */
static bool is_held(const struct stopped *s, const struct thread *t)
{
	if (t->stopped)
		return true;
	switch (t->how) {
	case ASKED:
		return find_process(s, t->pid) && strchr("DTtZX", family_state(t->tid));
	case TRACED:
		return strchr("DtZX", family_state(t->tid));
	case SIGNALLED:
		return family_is_held(t->pid);
	case REFUSED:
		break;
	}
	return false;
}

bool stopped_all_held(const struct stopped *s)
{
	for (size_t i = 0; i < s->count; i++)
		if (!is_held(s, &s->threads[i]))
			return false;
	return true;
}

static int add_ran(void *arg, pid_t pid, pid_t tid)
{
	int64_t *sum = arg, ran = procfs_ran_ns(tid);

	(void)pid;
	*sum = ran < 0 || *sum < 0 ? -1 : *sum + ran;
	return 0;
}

static int64_t ran_ns(const struct thread *t)
{
	int64_t sum = 0;

	if (!is_whole(t))
		return procfs_ran_ns(t->tid);
	family_threads(t->pid, add_ran, &sum);
	return sum;
}

void stopped_warn(struct stopped *s)
{
	for (size_t i = 0; i < s->count; i++)
		s->threads[i].ran_ns = is_held(s, &s->threads[i]) ? 0 : ran_ns(&s->threads[i]);
}

/* It has a stop pending, and has not come to take it. */
static bool waits_for_processor(const struct stopped *s, const struct thread *t)
{
	int64_t now = ran_ns(t);

	if (t->how == ASKED && !find_process(s, t->pid))
		return false;
	return t->ran_ns <= 0 ? t->ran_ns == 0 : now >= 0 && now - t->ran_ns < RAN_NS;
}

void stopped_kill_rest(struct stopped *s)
{
	for (size_t i = 0; i < s->count; i++) {
		struct thread *t = &s->threads[i];

		if (t->killed || is_held(s, t) || waits_for_processor(s, t))
			continue;
		log_error("pid %d could not be stopped in time: it is killed", (int)t->pid);
		kill(t->pid, SIGKILL);
		t->killed = true;
	}
}

/*
 * False: the kernel has not stopped it yet, or it is about to end. Then it is ours until waitpid() has told its end,
 * which its parent is told only after us.
 */
static bool let_go(struct thread *t)
{
	if (t->how != TRACED)
		return true;
	if (t->stopped && ptrace(PTRACE_DETACH, t->tid, 0, (long)t->signal) == 0)
		return true;
	t->stopped = false;
	t->going = true;
	return false;
}

/* Those that were signalled, before anybody else goes on: a parent that was stopped as well then finds its child running.
 */
static void continue_signalled(struct stopped *s)
{
	for (size_t i = 0; i < s->count; i++) {
		struct thread *t = &s->threads[i];

		if (t->how != SIGNALLED || t->before)
			continue;
		signalled_continue(&s->signalled, t->pid);
		for (size_t j = 0; j < s->count; j++) /* it has been taken out of the queue, and must not come back */
			if (s->threads[j].pid == t->pid && s->threads[j].signal == SIGSTOP)
				s->threads[j].signal = 0;
	}
}

unsigned stopped_let_go(struct stopped *s)
{
	unsigned count;

	for (size_t i = 0; i < s->count;) /* nothing of ours is left with these */
		if (s->threads[i].how == ASKED)
			forget_thread(s, &s->threads[i]);
		else
			i++;
	stopped_collect(s);
	count = stopped_processes(s);
	continue_signalled(s);
	for (size_t i = 0; i < s->count;)
		if (let_go(&s->threads[i]))
			forget_thread(s, &s->threads[i]);
		else
			i++;
	return count;
}

unsigned stopped_processes(const struct stopped *s)
{
	unsigned count = 0;

	for (size_t i = 0; i < s->count; i++) {
		const struct thread *t = &s->threads[i];

		if (t->tid == t->pid && !t->going && t->how != REFUSED && (is_whole(t) || !find_process(s, t->pid)))
			count++;
	}
	return count;
}
