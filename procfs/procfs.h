/*
 * The one reader of /proc, for the keeper and the command line. Each kind of text is parsed in exactly one place:
 *
 *   procfs.h          texts as a whole, or their first bytes; walks over processes, threads and descriptors; is this /proc the keeper's own?
 *   procfs_locks.h    lock lines (/proc/locks, fdinfo), and fdinfo
 *   procfs_process.h  stat, schedstat, maps
 *   procfs_mounts.h   mountinfo
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

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

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
	DIR *dir;
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
 * Does the process have at most `most` (up to PROCFS_FEW_MAX) descriptors, and at most as many threads? Takes no longer
 * for a process that has a million. True also for a process that has ended or may not be looked into.
 */
#define PROCFS_FEW_MAX 100
bool procfs_has_few(pid_t pid, unsigned most);

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
 * hidepid is no fault: root sees everything in spite of it, and another user sees every process that it could look into
 * or stop.
 */
int procfs_check(char *why, size_t why_size);

/*
 * fakeroot(1): a preload that tells programs, by geteuid() and stat(), that they are root. The kernel says who this process is
 * (sys_geteuid()); if libc says otherwise, starts this program anew without LD_PRELOAD, and ends the process with a line if it
 * cannot. for_children: what this process starts has LD_PRELOAD again. To be called first in main(); changes the environment.
 */
void procfs_be_oneself(char **argv, bool for_children);

#endif
