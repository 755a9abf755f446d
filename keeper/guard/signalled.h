/*
 * Processes that the keeper's parent stops by SIGSTOP because ptrace cannot: notes of them in memory that outlives the
 * parent, so that the next parent lets them go; and processes that stop themselves because of that.
 *
 * SIGSTOP is seen by the parent of the process that gets it. su(1), sudo(8) and other job-control parents then stop
 * themselves, sudo with its whole process group, and wait until they are continued. So the ancestors of a process
 * are noted with it (TABLE_KIN), and when the process goes on, each process goes on, too, that
 *   - is one of these ancestors, or in the process group of one,
 *   - is stopped by SIGSTOP (a terminal's Ctrl-Z is SIGTSTP), and
 *   - was not stopped when our SIGSTOP was sent (TABLE_BEFORE).
 * Such a parent may be late: it stops itself after it has seen its child stopped, which may have gone on meanwhile. So
 * it is looked for during some seconds. A process of these that an operator stops with SIGSTOP during the outage is
 * continued, too: nothing tells the two apart.
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
	struct table_signalled *noted; /* not owned; the TABLE_OURS may take all of it, the others half */
	size_t room;
	struct family_stat *before; /* all processes as they were before the first SIGSTOP of this freeze */
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
/* Continues processes that stopped because of it, if it is time to look for them, and the parent has none stopped by SIGSTOP
 * any more. True: to be called again soon. */
bool signalled_continue_kin(struct signalled *signalled);

/* --- pure: for the functions above, and tests --- */

/* Notes a process, unless there is no room. */
void signalled_add(struct signalled *signalled, const struct family_stat *process, enum table_noted noted);
/* Notes an ancestor, and the processes of its group that were stopped before (signalled->before). */
void signalled_note_kin(struct signalled *signalled, const struct family_stat *kin);
/* Is this process to be continued by the rules above? all: the processes that there are now. */
bool signalled_is_to_go_on(const struct signalled *signalled, const struct family_stat *process,
			   const struct family_stat *all, size_t count);

#endif
