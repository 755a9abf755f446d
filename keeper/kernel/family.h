/*
 * Sets of processes with all their descendants; and whether the threads of a process run. Reads /proc; allocates; any
 * thread. Nothing here waits for a process that hangs.
 */
#ifndef DFLOCK_KEEPER_FAMILY_H
#define DFLOCK_KEEPER_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/array.h"
#include "procfs/procfs.h"

/* Begin with {0}. */
struct family {
	UT_array pids;                 /* in the order in which they were added */
	struct family_member *members; /* the same, by hash */
};

size_t family_count(const struct family *family);
pid_t family_at(const struct family *family, size_t i);
bool family_has(const struct family *family, pid_t pid);
/* Adds one if it is not there. 0, or -ENOMEM: it is not there. */
int family_add(struct family *family, pid_t pid);
/* Notes which descriptor of a member shows its lock, and under which claim that is: the tag (claims.h). The first note stays. */
void family_show(struct family *family, pid_t pid, int fd, uint64_t tag);
/* What was noted: the descriptor. -1: nothing, or it is no member. */
int family_shown(const struct family *family, pid_t pid, uint64_t *tag);
/* What a member was found for: the caller's bits, which are added to those that it has. True: it did not have all of them. */
bool family_mark(struct family *family, pid_t pid, uint64_t marks);
uint64_t family_marks(const struct family *family, pid_t pid); /* 0 also if it is no member */
/* Takes these bits from all members; those that have none then are members no more. Without memory nothing is changed. */
void family_unmark(struct family *family, uint64_t marks);
/* Copies members of `from` to `family`: those that have one of these marks, and have not ended since family_add_descendants() saw them.
 * The copies have no other marks than these. 0 or -ENOMEM. */
int family_add_living(struct family *family, const struct family *from, uint64_t marks);
/* Has this member ended since family_add_descendants() saw it? Another process may have its number. False if that has not seen it. */
bool family_member_has_ended(const struct family *family, pid_t pid);
/* Adds all descendants of its members, except `except` and its descendants. They get the marks of those that they descend from. 0 or -errno. */
int family_add_descendants(struct family *family, pid_t except);
/* The same where `all` are the processes that there are; sorts them. Pure. */
int family_add_descendants_of(struct family *family, pid_t except, struct procfs_stat *all, size_t count);
void family_free(struct family *family);

/* Calls back for every thread of a process. A result other than 0 ends the walk, and is returned. A process that is
 * gone has no threads. */
int family_threads(pid_t pid, int (*cb)(void *arg, pid_t pid, pid_t tid), void *arg);
/* What /proc/PID/stat says of a process or thread. False: it is gone. */
bool family_stat(pid_t pid, struct procfs_stat *stat);
/* All processes that are visible, from malloc(), for the caller to free. 0 or -errno. */
int family_all(struct procfs_stat **all, size_t *count);
/* The owner of /proc/PID: its effective user, or root if it is not dumpable. False: it is gone. */
bool family_owner(pid_t pid, uid_t *owner);
/* Its state; 0: it is gone. */
char family_state(pid_t pid);
/* When it was started (procfs_stat); 0: it is gone. */
uint64_t family_started(pid_t pid);
/* The process of the thread that traces this thread (ptrace); 0: there is none, or the thread is gone. */
pid_t family_tracer(pid_t tid);
/* Has the thread that had this number and was started then ended? A thread that nobody waits for (Z) has ended, too. False also if it
 * cannot be told, for want of a descriptor or memory. */
bool family_has_ended(pid_t tid, uint64_t started);
/* Has the process ended, with all its threads? The first one may end before others. */
bool family_process_has_ended(pid_t pid, uint64_t started);
/* Does none of its threads run: is each stopped (T, t) or at its end? True also if it is gone. */
bool family_is_stopped(pid_t pid);
/* The same, but a thread may also wait in the kernel where no signal wakes it (D). */
bool family_is_held(pid_t pid);
/* Was it stopped by a signal: all its threads (T), but for those at their end? */
bool family_has_stop(pid_t pid);

#endif
