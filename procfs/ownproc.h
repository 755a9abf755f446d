/*
 * Is /proc what a keeper needs? It finds the holders of locks, and what these started, there, and stops them by the
 * numbers that it reads: so these must be those of its own pid namespace. Not part of the shim.
 */
#ifndef DFLOCK_PROCFS_OWNPROC_H
#define DFLOCK_PROCFS_OWNPROC_H

#include <stddef.h>

/*
 * 0, or -errno with one line in `why`: what is wrong with /proc, and what to do. -ENOENT: there is none, or it is of a
 * pid namespace that does not have this process. -EXDEV: of one further out. Else /proc/locks cannot be read.
 *
 * hidepid is no fault: root sees everything all the same, and another user all that it could look into or stop.
 */
int ownproc_check(char *why, size_t why_size);

#endif
