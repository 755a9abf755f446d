/*
 * The name of a descriptor's file, as the kernel shows it. Callable wherever flock() is; errno may change.
 */
#ifndef DFLOCK_SHIM_NAME_H
#define DFLOCK_SHIM_NAME_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * No rule of any host can name the file: its path is too long for the kernel to show (libdflock(7)), or it was made
 * without a path (O_TMPFILE) and no other process knows it. Then dflock has no part in the call. Not an errno.
 */
#define NAME_NONE 1

/*
 * The name of what `fd` refers to; that of a deleted file is its last one. It is not always a path: "pipe:[123]",
 * "socket:[123]", "anon_inode:[eventfd]". Read from thread-self, since a thread may have a descriptor table of its own.
 * 0, NAME_NONE, or -errno: there is no /proc.
 */
int name_read(int fd, char name[PATH_MAX]);

/* What the kernel shows, as readlinkat(): not ended with NUL, " (deleted)" and all. The bytes, or -errno. */
long name_link(int fd, char *name, size_t size);

/* Does name_read() say NAME_NONE? Takes the stack for a path only while it runs. */
bool name_is_none(int fd);

#endif
