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

#define MAX_FILES   256 /* searched for at once */
#define STOP_OPTION (PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK)

struct thread {
	pid_t pid, tid;
	int signal;   /* to be delivered when it is let go */
	bool stopped; /* confirmed */
	bool by_signal; /* SIGSTOP: ptrace was refused */
};

struct freezer {
	struct fence *fence;
	pid_t keeper;
	struct thread *threads;
	size_t count, room;
	bool froze;     /* the event was logged */
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
	return &f->threads[f->count++];
}

static void forget_thread(struct freezer *f, struct thread *t)
{
	*t = f->threads[--f->count];
}

static void publish(struct freezer *f)
{
	uint32_t count = 0;

	for (size_t i = 0; i < f->count; i++) {
		if (f->threads[i].tid != f->threads[i].pid)
			continue;
		if (count < FENCE_FROZEN)
			f->fence->frozen[count] = f->threads[i].pid;
		count++;
	}
	__atomic_store_n(&f->fence->frozen_count, count, __ATOMIC_RELEASE);
}

/* Takes what waitpid has for the traced threads. */
static void collect(struct freezer *f)
{
	for (size_t i = 0; i < f->count;) {
		struct thread *t = &f->threads[i];
		int status;
		pid_t got = t->by_signal ? 0 : waitpid(t->tid, &status, __WALL | WNOHANG);

		if (t->by_signal) {
			if (kill(t->pid, 0) != 0 && errno == ESRCH) {
				forget_thread(f, t);
				continue;
			}
			t->stopped = t->stopped || family_is_stopped(t->pid);
		} else if (got == t->tid && WIFSTOPPED(status)) {
			bool event = status >> 16;

			t->stopped = true;
			if (!event && WSTOPSIG(status) != SIGTRAP)
				t->signal = WSTOPSIG(status);
			if (status >> 16 == PTRACE_EVENT_CLONE || status >> 16 == PTRACE_EVENT_FORK ||
			    status >> 16 == PTRACE_EVENT_VFORK) {
				unsigned long child = 0;

				if (ptrace(PTRACE_GETEVENTMSG, t->tid, 0, &child) == 0 && !find_thread(f, (pid_t)child))
					add_thread(f, status >> 16 == PTRACE_EVENT_CLONE ? t->pid : (pid_t)child, (pid_t)child);
			}
		} else if (got == t->tid || (got < 0 && errno == ECHILD)) {
			forget_thread(f, t); /* it ended */
			continue;
		}
		i++;
	}
}

static void stop_thread(struct freezer *f, pid_t pid, pid_t tid)
{
	struct thread *t;

	if (find_thread(f, tid) || pid == f->keeper || pid == getpid())
		return;
	if (ptrace(PTRACE_SEIZE, tid, 0, STOP_OPTION) == 0) {
		t = add_thread(f, pid, tid);
		ptrace(PTRACE_INTERRUPT, tid, 0, 0);
		if (!t)
			kill(pid, SIGKILL); /* cannot be kept stopped: better it ends than that it goes on */
		return;
	}
	if (errno == ESRCH || tid != pid)
		return;
	t = kill(pid, SIGSTOP) == 0 ? add_thread(f, pid, tid) : NULL;
	if (t)
		t->by_signal = true;
	else
		log_error("pid %d holds a lock whose lease runs out and cannot be stopped: %s", (int)pid, strerror(errno));
}

static int on_thread(void *arg, pid_t pid, pid_t tid)
{
	stop_thread(arg, pid, tid);
	return 0;
}

/* --- processes --- */

static int on_holder(void *arg, const struct holder *h)
{
	return family_add(arg, h->pid);
}

