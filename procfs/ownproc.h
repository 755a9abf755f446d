/*
 * Is /proc what a keeper needs? The keeper finds there the holders of locks and the processes that these started, and
 * stops them by the numbers that it reads. So the numbers must be those of its own pid namespace. Not part of the shim.
 */
#ifndef DFLOCK_PROCFS_OWNPROC_H
#define DFLOCK_PROCFS_OWNPROC_H

#include <stdbool.h>
#include <stddef.h>

/*
 * 0, or -errno with one line in `why`: what is wrong with /proc, and what to do. -ENOENT: there is no /proc, or it is
 * that of a pid namespace that does not have this process. -EXDEV: it is that of a pid namespace further out. Other
 * errors: /proc/locks cannot be read.
 *
 * hidepid is no fault: root sees everything in spite of it, and another user sees every process that it could look into
 * or stop.
 */
int ownproc_check(char *why, size_t why_size);

/*
 * fakeroot(1): a preload that tells programs, by geteuid() and stat(), that they are root. The kernel says who this process is
 * (sys_geteuid()); if libc says otherwise, starts this program anew without LD_PRELOAD, and ends the process with a line if it
 * cannot. for_children: what this process starts has LD_PRELOAD again. To be called first in main(); changes the environment.
 */
void ownproc_be_oneself(char **argv, bool for_children);

#endif
