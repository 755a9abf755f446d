/*
 * Which processes hold a kernel lock: searches /proc for processes that have locked one of several files.
 *
 * Every descriptor of every process is looked at once, however many files there are: /proc/PID/fdinfo has a "lock:"
 * line for each lock that the description or the process has, with the kernel's number of the file (procfs.h), which
 * leads by hash to the files of the search.
 *
 * What it cannot see: processes of other users unless the caller is root (they are counted); a description that has no
 * descriptor any more and lives on in a mapping or in a message on its way (census.h finds these, too).
 *
 * Blocking (it reads /proc for as long as that takes, a few microseconds per descriptor): for a worker thread, or the
 * keeper's parent. No single process or mount can hold it up: it opens no file outside /proc, walks no path, and takes
 * no lock of a process's memory. Where the kernel's number does not tell files apart (btrfs, overlayfs), and for
 * command lines, it starts errands (errand.h), and waits for each for a moment at most.
 */
#ifndef DFLOCK_KEEPER_HOLDERS_H
#define DFLOCK_KEEPER_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/kernel/claims.h"
#include "keeper/kernel/command.h"
#include "procfs/procfs.h"
#include "wire/msg.h"

/*
 * May this keeper look into a process and signal it? The kernel allows neither for other users' processes. It allows
 * only signals for programs that may be run but not read (mode 0111), and for programs that asked for that
 * (PR_SET_DUMPABLE). With hidepid=2, /proc does not have these, so that their threads could not be stopped: SIGHT_BEYOND.
 *
 * A few calls below /proc; any thread.
 */
enum sight {
	SIGHT_GONE,   /* no such process; also for a pid of 0 or less */
	SIGHT_OPEN,   /* the process may be looked into: its descriptors show what it has */
	SIGHT_SIGNAL, /* it may not be looked into, but it may be signalled */
	SIGHT_BEYOND, /* neither */
};

enum sight sight_of(pid_t pid);

/* How it is known that a process has the lock. The last three: no descriptor shows it (census.h). */
enum holder_how {
	HOLDER_SHOWN,  /* by a descriptor */
	HOLDER_TAKER,  /* the process took it, and runs */
	HOLDER_MAPPER, /* the process has the file mapped */
	HOLDER_NOBODY, /* no process is known, or may be looked into: pid 0 */
};

/* One lock of one process. */
struct holder {
	enum holder_how how;
	enum sight sight; /* unless HOLDER_SHOWN. HOLDER_NOBODY: SIGHT_BEYOND */
	size_t file;      /* index of the file in the search */
	pid_t pid;
	int fd; /* of that process, one of those that have the lock */
	enum wire_space space;
	enum wire_owner owner; /* WIRE_OWNER_PROCESS: a POSIX lock. flock and OFD locks belong to the description */
	enum wire_mode mode;
	int64_t from, to;     /* half open; flock: 0, WIRE_EOF */
	pid_t locker;         /* the process that took it, which may have ended; -1: OFD locks */
	int64_t started;      /* of the process, Unix time in seconds; 0: unknown */
	uint64_t start_ticks; /* the same as /proc/PID/stat has it: with pid, names the process; 0: unknown */
	const char *command;  /* HOLDERS_COMMANDS: command.h; else "" */
};

/*
 * holder and what it points to are valid during the call. A result other than 0 and HOLDERS_LATER ends the search,
 * which returns it.
 */
typedef int holders_cb(void *arg, const struct holder *holder);
/* With HOLDERS_AT_ONCE: skips the rest of this process; if there is a `seen`, puts it off until all other processes
 * were looked at. */
#define HOLDERS_LATER 4711

/* Called for each lock line with the kernel's number of one of the files, also if the line is of another file with that
 * number. A result other than 0 ends the search. */
typedef int holders_seen_cb(void *arg, const struct procfs_lock *lock);

enum holders_how {
	/*
	 * cb is called as soon as a lock is found, in any order; a lock with several descriptors comes several times;
	 * started and start_ticks are 0. No process takes more than its turn: the search goes on with processes that
	 * have many descriptors, or locks, after it has looked at all others. A turn is short at first, and then twice as
	 * long each time: so it does not matter to a process how many others have more than it. Without this flag: all
	 * locks of a process together, each once.
	 */
	HOLDERS_AT_ONCE = 1 << 0,
	HOLDERS_COMMANDS = 1 << 1, /* not with HOLDERS_AT_ONCE */
};

struct holders_search {
	const struct holders_file *files;
	size_t count;
	const pid_t *pids; /* only these processes are looked at; NULL: all */
	size_t pid_count;
	pid_t ignore_pid; /* left out; 0: none. For the keeper itself, whose probe shows up like any other lock */
	unsigned how;
	holders_cb *cb;
	holders_seen_cb *seen; /* or NULL */
	/* Or NULL. Called when all processes were looked at but for those that have more than their first turn, and then after each turn. A
	 * result other than 0 ends the search, which returns it. Without HOLDERS_AT_ONCE, a process has turns, too, if there is a `turn`: each
	 * begins anew, until one suffices. */
	int (*turn)(void *arg);
	void *arg;
	size_t unseen; /* result: processes that could not be looked into */
};

/*
 * Calls back for every lock on the files. A process that ends meanwhile is no error. A process that may not be looked
 * into (EACCES, or the kernel has no memory for all its locks) only counts as unseen. Returns 0; what a callback
 * returned if not 0; -ENOMEM; or -errno if /proc cannot be read, or if descriptors ran out: then everything was looked
 * at that could be.
 */
int holders_search(struct holders_search *search);

/* The same for one file and one process, without its command. -EACCES: the process may not be looked into; 0 if it has
 * ended. */
int holders_of_process(pid_t pid, const struct holders_file *file, holders_cb *cb, void *arg);

#endif
