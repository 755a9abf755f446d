/*
 * Processes that the keeper's parent stops by SIGSTOP because ptrace cannot stop them. They are noted in memory that
 * outlives the parent, so that the next parent lets them go. Also processes that stop themselves because of such a
 * SIGSTOP.
 *
 * The parent of a process sees that SIGSTOP has stopped it. su(1), sudo(8) and other job-control parents then stop
 * themselves, sudo with its whole process group, and wait until they are continued. So the ancestors of a process are
 * noted with it (TABLE_KIN), and when the process goes on, each process goes on, too, that
 *   - is one of these ancestors, or in the process group of one that has stopped itself (TABLE_STOPPED_KIN),
 *   - is stopped by SIGSTOP (a terminal's Ctrl-Z is SIGTSTP), and
 *   - was not stopped when our SIGSTOP was sent (TABLE_BEFORE).
 * Such a parent may be late: it stops itself after it has seen its child stopped, and the child may have gone on
 * meanwhile. So the keeper's parent looks for it for some seconds. If an operator stops such a process with SIGSTOP
 * during the outage, it is continued, too: nothing tells the two cases apart. The rest of a group is left alone as long as
 * the ancestor in it runs: a script and all that it has started are one group, and any of them may be stopped for a reason
 * of its own.
 *
 * One thread. Reads /proc; allocates.
 */
#ifndef DFLOCK_KEEPER_SIGNALLED_H
#define DFLOCK_KEEPER_SIGNALLED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "keeper/kernel/family.h"
#include "keeper/guard/table.h"

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

#endif
