/*
 * See freeze.h.
 *
 * Why nobody slips through: the search is repeated until it finds nothing that is not stopped yet. A process that forks while
 * it is being stopped is traced with TRACEFORK, so the child begins stopped; one that forked before is found as a descendant.
 * A descriptor that was passed to a process that we have seen and found without it is found in the next search: who passes
 * it must run, and everybody who has it is stopped by then.
 */
#include "keeper/freeze.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/family.h"
#include "keeper/holders.h"
#include "keeper/log.h"

#define AFTER_NS    (50 * NS_PER_MS)  /* in which one that is found when the deadline has passed must be stopped */
#define LOST_NS     (100 * NS_PER_MS) /* in which the holders of lost leases are stopped; then they are killed, stopped or not */
#define STOP_OPTION (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK)

enum how {
	TRACED,
	SIGNALLED, /* SIGSTOP: ptrace was refused */
	REFUSED,   /* both were: it is known, so that this is said once */
};

struct thread {
	pid_t pid, tid;
	enum how how;
	int signal;   /* to be delivered when it is let go */
	bool stopped; /* confirmed */
	bool before;  /* SIGNALLED: it was stopped before, and stays so */
	bool killed;
};

struct freezer {
	struct fence *fence;
	pid_t keeper;
	struct thread *threads;
	size_t count, room;
	bool changed;    /* somebody came or went in this round */
	bool froze;      /* the event was logged */
	bool blind;      /* ditto: that nobody can be searched for */
	bool terminated; /* on_lost = kill: SIGTERM was sent */
};

struct freezer *freezer_new(struct fence *fence)
{
	struct freezer *f = calloc(1, sizeof(*f));

	if (f)
		f->fence = fence;
	return f;
}

void freezer_keeper(struct freezer *f, pid_t keeper)
{
	f->keeper = keeper;
}

/* --- threads --- */

static struct thread *find_thread(struct freezer *f, pid_t tid)
{
	for (size_t i = 0; i < f->count; i++)
		if (f->threads[i].tid == tid)
			return &f->threads[i];
	return NULL;
}

static struct thread *add_thread(struct freezer *f, pid_t pid, pid_t tid)
{
	if (f->count == f->room) {
		size_t room = f->room ? 2 * f->room : 64;
		struct thread *threads = realloc(f->threads, room * sizeof(*threads));

		if (!threads)
			return NULL;
		f->threads = threads;
		f->room = room;
	}
	f->threads[f->count] = (struct thread){.pid = pid, .tid = tid};
	f->changed = true;
	return &f->threads[f->count++];
}

static void forget_thread(struct freezer *f, struct thread *t)
{
	*t = f->threads[--f->count];
	f->changed = true;
}

static void publish(struct freezer *f)
{
	uint32_t count = 0;

	for (size_t i = 0; i < f->count; i++) {
		if (f->threads[i].tid != f->threads[i].pid || f->threads[i].how == REFUSED)
			continue;
		if (count < FENCE_FROZEN)
			f->fence->frozen[count] = f->threads[i].pid;
		count++;
	}
	__atomic_store_n(&f->fence->frozen_count, count, __ATOMIC_RELEASE);
}

/* It begins to be traced because of this thread's fork or clone. The kernel may have told of its stop before. */
static void add_child(struct freezer *f, const struct thread *parent, int event)
{
	unsigned long child;
	struct thread *t;
	pid_t pid;

	if (ptrace(PTRACE_GETEVENTMSG, parent->tid, 0, &child) != 0)
		return;
	pid = event == PTRACE_EVENT_CLONE ? parent->pid : (pid_t)child;
	t = find_thread(f, (pid_t)child);
	if (!t)
		add_thread(f, pid, (pid_t)child);
	else
		t->pid = pid;
}

/* One that is not known was born traced, of one that was killed before it could tell. status: the signal and the event. */
static void take_stop(struct freezer *f, pid_t tid, int status)
{
	struct thread *t = find_thread(f, tid);
	int event = status >> 8;

	if (!t)
		t = add_thread(f, tid, tid);
	if (!t) {
		kill(tid, SIGKILL);
		return;
	}
	t->stopped = true;
	if (!event)
		t->signal = status;
	if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
		add_child(f, t, event);
}

