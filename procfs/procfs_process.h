/* What /proc says of processes and threads: stat, schedstat, maps. */
#ifndef DFLOCK_PROCFS_PROCFS_PROCESS_H
#define DFLOCK_PROCFS_PROCFS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of a process or a thread. */
struct procfs_stat {
	pid_t pid, parent, group;
	char state;       /* R, S, D, T, t, Z ... */
	int stop_signal;  /* T: the signal that stopped it; 0: this kernel does not say, or not to us */
	uint64_t started; /* in the kernel's ticks since the machine started: with the pid, names a process */
};

/* The text of /proc/PID/stat. The command in it may have any bytes, also brackets and line feeds. Pure. */
bool procfs_stat(const char *text, struct procfs_stat *out);

/* Reads it: name is "/proc/PID/stat", or below dirfd. False: it is gone. Nothing here waits for the process: the kernel takes no
 * lock for this that a process may hold for long. */
bool procfs_stat_read(int dirfd, const char *name, struct procfs_stat *out);

/* For how long a thread has run on a processor; -1: not known, or the thread is gone. */
int64_t procfs_ran_ns(pid_t tid);

/* A line of /proc/PID/maps. */
struct procfs_map {
	uint64_t from, to;
	const char *rights; /* "rw-s", not ended with NUL */
	uint64_t dev, ino;  /* the kernel's number of the file (procfs_locks.h); ino 0: of no file */
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
 * that maps something on a mount that does not answer has it (mappers.h).
 */
typedef int procfs_map_cb(void *arg, const struct procfs_map *map);
int procfs_maps(pid_t pid, procfs_map_cb *cb, void *arg);

#endif
