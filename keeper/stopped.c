/* See stopped.h. */
#include "keeper/stopped.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/family.h"
#include "keeper/log.h"

#define STOP_OPTION (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK)

static struct thread *find_thread(struct stopped *s, pid_t tid)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->threads[i].tid == tid)
			return &s->threads[i];
	return NULL;
}

static struct thread *add_thread(struct stopped *s, pid_t pid, pid_t tid)
{
	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		struct thread *threads = realloc(s->threads, room * sizeof(*threads));

		if (!threads)
			return NULL;
		s->threads = threads;
		s->room = room;
	}
	s->threads[s->count] = (struct thread){.pid = pid, .tid = tid};
	s->changed = true;
	return &s->threads[s->count++];
}

static void forget_thread(struct stopped *s, struct thread *t)
{
	*t = s->threads[--s->count];
	s->changed = true;
}

static struct fence_signalled *find_noted(const struct stopped *s, pid_t pid)
{
	for (size_t i = 0; i < s->noted_room; i++)
		if (s->noted[i].pid == pid)
			return &s->noted[i];
	return NULL;
}

static void note(const struct stopped *s, pid_t pid)
{
	struct fence_signalled *free_one = find_noted(s, 0);

	if (!free_one) /* more than anybody has seen; the next of us would take it for one that was stopped before */
		return;
	free_one->started = family_started(pid);
	__atomic_store_n(&free_one->pid, pid, __ATOMIC_RELEASE);
}

static void unnote(const struct stopped *s, pid_t pid)
{
	struct fence_signalled *noted = find_noted(s, pid);

	if (noted)
		__atomic_store_n(&noted->pid, 0, __ATOMIC_RELEASE);
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
		add_thread(s, pid, (pid_t)child);
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
		t = add_thread(s, tid, tid);
	if (!t) {
		kill(tid, SIGKILL);
		return;
	}
	t->stopped = true;
	if (!event)
		t->signal = status;
	if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
		add_child(s, t, event);
}

/* False: it is no more. */
static bool still_there(struct stopped *s, struct thread *t)
{
	pid_t tid = t->tid;
	int status;

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
		unnote(s, t->pid);
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
		if (still_there(s, &s->threads[i]))
			i++;
		else
			forget_thread(s, &s->threads[i]);
}

void stopped_adopt(struct stopped *s, struct fence_signalled *noted, size_t room)
{
	s->noted = noted;
	s->noted_room = room;
	for (size_t i = 0; i < room; i++) {
		struct thread *t = NULL;

		if (!noted[i].pid)
			continue;
		if (family_started(noted[i].pid) == noted[i].started)
			t = add_thread(s, noted[i].pid, noted[i].pid);
		if (t)
			t->how = SIGNALLED;
		else
			noted[i].pid = 0; /* it has ended, and another has its number */
	}
}

/* Where ptrace is refused: the whole process, by SIGSTOP. */
static void stop_process(struct stopped *s, pid_t pid)
{
	bool before = family_has_stop(pid), sent;
	struct thread *t;
	int err;

	if (!before)
		note(s, pid);
	sent = kill(pid, SIGSTOP) == 0;
	err = errno;
	if (!sent)
		unnote(s, pid);

	if (!sent && err == ESRCH)
		return;
	if (!sent)
		log_error("pid %d holds a lock whose lease runs out, or was started by one that does, and cannot be "
			  "stopped: %s",
			  (int)pid, strerror(err));
	t = add_thread(s, pid, pid);
	if (!t)
		return; /* it is tried again */
	t->how = sent ? SIGNALLED : REFUSED;
	t->before = before;
	t->stopped = !sent;
}

static void stop_thread(struct stopped *s, pid_t pid, pid_t tid)
{
	if (find_thread(s, tid) || pid == s->keeper || pid == getpid())
		return;
	if (ptrace(PTRACE_SEIZE, tid, 0, STOP_OPTION) == 0) {
		ptrace(PTRACE_INTERRUPT, tid, 0, 0);
		if (!add_thread(s, pid, tid))
			kill(pid, SIGKILL); /* cannot be kept stopped: better it ends than that it goes on */
		return;
	}
	/* A thread that has ended is refused, too, though its process goes on with others. */
	if (errno != ESRCH && family_state(tid) != 'Z' && !find_thread(s, pid))
		stop_process(s, pid);
}

static int on_thread(void *arg, pid_t pid, pid_t tid)
{
	stop_thread(arg, pid, tid);
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

void stopped_kill_rest(struct stopped *s)
{
	for (size_t i = 0; i < s->count; i++) {
		struct thread *t = &s->threads[i];

		if (t->stopped || t->killed)
			continue;
		log_error("pid %d could not be stopped in time: it is killed", (int)t->pid);
		kill(t->pid, SIGKILL);
		t->killed = true;
	}
}

/* False: the kernel has not stopped it yet, or it is about to end. Then it is ours until waitpid() has told its end,
 * which its parent is told only after us. */
static bool let_go(const struct stopped *s, struct thread *t)
{
	if (t->how == SIGNALLED && !t->before) {
		kill(t->pid, SIGCONT);
		unnote(s, t->pid);
	}
	if (t->how != TRACED)
		return true;
	if (t->stopped && ptrace(PTRACE_DETACH, t->tid, 0, (long)t->signal) == 0)
		return true;
	t->stopped = false;
	return false;
}

unsigned stopped_let_go(struct stopped *s)
{
	unsigned count = 0;

	stopped_collect(s);
	for (size_t i = 0; i < s->count;) {
		struct thread *t = &s->threads[i];

		if (!let_go(s, t)) {
			i++;
			continue;
		}
		count += t->tid == t->pid && t->how != REFUSED;
		forget_thread(s, t);
	}
	return count;
}

unsigned stopped_processes(const struct stopped *s)
{
	unsigned count = 0;

	for (size_t i = 0; i < s->count; i++)
		count += s->threads[i].tid == s->threads[i].pid && s->threads[i].how != REFUSED;
	return count;
}