/* False: it is no more. */
static bool still_there(struct freezer *f, struct thread *t)
{
	pid_t tid = t->tid;
	int status;

	if (t->how == TRACED) {
		pid_t got = waitpid(tid, &status, __WALL | WNOHANG);

		if (got == tid && WIFSTOPPED(status))
			take_stop(f, tid, status >> 8);
		else if (got == 0 && !t->stopped) /* the first of several threads: its end is told when all have ended */
			t->stopped = family_state(tid) == 'Z';
		return got == 0 || (got == tid && WIFSTOPPED(status));
	}
	if (kill(t->pid, 0) != 0 && errno == ESRCH)
		return false;
	if (t->how == SIGNALLED) {
		t->stopped = family_is_stopped(t->pid);
		if (!t->stopped)
			kill(t->pid, SIGSTOP);
	}
	return true;
}

/* Takes what the kernel has to say of them. */
static void collect(struct freezer *f)
{
	siginfo_t info = {0};

	/* Stops alone: the keeper's end is not for us. */
	while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG | __WALL) == 0 && info.si_pid) {
		if (info.si_code == CLD_TRAPPED)
			take_stop(f, info.si_pid, info.si_status);
		info = (siginfo_t){0};
	}
	for (size_t i = 0; i < f->count;)
		if (still_there(f, &f->threads[i]))
			i++;
		else
			forget_thread(f, &f->threads[i]);
}

/* Where ptrace is refused: the whole process, by SIGSTOP. */
static void stop_process(struct freezer *f, pid_t pid)
{
	bool before = family_state(pid) == 'T';
	bool sent = kill(pid, SIGSTOP) == 0;
	int err = errno;
	struct thread *t;

	if (!sent && err == ESRCH)
		return;
	if (!sent)
		log_error("pid %d holds a lock whose lease runs out, or was started by one that does, and cannot be stopped: %s",
			  (int)pid, strerror(err));
	t = add_thread(f, pid, pid);
	if (!t)
		return; /* it is tried again */
	t->how = sent ? SIGNALLED : REFUSED;
	t->before = before;
	t->stopped = !sent;
}

static void stop_thread(struct freezer *f, pid_t pid, pid_t tid)
{
	if (find_thread(f, tid) || pid == f->keeper || pid == getpid())
		return;
	if (ptrace(PTRACE_SEIZE, tid, 0, STOP_OPTION) == 0) {
		ptrace(PTRACE_INTERRUPT, tid, 0, 0);
		if (!add_thread(f, pid, tid))
			kill(pid, SIGKILL); /* cannot be kept stopped: better it ends than that it goes on */
		return;
	}
	/* A thread that has ended is refused, too, though its process goes on with others. */
	if (errno != ESRCH && family_state(tid) != 'Z' && !find_thread(f, pid))
		stop_process(f, pid);
}

static int on_thread(void *arg, pid_t pid, pid_t tid)
{
	stop_thread(arg, pid, tid);
	return 0;
}

/* --- processes --- */

/* What is searched for: slot[i] is a lease on file[i]. */
struct look {
	struct family *family;
	struct holders_file *files;
	struct fence_slot *slots;
	size_t count;
};

static int on_holder(void *arg, const struct holder *h)
{
	const struct look *look = arg;
	const struct holders_file *file = &look->files[h->file];

	for (size_t i = 0; i < look->count; i++) {
		const struct fence_slot *s = &look->slots[i];

		if (s->dev == file->dev && s->ino == file->ino && s->space == h->space && s->from < h->to && h->from < s->to)
			return family_add(look->family, h->pid);
	}
	return 0;
}

