/*
 * Stops processes, and lets them go. The means is PTRACE_SEIZE and PTRACE_INTERRUPT of each thread, with EXITKILL: if
 * the parent dies, the processes die with it, since no process would watch them any more. What they fork is traced from
 * its first moment. Where ptrace is refused, or does not return in time (stopped.c), the means is SIGSTOP (signalled.c).
 *
 * A process that got SIGSTOP stays stopped when the parent dies. So each is noted, before it gets the signal, in memory
 * that outlives the parent, and the next parent lets it go: otherwise the next parent would take it for a process that
 * an operator had stopped.
 *
 * To be called from one thread only, since ptrace belongs to a thread. None of these functions waits for one of the
 * processes.
 */
#ifndef DFLOCK_KEEPER_STOPPED_H
#define DFLOCK_KEEPER_STOPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uthash.h>

#include "keeper/guard/table.h"
#include "keeper/kernel/family.h"

/*
 * --- threads.c ---
 *
 * The table of threads and processes that the parent has stopped, or is about to stop. An entry is found by its number in
 * constant time: a holder may have started ten thousand processes.
 *
 * An entry is a thread that is stopped by ptrace (ASKED, TRACED), or a whole process that is stopped by SIGSTOP
 * (SIGNALLED, REFUSED). One process may have both: threads that are still ASKED, and SIGSTOP.
 *
 * Without memory the table stays as it is: the parent must go on then, and stop the others.
 *
 * "Inert" is a thread that is not confirmed stopped, and cannot run one instruction of its program before it is: its stop
 * is pending, and it waits in the kernel (state D), as a parent in vfork() does for a child that we stopped, or a thread
 * whose file system does not answer. What it asked the kernel for may still be done.
 */

enum thread_how {
	THREAD_ASKED,     /* PTRACE_SEIZE did not come back at once: it is tried again */
	THREAD_TRACED,    /* its stop is pending, or confirmed */
	THREAD_SIGNALLED, /* a process: SIGSTOP is pending, or confirmed */
	THREAD_REFUSED,   /* a process: both ways were refused; noted so that it is logged once */
};

struct thread {
	pid_t pid, tid; /* the same for a process */
	pid_t key;      /* threads.c's */
	bool added;     /* threads.c's */
	enum thread_how how;
	int signal;       /* TRACED: to be delivered when it is let go */
	bool stopped;     /* confirmed */
	bool before;      /* SIGNALLED: it was stopped before, and stays so, unless somebody continues it */
	bool at_mercy;    /* SIGNALLED: another process traces a thread of it, and is not stopped */
	bool killed;      /* it got SIGKILL from the parent, and only has to end */
	bool going;       /* TRACED: to be let go as soon as its stop is confirmed */
	unsigned tries;   /* ASKED: how often */
	uint64_t stores;  /* SLOTS_OF() of the stores for whose leases its process is stopped */
	int64_t asked_ns; /* ASKED: when first */
	int64_t again_ns; /* ASKED: not again before this */
	uint64_t
		started; /* all but TRACED: family_started(), which tells it from a later one with the same number; 0: not known */
	int64_t ran_ns; /* threads_watch(): its time on a processor; 0: it was inert then */
	UT_hash_handle hh;
};

struct threads {
	struct thread *all; /* in the order in which they were added: hh.next */
	bool changed;       /* an entry was added or removed; the user of the table resets it */
};

unsigned threads_count(const struct threads *threads);
/* NULL: there is none. */
struct thread *threads_find(const struct threads *threads, pid_t tid);
struct thread *threads_find_process(const struct threads *threads, pid_t pid);
/* Adds a copy, which stays where it is until it is removed. NULL: no memory. */
struct thread *threads_add(struct threads *threads, const struct thread *thread);
void threads_remove(struct threads *threads, struct thread *thread);
/* Are all confirmed stopped? */
bool threads_all_stopped(const struct threads *threads);
/* These processes got SIGKILL. */
void threads_note_killed(struct threads *threads, const struct family *family);
/* The number of processes, also of those whose first thread has ended; without those that are only waiting to be let go or to end, or
 * that could not be stopped at all. */
unsigned threads_processes(const struct threads *threads);

/* Is each thread confirmed stopped, or inert? */
bool threads_all_inert(const struct threads *threads);
/*
 * threads_watch() notes how long each of the other threads has been on a processor. threads_kill_others() kills, once each,
 * those that are still not inert and have run since, or can be continued by a tracer that is not stopped. It does not kill
 * a thread whose stop is pending and that only waits for a processor. What they have started is killed with them: where the lock ends with
 * its holder (`flock -o`), no lease would lead to it any more. It adds those that it kills to `killed`, which begins with {0}.
 */
void threads_watch(struct threads *threads);
void threads_kill_others(struct threads *threads, struct family *killed);

