/*
 * May this keeper look into a process and signal it? The kernel allows neither for other users' processes. It allows
 * only signals for programs that may be run but not read (mode 0111), and for programs that asked for that
 * (PR_SET_DUMPABLE).
 *
 * Two calls of open() below /proc; any thread.
 */
#ifndef DFLOCK_KEEPER_SIGHT_H
#define DFLOCK_KEEPER_SIGHT_H

#include <sys/types.h>

enum sight {
	SIGHT_GONE,   /* no such process; also for a pid of 0 or less */
	SIGHT_OPEN,   /* the process may be looked into: its descriptors show what it has */
	SIGHT_SIGNAL, /* it may not be looked into, but it may be signalled */
	SIGHT_BEYOND, /* neither */
};

enum sight sight_of(pid_t pid);

#endif