static int take_slots(struct freezer *f, struct look *look, unsigned states)
{
	uint32_t used = __atomic_load_n(&f->fence->used, __ATOMIC_ACQUIRE);

	look->files = malloc((used + 1) * sizeof(*look->files));
	look->slots = malloc((used + 1) * sizeof(*look->slots));
	if (!look->files || !look->slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < used; i++) {
		const struct fence_slot *slot = &f->fence->slots[i];

		if (!(states & 1u << __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE)))
			continue;
		look->files[look->count] = (struct holders_file){.dev = slot->dev, .ino = slot->ino};
		look->slots[look->count++] = *slot;
	}
	return 0;
}

/* Who holds a lock under a lease whose slot has one of these states, and all that they started. */
static void find_family(struct freezer *f, struct family *family, unsigned states)
{
	struct look look = {.family = family};
	int ret = take_slots(f, &look, states);

	if (ret == 0 && look.count)
		ret = holders_find(look.files, look.count, f->keeper, on_holder, &look, NULL);
	if (ret == 0)
		ret = family_add_descendants(family, f->keeper);
	if (ret < 0 && !f->blind)
		log_error("the processes that hold locks cannot be searched for: %s", strerror(-ret));
	f->blind = ret < 0;
	free(look.files);
	free(look.slots);
}

static bool has_slot(const struct freezer *f, unsigned states)
{
	uint32_t used = __atomic_load_n(&f->fence->used, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < used; i++)
		if (states & 1u << __atomic_load_n(&f->fence->slots[i].state, __ATOMIC_ACQUIRE))
			return true;
	return false;
}

static void kill_all(const struct family *family, int signal)
{
	for (size_t i = 0; i < family->count; i++)
		if (family->pids[i] != getpid())
			kill(family->pids[i], signal);
}

/*
 * One round: stops everybody who is to be stopped because of slots in these states, and gives them. False: somebody came or
 * went, or is not confirmed yet.
 */
static bool freeze_round(struct freezer *f, struct family *family, unsigned states)
{
	bool all = true;

	f->changed = false;
	find_family(f, family, states);
	for (size_t i = 0; i < family->count; i++)
		family_threads(family->pids[i], on_thread, f);
	collect(f);
	for (size_t i = 0; i < f->count; i++)
		all = all && f->threads[i].stopped;
	return all && !f->changed;
}

static void kill_unstopped(struct freezer *f)
{
	for (size_t i = 0; i < f->count; i++) {
		struct thread *t = &f->threads[i];

		if (t->stopped || t->killed)
			continue;
		log_error("pid %d could not be stopped in time: it is killed", (int)t->pid);
		kill(t->pid, SIGKILL);
		t->killed = true;
	}
}

/* Rounds until all are stopped or the time is over. family: those who are meant. */
static bool freeze_until(struct freezer *f, struct family *family, unsigned states, int64_t until_ns)
{
	const struct timespec pause = {.tv_nsec = NS_PER_MS};

	while (!freeze_round(f, family, states)) {
		if (clock_now_ns() > until_ns)
			return false;
		family_free(family);
		nanosleep(&pause, NULL);
	}
	return true;
}

/* Those who are not stopped in half of the time that is left are killed. Who does not end even then is waited for in the next
 * looks: one who hangs in the kernel must not keep us from the others. */
static void freeze(struct freezer *f)
{
	int64_t now = clock_now_ns(), left = __atomic_load_n(&f->fence->deadline_ns, __ATOMIC_RELAXED) - now;
	struct family family = {0};

	if (!freeze_until(f, &family, 1u << FENCE_HELD | 1u << FENCE_UNSURE, now + (left > 0 ? left / 2 : AFTER_NS)))
		kill_unstopped(f);
	family_free(&family);
	publish(f);
	if (f->fence->frozen_count && !f->froze) {
		log_error("the store has not answered: %u processes that hold locks, or were started by one that does, are frozen "
			  "until it does", f->fence->frozen_count);
		f->froze = true;
	}
}

/* False: the kernel has not stopped it yet, or it is about to end. Then it is ours until waitpid() has told its end, which its
 * parent is told only after us. */
