/*
 * The calls on record locks, fcntl() and lockf(), from their arguments to their end. Callable wherever fcntl()
 * is; errno changes.
 */
#ifndef DFLOCK_SHIM_RECORD_H
#define DFLOCK_SHIM_RECORD_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/real.h"

/* Not an errno: the call is the kernel's alone, and must be made as it came. */
#define RECORD_KERNEL 1

#define RECORD_BIT(cmd) (UINT64_C(1) << (cmd))

/* Is it one of fcntl()'s record lock commands, by all their numbers? In front of every fcntl() of a program. */
static inline bool record_is(int cmd)
{
	const uint64_t commands = RECORD_BIT(F_GETLK) | RECORD_BIT(F_SETLK) | RECORD_BIT(F_SETLKW) |
				  RECORD_BIT(F_GETLK64) | RECORD_BIT(F_SETLK64) | RECORD_BIT(F_SETLKW64) |
				  RECORD_BIT(F_OFD_GETLK) | RECORD_BIT(F_OFD_SETLK) | RECORD_BIT(F_OFD_SETLKW);

	return (unsigned int)cmd < 64 && (commands >> cmd & 1);
}

/*
 * real(fd, cmd, arg), a command of record_is(). ofd_small: under the name that was called, F_OFD_* take a struct flock
 * and not a struct flock64 (they differ on 32-bit systems alone). 0, -errno as fcntl(2) gives it, RECORD_KERNEL, or
 * -ENOLCK after a line that says why. arg may be any pointer: what the kernel cannot read is left to the kernel.
 * F_SETLKW is a cancellation point, unless real is real_syscall_fcntl.
 */
int record_fcntl(real_fcntl_fn *real, int fd, int cmd, void *arg, bool ofd_small);

/* lockf(fd, cmd, len): as above. F_LOCK is a cancellation point; what takes no lock is RECORD_KERNEL. */
int record_lockf(int fd, int cmd, int64_t len);

/* lockf(fd, F_TEST, len), after the real one has found nothing in the way, or said EACCES: 0, or -errno (-EACCES:
 * something is). */
int record_lockf_test(int fd, int64_t len);

#endif
