/* What rundir.c needs of rundir_open.c. Callable wherever rundir.h is. */
#ifndef DFLOCK_WIRE_RUNDIR_INTERNAL_H
#define DFLOCK_WIRE_RUNDIR_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/vfs.h>

#include "wire/rundir.h"
#include "wire/text.h"

/* How the kernel shows a user that has no number in this namespace. */
#define RUNDIR_OVERFLOW_UID 65534

/* openat() and close() as raw calls: libc's are cancellation points, and flock() is none. The first adds O_CLOEXEC and
 * sets errno as usual. */
int rundir_open_at(int dir, const char *name, int flags);
void rundir_close(int fd);

/* Writes "runtime directory DIR WHAT", and then `advice`, or, if that is NULL, the text of `err` and an advice. Returns
 * -err. */
int rundir_finding(struct text *why, const char *dir, int err, const char *what, const char *advice);

/* The number that the parent namespace has for `uid`. 0; -ESRCH: `uid` is no number of this namespace; or -errno: the
 * map cannot be read. */
int rundir_outer_uid(uid_t uid, uid_t *outer);

/* A runtime directory must be in memory: its page and the keeper's records must end with the boot that their times
 * belong to. */
bool rundir_is_in_memory(const struct statfs *fs);

#endif
