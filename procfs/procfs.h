/*
 * The one reader of /proc, for the keeper and the command line. Each kind of text is parsed in exactly one place:
 * procfs.c has whole texts, walks over processes, threads and descriptors, and what is said of processes; procfs_locks.c and
 * procfs_mounts.c have the two tables.
 *
 * Procfs may include wire/ and libc, and nothing else of dflock.
 *
 * Do not trust what /proc says: names have line feeds, brackets and " (deleted)" in them; a process may end between two
 * calls, and another process may have its number by then. A parser returns false for a line that the kernel would not
 * write. All functions here may be called by any thread. None walks a path outside /proc, so that no file server is
 * asked; how long the kernel may take to answer is said where it is not a matter of microseconds.
 */
#ifndef DFLOCK_PROCFS_PROCFS_H
#define DFLOCK_PROCFS_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "wire/msg.h"
#include "wire/sys.h"

/* A text that is read again and again into the same memory. Begin with {0}; procfs_free() at the end. */
struct procfs_text {
	char *text; /* ends with NUL */
	size_t len, room;
};

/*
 * Reads the whole of `name` below dirfd, with as few calls as can be: for files that the kernel writes in one piece
 * (fdinfo, stat, comm; not locks, maps or mountinfo). 0, -ENOMEM, or -errno.
 */
int procfs_read(int dirfd, const char *name, struct procfs_text *into);
void procfs_free(struct procfs_text *text);

/* The first size - 1 bytes of a file at the most, ended with NUL. How many, or -errno. */
ssize_t procfs_head(int dirfd, const char *name, char *text, size_t size);

/*
 * Walks over the entries of a directory whose names are numbers: the processes of "/proc", the threads of "task", the
 * descriptors of "fd" below /proc/PID.
 *
 *	for (ret = procfs_walk(&walk, dirfd, "task"); ret == 0 && (tid = procfs_next(&walk)) >= 0;)
 *		...
 *	procfs_walk_end(&walk);
 */
struct procfs_walk {
	int fd;
	long at;        /* where the entry that was returned last ends */
	long next, len; /* of `entries` */
	/* Enough for most processes. The kernel makes an inode for each descriptor that it lists, so more would take long. */
	_Alignas(struct sys_dirent) char entries[2048];
};

/* Begins a walk. 0 or -errno: -ENOENT, -ESRCH: the process has ended; -EACCES: it may not be looked into. dirfd as for
 * openat(). */
int procfs_walk(struct procfs_walk *walk, int dirfd, const char *name);
/* The next number, or -1 at the end. */
int procfs_next(struct procfs_walk *walk);
/* The descriptor of the directory, for readlinkat() and the like. */
int procfs_walk_fd(const struct procfs_walk *walk);
/* The position of the walk; and back to a position, also in a later walk over the same directory. */
long procfs_walk_at(const struct procfs_walk *walk);
void procfs_walk_to(struct procfs_walk *walk, long at);
/* To be called also after procfs_walk() has failed. */
void procfs_walk_end(struct procfs_walk *walk);

/*
 * Does /proc/PID/fd show the descriptors of this thread of the process? Not after the thread's unshare(CLONE_FILES), and of no thread once the
 * first one has ended. False also where kcmp() cannot say (seccomp).
 */
bool procfs_shares_table(pid_t pid, pid_t tid);

/*
 * Does the process have at most PROCFS_FEW descriptors, at most as many threads, and all of them one table? Takes no longer for a process
 * that has a million. True also for a process that has ended.
 */
#define PROCFS_FEW 100
bool procfs_has_few(pid_t pid);

/* Does a path end as the kernel shows that of a file whose name was removed? A real name may end like that, too. *before: how long the
 * path is without that. Pure. */
bool procfs_is_deleted(const char *path, size_t *before);

/* What kind of thing a descriptor refers to, by the link /proc/PID/fd/NUMBER. fds: that directory. */
enum procfs_kind {
	PROCFS_FILE, /* a file, directory, device or named pipe; or it cannot be told: the path is too long */
	PROCFS_SOCKET,
	PROCFS_PIPE,
	PROCFS_ANON, /* epoll, eventfd, a pidfd, ... */
};
enum procfs_kind procfs_kind(int fds, int number);

/*
 * Is /proc what a keeper needs? The keeper finds there the holders of locks and the processes that these started, and
 * stops them by the numbers that it reads. So the numbers must be those of its own pid namespace.
 *
 * 0, or -errno with one line in `why`: what is wrong with /proc, and what to do. -ENOENT: there is no /proc, or it is
 * that of a pid namespace that does not have this process. -EXDEV: it is that of a pid namespace further out. Other
 * errors: /proc/locks cannot be read.
 *
 * hidepid is no fault: root sees everything in spite of it, and another user sees every process that it could look into. (Those
 * that it could only signal are out of its reach then: keeper/kernel/holders.h.)
 */
int procfs_check(char *why, size_t why_size);

/* Is this process in the machine's first pid namespace, and not in a container's? */
bool procfs_is_in_first_namespace(void);

/*
 * fakeroot(1): a preload that tells programs, by geteuid() and stat(), that they are root. The kernel says who this process is
 * (sys_geteuid()); if libc says otherwise, starts this program anew without LD_PRELOAD, and ends the process with a line if it
 * cannot. for_children: what this process starts has LD_PRELOAD again. To be called first in main(); changes the environment.
 */