/* Who holds a lock on a file whose slot has one of these states, and all that they started. */
static void find_family(struct freezer *f, struct family *family, unsigned states)
{
	struct holders_file files[MAX_FILES];
	uint32_t used = __atomic_load_n(&f->fence->used, __ATOMIC_ACQUIRE);
	size_t count = 0;

	for (uint32_t i = 0; i < used; i++) {
		const struct fence_slot *slot = &f->fence->slots[i];

		if (!(states & 1u << __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE)))
			continue;
		files[count++] = (struct holders_file){.dev = slot->dev, .ino = slot->ino};
		if (count == MAX_FILES) {
			holders_find(files, count, f->keeper, on_holder, family, NULL);
			count = 0;
		}
	}
	if (count)
		holders_find(files, count, f->keeper, on_holder, family, NULL);
	family_add_descendants(family, f->keeper);
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

/* One round: stops everybody who is to be stopped. False: somebody new was found, or is not confirmed yet. */
static bool freeze_round(struct freezer *f)
{
	struct family family = {0};
	size_t before = f->count;
	bool all = true;

	find_family(f, &family, 1u << FENCE_HELD | 1u << FENCE_UNSURE);
	for (size_t i = 0; i < family.count; i++)
		family_threads(family.pids[i], on_thread, f);
	family_free(&family);
	collect(f);
	for (size_t i = 0; i < f->count; i++)
		all = all && f->threads[i].stopped;
	return all && f->count <= before;
}

static void kill_unstopped(struct freezer *f)
{
	for (size_t i = 0; i < f->count; i++)
		if (!f->threads[i].stopped) {
			log_error("pid %d could not be stopped in time: it is killed", (int)f->threads[i].pid);
			kill(f->threads[i].pid, SIGKILL);
		}
}

static void freeze(struct freezer *f)
{
	const struct timespec pause = {.tv_nsec = NS_PER_MS};
	int64_t deadline = __atomic_load_n(&f->fence->deadline_ns, __ATOMIC_RELAXED);
	int64_t half = clock_now_ns() + (deadline - clock_now_ns()) / 2;
	bool killed = false;

	while (!freeze_round(f)) {
		if (!killed && clock_now_ns() > half) {
			kill_unstopped(f);
			killed = true;
		}
		nanosleep(&pause, NULL);
	}
	publish(f);
	if (f->count && !f->froze) {
		log_error("the store has not answered: %u processes that hold locks, or were started by one that does, are frozen "
			  "until it does", f->fence->frozen_count);
		f->froze = true;
	}
}

static void thaw(struct freezer *f)
{
	unsigned count = f->fence->frozen_count;

	collect(f);
	while (f->count) {
		struct thread *t = &f->threads[0];

		if (t->by_signal)
			kill(t->pid, SIGCONT);
		else
			ptrace(PTRACE_DETACH, t->tid, 0, (long)t->signal);
		forget_thread(f, t);
	}
	publish(f);
	if (f->froze)
		log_error("the leases stand: %u frozen processes go on", count);
	f->froze = f->terminated = false;
}

/* The leases are gone: whoever holds locks under them is not protected any more, and must not go on. */
static void kill_lost(struct freezer *f)
{
	struct family family = {0};
	uint32_t used = __atomic_load_n(&f->fence->used, __ATOMIC_ACQUIRE);

	find_family(f, &family, 1u << FENCE_LOST);
	for (size_t i = 0; i < family.count; i++)
		log_error("pid %d held a lock whose lease was lost: it is killed", (int)family.pids[i]);
	kill_all(&family, SIGKILL);
	for (uint32_t i = 0; i < used && family.count == 0; i++)
		if (f->fence->slots[i].state == FENCE_LOST) /* nobody is left */
			__atomic_store_n(&f->fence->slots[i].state, FENCE_FREE, __ATOMIC_RELEASE);
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

	if (has_slot(f, 1u << FENCE_LOST) && on_lost != ON_LOST_WARN) {
		kill_lost(f);
		return 5;
	}
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
	left_ms = leases ? (freeze_at - now) / NS_PER_MS + 1 : max_ms;
	return left_ms < max_ms ? (int)left_ms : max_ms;
}