/*
 * --- signalled.c ---
 *
 * Processes that the keeper's parent stops by SIGSTOP because ptrace cannot stop them. They are noted in memory that
 * outlives the parent, so that the next parent lets them go. Also processes that stop themselves because of such a
 * SIGSTOP.
 *
 * The parent of a process sees that SIGSTOP has stopped it. su(1), sudo(8) and other job-control parents then stop
 * themselves, sudo with its whole process group, and wait until they are continued. So the ancestors of a process are
 * noted with it (TABLE_KIN), and when the process goes on, each process goes on, too, that
 *   - is such an ancestor, or in the process group of an ancestor that has stopped itself (TABLE_STOPPED_KIN),
 *   - is stopped by SIGSTOP (a terminal's Ctrl-Z is SIGTSTP), and
 *   - was not stopped when our SIGSTOP was sent (TABLE_BEFORE).
 * Such a parent may be late: it stops itself after it has seen its child stopped, and the child may have gone on
 * meanwhile. So the keeper's parent looks for it for some seconds. If an operator stops such a process with SIGSTOP
 * during the outage, it is continued, too: nothing tells the two cases apart. The rest of a group is left alone as long as
 * the ancestor in it runs: a script and all that it has started are one group, and any of them may be stopped for a reason
 * of its own.
 *
 * Reads /proc; allocates.
 */

struct signalled {
	struct table_signalled *noted; /* not owned; TABLE_OURS may take all of it, the other kinds half */
	size_t room;
	struct procfs_stat *before; /* all processes as they were before the first SIGSTOP of this freeze */
	size_t before_count;
	int64_t kin_until_ns;  /* 0: the kin is not looked after (now) */
	int64_t kin_looked_ns; /* when they were looked for last */
};

/* Takes up an earlier parent's notes; those of processes that have ended are dropped. */
void signalled_init(struct signalled *signalled, struct table_signalled *noted, size_t room);
/* Before SIGSTOP is sent to it. */
void signalled_note(struct signalled *signalled, pid_t pid);
/* It was not sent, or the process has ended. */
void signalled_forget(struct signalled *signalled, pid_t pid);
/* SIGCONT. */
void signalled_continue(struct signalled *signalled, pid_t pid);
/* Continues processes that stopped because of SIGSTOP, if it is time to look for them and no process is stopped by
 * SIGSTOP any more. True: to be called again soon. */
bool signalled_continue_kin(struct signalled *signalled);

/* --- pure: for the functions above, and tests --- */

/* Notes a process, unless there is no room. */
void signalled_add(struct signalled *signalled, const struct procfs_stat *process, enum table_noted noted);
/* Notes an ancestor, and those processes of its group that were stopped before (signalled->before). */
void signalled_note_kin(struct signalled *signalled, const struct procfs_stat *kin);
/* Notes which of the ancestors are stopped by SIGSTOP now, and were not before. all: the processes that exist now. */
void signalled_note_stopped(struct signalled *signalled, const struct procfs_stat *all, size_t count);
/* Must this process be continued by the rules above? */
bool signalled_is_to_go_on(const struct signalled *signalled, const struct procfs_stat *process,
			   const struct procfs_stat *all, size_t count);

/* --- stopped.c --- */

struct stopped {
	pid_t keeper; /* never touched, as the caller itself */
	struct threads threads;
	struct signalled signalled;
	int64_t limit_ns; /* for how long PTRACE_SEIZE may be tried before a process gets SIGSTOP */
	int64_t lost_ns;  /* how long this freeze has waited for it in vain */
};

/* The processes that get SIGSTOP will be noted in `noted`. Takes up those that an earlier parent noted there. */
void stopped_adopt(struct stopped *stopped, struct table_signalled *noted, size_t room);
/* Another freeze begins, or another limit applies. */
void stopped_limit(struct stopped *stopped, int64_t limit_ns);
/* Begins to stop all threads of a process, and what else traces them, for leases in these stores (SLOTS_OF()). Threads that are in the
 * table are left as they are, but that they are stopped for these stores, too. */
void stopped_stop(struct stopped *stopped, pid_t pid, uint64_t stores);
/* For which stores are there stopped threads? */
uint64_t stopped_stores(const struct stopped *stopped);
/* Are there threads that are stopped for another store, or that could not go when they were let go? */
bool stopped_may_go(const struct stopped *stopped, uint64_t still);
/* Collects the kernel's reports: which threads have stopped, were born, or have ended. Repeats attempts that failed. */
void stopped_collect(struct stopped *stopped);
/*
 * Lets all processes go that are not stopped for one of the stores in `still` (SLOTS_OF()): a process as a whole or not at all. Those that
 * an earlier parent stopped, or whose beginning was missed, count for all stores. Returns how many went. Threads that cannot go
 * at once stay in the table: call it again.
 */
unsigned stopped_let_go(struct stopped *stopped, uint64_t still);

#endif
