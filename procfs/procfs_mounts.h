/*
 * The mount table: /proc/PID/mountinfo, which the kernel writes without asking any file system. Reading takes about 2 µs
 * for each mount.
 */
#ifndef DFLOCK_PROCFS_PROCFS_MOUNTS_H
#define DFLOCK_PROCFS_PROCFS_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* The texts point into the line. */
struct procfs_mount {
	int id, parent;      /* unique among all namespaces for as long as the mount exists */
	uint64_t dev;        /* of the super block: the kernel's number (procfs_locks.h) */
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
 * Calls back for every mount, in the order in which they lie on each other. A result other than 0 ends the walk, and is
 * returned. May be called again for the same table. Another namespace's table may have as many lines as its user wants
 * (100,000).
 */
typedef int procfs_mount_cb(void *arg, const struct procfs_mount *mount);
int procfs_mounts(FILE *table, procfs_mount_cb *cb, void *arg);

/* Has the table changed since the last call? True once for each open table and change (POLLPRI). */
bool procfs_mounts_changed(FILE *table);

#endif
