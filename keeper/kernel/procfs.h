/*
 * The one reader of what /proc says about locks, descriptors, processes and mounts. The parsers are pure; procfs_read()
 * blocks for as long as the kernel takes to write the text.
 *
 * The kernel's number of a file is the pair (device of its super block, inode number in memory). Lock lines, maps and
 * mountinfo show this pair. It differs from st_dev and st_ino on btrfs (st_dev belongs to a subvolume) and on overlayfs
 * (st_dev and st_ino may belong to a layer).
 */
#ifndef DFLOCK_KEEPER_PROCFS_H
#define DFLOCK_KEEPER_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
 * for any other line: leases, delegations, and in /proc/locks calls that wait ("1: -> FLOCK ...").
 */
bool procfs_lock_line(const char *line, struct procfs_lock *out);

/* What fdinfo says of the descriptor itself. */
struct procfs_fdinfo {
	int mount_id; /* -1: not shown */
	uint64_t ino; /* the kernel's inode number; 0: not shown (before Linux 5.14) */
};

/* Calls back for every lock line of the text; anything but 0 ends it. info and cb may be NULL. The text is changed. */
typedef int procfs_lock_cb(void *arg, const struct procfs_lock *lock);
int procfs_fdinfo(char *text, struct procfs_fdinfo *info, procfs_lock_cb *cb, void *arg);

struct procfs_stat {
	char state; /* R, S, D, T, t, Z ... */
	pid_t parent;
	uint64_t started; /* in the kernel's ticks since the machine started: with the pid, names a process */
};

/* The text of /proc/PID/stat. The command in it may have blanks and brackets. */
bool procfs_stat(const char *text, struct procfs_stat *out);

struct procfs_mount {
	int id;
	uint64_t dev; /* of the super block */
};

/* A line of mountinfo: "36 35 98:0 /root /mount options - type source superoptions". */
bool procfs_mount_line(const char *line, struct procfs_mount *out);

/* A line of /proc/PID/maps: "7f95c2eb4000-7f95c2eb5000 rw-s 00000000 00:1b 4879360   /path". False: of no file. */
bool procfs_map_line(const char *line, uint64_t *dev, uint64_t *ino);

/* A text that is read again and again into the same memory. Begin with {0}; free(text) at the end. */
struct procfs_text {
	char *text; /* ends with NUL */
	size_t len, room;
};

/*
 * Reads the whole of `name` below dirfd, with as few calls as can be: the kernel writes a file of /proc/PID in one
 * piece into a buffer that is large enough. 0, -ENOMEM, or -errno.
 */
int procfs_read(int dirfd, const char *name, struct procfs_text *into);

#endif
