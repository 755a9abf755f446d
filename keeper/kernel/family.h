/* Sets of processes: some, and all that they started. Reads /proc; allocates; any thread. */
#ifndef DFLOCK_KEEPER_FAMILY_H
#define DFLOCK_KEEPER_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct family {
	pid_t *pids;
	size_t count, room;
};

/* Adds one if it is not there. 0 or -ENOMEM. */
int family_add(struct family *family, pid_t pid);
/* Adds all descendants of its members, but for `except` and what that started. 0 or -errno. */
int family_add_descendants(struct family *family, pid_t except);
bool family_has(const struct family *family, pid_t pid);
void family_free(struct family *family);

/* Calls back for every thread of a process; anything but 0 ends it. A process that is gone has none. */
int family_threads(pid_t pid, int (*cb)(void *arg, pid_t pid, pid_t tid), void *arg);
/* What /proc/PID/stat says of a process or thread. */
struct family_stat {
	pid_t pid, parent, group;
	char state;       /* R, S, D, T, t, Z ... */
	int stop_signal;  /* T: the signal that stopped it; 0: this kernel does not say, or not to us */
	uint64_t started; /* in the kernel's ticks: with the pid, names a process */
};

/* False: it is gone. */
bool family_stat(pid_t pid, struct family_stat *stat);
/* All processes that are visible, for the caller to free. 0 or -errno. */
int family_all(struct family_stat **all, size_t *count);
/* Its state; 0: it is gone. */
char family_state(pid_t pid);
/* When it was started; 0: it is gone. */
uint64_t family_started(pid_t pid);
/* Does none of its threads run: is each stopped (T, t) or at its end? True also if it is gone. */
bool family_is_stopped(pid_t pid);
/* The same, or does it wait in the kernel where no signal wakes it (D)? */
bool family_is_held(pid_t pid);
/* For how long a thread has been on a processor; -1: not known, or gone. */
int64_t family_ran_ns(pid_t tid);
/* Was it stopped by a signal: all its threads (T), but for those at their end? */
bool family_has_stop(pid_t pid);

#endif