static bool let_go(struct thread *t)
{
	if (t->how == SIGNALLED && !t->before)
		kill(t->pid, SIGCONT);
	if (t->how != TRACED)
		return true;
	if (t->stopped && ptrace(PTRACE_DETACH, t->tid, 0, (long)t->signal) == 0)
		return true;
	t->stopped = false;
	return false;
}

static void thaw(struct freezer *f)
{
	unsigned count = 0;

	collect(f);
	for (size_t i = 0; i < f->count;) {
		struct thread *t = &f->threads[i];

		if (!let_go(t)) {
			i++;
			continue;
		}
		count += t->tid == t->pid && t->how != REFUSED;
		forget_thread(f, t);
	}
	publish(f);
	if (count && f->froze)
		log_error("the leases stand: %u frozen processes go on", count);
	f->froze = f->terminated = false;
}

static void set_slots(struct freezer *f, enum fence_state from, enum fence_state to)
{
	uint32_t used = __atomic_load_n(&f->fence->used, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < used; i++)
		if (__atomic_load_n(&f->fence->slots[i].state, __ATOMIC_ACQUIRE) == from)
			fence_set(f->fence, i, to);
}

/*
 * The leases are gone: whoever holds locks under them is not protected any more, and must not go on. First all are
 * stopped: one that was killed alone would pass the lock on to somebody here who waits in the kernel, has not
 * been told that he has it, and would be taken for a holder. Who is killed runs no more, however long he takes to end.
 */
static void kill_lost(struct freezer *f)
{
	struct family family = {0};

	set_slots(f, FENCE_LOST, FENCE_ENDING);
	freeze_until(f, &family, 1u << FENCE_ENDING, clock_now_ns() + LOST_NS);
	for (size_t i = 0; i < family.count; i++)
		log_error("pid %d held a lock whose lease was lost, or was started by one that did: it is killed",
			  (int)family.pids[i]);
	kill_all(&family, SIGKILL);
	set_slots(f, FENCE_ENDING, FENCE_FREE);
	family_free(&family);
	collect(f);
	publish(f);
}

/* on_lost = "kill": asked to end when the margin begins, made to when half of it is over. */
static void end_holders(struct freezer *f, int64_t now)
{
	int64_t freeze_at = f->fence->freeze_at_ns, half = freeze_at + (f->fence->deadline_ns - freeze_at) / 2;
	struct family family = {0};

	if (f->terminated && now < half)
		return;
	find_family(f, &family, 1u << FENCE_HELD | 1u << FENCE_UNSURE);
	if (family.count)
		log_error("the store has not answered: %zu processes that hold locks, or were started by one that does, get %s",
			  family.count, now < half ? "SIGTERM" : "SIGKILL");
	kill_all(&family, now < half ? SIGTERM : SIGKILL);
	family_free(&family);
	f->terminated = true;
}

int freezer_look(struct freezer *f, int max_ms)
{
	struct fence *fence = f->fence;
	int64_t now = clock_now_ns(), left_ms;
	int64_t freeze_at = __atomic_load_n(&fence->freeze_at_ns, __ATOMIC_ACQUIRE);
	enum on_lost on_lost = __atomic_load_n(&fence->on_lost, __ATOMIC_RELAXED);
	bool leases = has_slot(f, 1u << FENCE_HELD | 1u << FENCE_UNSURE);

	if (on_lost == ON_LOST_WARN)
		set_slots(f, FENCE_LOST, FENCE_FREE);
	else if (has_slot(f, 1u << FENCE_LOST))
		kill_lost(f);
	if (freeze_at && now >= freeze_at && leases) {
		if (on_lost == ON_LOST_FREEZE)
			freeze(f);
		else if (on_lost == ON_LOST_KILL)
			end_holders(f, now);
		return 20;
	}
	if (f->count && !has_slot(f, 1u << FENCE_UNSURE) && (now < freeze_at || !leases))
		thaw(f);
	if (f->count)
		return 20;
	f->terminated = false;
	left_ms = leases && freeze_at ? (freeze_at - now) / NS_PER_MS + 1 : max_ms;
	return left_ms < max_ms ? (int)left_ms : max_ms;
}
