/*
 * Lock lines, and what fdinfo says of a descriptor.
 *
 * The kernel's number of a file is the pair (device of its super block, inode number in memory). Lock lines, maps and
 * mountinfo show this pair. It differs from st_dev and st_ino on btrfs (st_dev belongs to a subvolume) and on overlayfs
 * (st_dev and st_ino may belong to a layer).
 */
#ifndef DFLOCK_PROCFS_PROCFS_LOCKS_H
#define DFLOCK_PROCFS_PROCFS_LOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "procfs/procfs.h"
#include "wire/msg.h"

/* One lock as /proc/locks and /proc/PID/fdinfo/FD show it. */
struct procfs_lock {
	uint64_t dev, ino; /* the kernel's number of the file */
	enum wire_space space;
	enum wire_owner owner; /* WIRE_OWNER_PROCESS: a POSIX lock */
	enum wire_mode mode;
	int64_t from, to; /* half open; flock: 0, WIRE_EOF */
	pid_t locker;     /* the process that took it, which may have ended; -1: OFD locks */
};

/*
 * "lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF" of fdinfo; the same without "lock:\t" of /proc/locks. False
 * for any other line: leases, delegations, calls that wait ("1: -> FLOCK ...", in /proc/locks), and what the kernel does
 * not write. Pure.
 */
bool procfs_lock_line(const char *line, struct procfs_lock *out);
/* The same for a call that waits: *out is the lock that it waits for, and its locker the process that waits. Pure. */
bool procfs_wait_line(const char *line, struct procfs_lock *out);

/* A result other than 0 ends the reading, which returns it. */
typedef int procfs_lock_cb(void *arg, const struct procfs_lock *lock);

/*
 * Calls back for every lock in /proc/locks. 0, what cb returned, or -errno. The kernel's time for it grows with the square
 * of the number of locks, and no lock can be taken or dropped on the machine meanwhile (listed.h, census.c).
 */
int procfs_locks(procfs_lock_cb *cb, void *arg);
/* The same for every call in /proc/locks that waits. */
int procfs_waits(procfs_lock_cb *cb, void *arg);

/* What fdinfo says of the descriptor itself. */
struct procfs_fdinfo {
	int mount_id; /* -1: not shown */
	uint64_t ino; /* the kernel's inode number; 0: not shown (before Linux 5.14) */
};

/* Parses the text of fdinfo, which is changed; pure. info may be NULL, and so may cb, which is called for every lock line. 0, or
 * what cb returned. */
int procfs_fdinfo(char *text, struct procfs_fdinfo *info, procfs_lock_cb *cb, void *arg);

/* The same for a descriptor of this process: the text is read as a whole, which takes longer the more locks there are. 0, what
 * cb returned, or -errno; then *info says that nothing is shown. */
int procfs_fdinfo_of(int fd, struct procfs_fdinfo *info, procfs_lock_cb *cb, void *arg);
/* The same without locks, for a descriptor of this process. 0; or -errno, and then *info says that nothing is shown. */
int procfs_fdinfo_head(int fd, struct procfs_fdinfo *info);

#endif
