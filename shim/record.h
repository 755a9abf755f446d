/*
 * The calls on record locks, fcntl() and lockf(), from their arguments to their results. Callable wherever fcntl() is;
 * errno changes.
 */
#ifndef DFLOCK_SHIM_RECORD_H
#define DFLOCK_SHIM_RECORD_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/call.h"
#include "shim/real.h"
#include "shim/report.h"

#define RECORD_BIT(cmd) (UINT64_C(1) << (cmd))

/* Is `cmd` a command of fcntl() for record locks, under any of their numbers? Every fcntl() of a program comes through
 * here. */
static inline bool record_is(int cmd)
{
	const uint64_t commands = RECORD_BIT(F_GETLK) | RECORD_BIT(F_SETLK) | RECORD_BIT(F_SETLKW) |
				  RECORD_BIT(F_GETLK64) | RECORD_BIT(F_SETLK64) | RECORD_BIT(F_SETLKW64) |
				  RECORD_BIT(F_OFD_GETLK) | RECORD_BIT(F_OFD_SETLK) | RECORD_BIT(F_OFD_SETLKW);

	return (unsigned int)cmd < 64 && (commands >> cmd & 1);
}

/*
 * real(fd, cmd, arg), where record_is(cmd). `ofd_small`: under the name that the program called, F_OFD_* take a struct
 * flock and not a struct flock64 (they differ only on 32-bit systems). 0, -errno as fcntl(2) gives it, CALL_KERNEL,
 * or -ENOLCK after a line that says why. `arg` may be any pointer: if it cannot be read, the kernel refuses it.
 * Commands that wait are cancellation points, unless `real` is real_syscall_fcntl. *look is filled as far as the call
 * needs it.
 */
int record_fcntl(real_fcntl_fn *real, int fd, int cmd, void *arg, bool ofd_small, struct protect_look *look);

/* lockf(fd, cmd, len), with the same results. F_LOCK is a cancellation point. */
int record_lockf(int fd, int cmd, int64_t len, struct protect_look *look);

/* What the calls are, for report_begin(). errno may change. */
struct report_what record_report(int fd, int cmd, const void *arg, bool ofd_small);
struct report_what record_report_lockf(int fd, int cmd, int64_t len);

#endif
