/*
 * Processes that the keeper's parent stops by SIGSTOP because ptrace cannot: notes of them in memory that outlives the
 * parent, so that the next one lets them go; and those who stop because of that.
 *
 * SIGSTOP is seen by the parent of the process that gets it. su(1), sudo(8) and other job-control parents then stop
 * themselves, sudo with its whole process group, and wait for somebody to continue them. So the ancestors of a process
 * are noted with it (TABLE_KIN), and when the process goes on, each process goes on, too, that
 *   - is one of these ancestors, or in the process group of one,
 *   - is stopped by SIGSTOP (a terminal's Ctrl-Z is SIGTSTP), and
 *   - was not stopped when our SIGSTOP was sent (TABLE_BEFORE).
 * Such a parent may be late: it stops itself after it has seen its child stopped, which may have gone on meanwhile. So
 * it is looked for during some seconds. Who stops one of them by hand with SIGSTOP during the outage finds it running
 * after it: nothing tells the two apart.
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
/* Continues those who stopped because of it, if it is time to look for them, and nobody is stopped by SIGSTOP any more. True:
 * to be called again soon. */
bool signalled_continue_kin(struct signalled *signalled);

#endif