void procfs_be_oneself(char **argv, bool for_children);

/*
 * --- lock lines, and what fdinfo says of a descriptor ---
 *
 * The kernel's number of a file is the pair (device of its super block, inode number in memory). Lock lines, maps and
 * mountinfo show this pair. It differs from st_dev and st_ino on btrfs (st_dev belongs to a subvolume) and on overlayfs
 * (st_dev and st_ino may belong to a layer).
 */

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
 * Calls back for every lock in /proc/locks that stands while the list is read, and perhaps for others; one may come twice while
 * others come. 0, what cb returned, or -errno; -EAGAIN: so many came and went again and again that one may be missing, and all that
 * were seen have been called back for. The kernel's time for it grows with the square of the number of locks, and no lock can be
 * taken or dropped on the machine while it writes a piece (refind.h, census.c).
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

/* --- processes and threads: stat, schedstat, maps --- */

/* Of a process or a thread. */
struct procfs_stat {
	pid_t pid, parent, group;
	char state;       /* R, S, D, T, t, Z ... */
	unsigned threads; /* that the process has; its first one counts also when it has ended */
	int stop_signal;  /* T: the signal that stopped it; 0: this kernel does not say, or not to us */
	uint64_t started; /* in the kernel's ticks since the machine started: with the pid, names a process */
};

/* The text of /proc/PID/stat. The command in it may have any bytes, also brackets and line feeds. Pure. */
bool procfs_stat(const char *text, struct procfs_stat *out);

/* Reads it: name is "/proc/PID/stat", or below dirfd. False: it is gone. Nothing here waits for the process: the kernel takes no
 * lock for this that a process may hold for long. */
bool procfs_stat_read(int dirfd, const char *name, struct procfs_stat *out);

/* What /proc/TID/status says of a thread. The command is in its first line, with its line feeds escaped, so that no other line can be
 * made up. */
struct procfs_status {
	pid_t process; /* the thread's */
	pid_t tracer;  /* the thread that traces it (ptrace); 0: none */
	uid_t uids[4]; /* real, effective, saved, of the file system */
	unsigned
		numbers; /* in how many pid namespaces it has a number, from that of /proc inwards; 0: the kernel has none */
};

/* False: it is gone, or its status cannot be read. */
bool procfs_status_read(pid_t tid, struct procfs_status *out);

/* For how long a thread has run on a processor; -1: not known, or the thread is gone. */
int64_t procfs_ran_ns(pid_t tid);

/* A line of /proc/PID/maps. */
struct procfs_map {
	uint64_t from, to;
	const char *rights; /* "rw-s", not ended with NUL */
	uint64_t dev, ino;  /* the kernel's number of the file (below); ino 0: of no file */
	const char *name;   /* a path, "[heap]" ..., or ""; points into the line. A line feed in it is shown as \012 */
};

/*
 * "7f95c2eb4000-7f95c2eb5000 rw-s 00000000 00:1b 4879360   /path". The line feed at the end is cut off. False: the kernel
 * would not write such a line. Pure.
 */
bool procfs_map_line(char *line, struct procfs_map *out);

/*
 * Calls back for every mapping of the process. A result other than 0 ends the walk. 0, what cb returned, or -errno.
 * Meanwhile the kernel takes a lock of the process's memory, and waits for that without limit: a thread of the process
 * that maps something on a mount that does not answer has it (mappers.c).
 */
typedef int procfs_map_cb(void *arg, const struct procfs_map *map);
int procfs_maps(pid_t pid, procfs_map_cb *cb, void *arg);

/*
 * --- the mount table ---
 *
 * The mount table: /proc/PID/mountinfo, which the kernel writes without asking any file system. Reading takes about 2 µs
 * for each mount.
 */

/* The texts point into the line. */
struct procfs_mount {
	int id, parent;      /* unique among all namespaces for as long as the mount exists */
	uint64_t dev;        /* of the super block: the kernel's number (below) */
	const char *root;    /* which directory of the file system is mounted there. Not escaped */
	const char *point;   /* below our root. Not escaped: it may have any bytes but NUL */
	const char *options; /* of the mount: "rw,relatime" */
	const char *type;    /* "ext4", "fuse.NAME": the name is the user's choice */
	const char *source;  /* any text, also none; escaped as the kernel has it */
	const char *
		super_options; /* of the file system: "rw,lowerdir=/a:/b". Escaped; a blank is \040, in paths of an overlay, too */
};

/*
 * "36 35 98:0 /root /mount rw,relatime shared:1 - ext4 /dev/sda1 rw,discard". The line is cut into pieces. False: the
 * kernel would not write such a line. Pure.
 */
bool procfs_mount_line(char *line, struct procfs_mount *out);

/* The table of a process's mount namespace; pid 0: our own. NULL with errno set. */
FILE *procfs_mounts_open(pid_t pid);

/*
 * Calls back for every mount, in the kernel's order, which is not that in which they lie on each other. A result other than 0 ends the walk, and is
 * returned. May be called again for the same table. Another namespace's table may have as many lines as its user wants
 * (100,000).
 */
typedef int procfs_mount_cb(void *arg, const struct procfs_mount *mount);
int procfs_mounts(FILE *table, procfs_mount_cb *cb, void *arg);

/* Has the table changed since the last call? True once for each open table and change (POLLPRI). */
bool procfs_mounts_changed(FILE *table);

#endif
