/*
 * What is told of each lock call: counted for `dflock run --report` (wire/tally.h), and a line for DFLOCK_LOG=debug.
 *
 * If neither is wanted, a lock call costs one load and one branch more. Else report_begin() and report_end() stand
 * around the call. Callable wherever flock() is; errno is kept. No descriptor stays open: the tally is mapped when the
 * program starts, and so goes on after chroot(), after a change of user, and if the program closes all descriptors.
 */
#ifndef DFLOCK_SHIM_REPORT_H
#define DFLOCK_SHIM_REPORT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/intent.h"
#include "shim/protect.h"
#include "shim/real.h"
#include "wire/tally.h"

enum report_kind {
	REPORT_NOTHING, /* the kernel knows no such call */
	REPORT_TAKE,
	REPORT_TEST,
	REPORT_UNLOCK
};

/* What a call is, as its arguments say. */
struct report_what {
	enum report_kind kind;
	const char *name; /* of the function */
	struct intent want;
};

struct report_call {
	struct report_what what;
	int fd;
	struct tally_entry *entry; /* NULL: the call is not counted */
	struct tally_lock lock;
	int64_t began_ns;
	bool found; /* REPORT_TEST: a lock is in the way */
};

/* For report_is_wanted(). */
extern uint32_t report_wanted;

static inline bool report_is_wanted(void)
{
	return __builtin_expect(__atomic_load_n(&report_wanted, __ATOMIC_RELAXED) != 0, 0);
}

/* The tally that TALLY_ENV names, for this process. NULL: there is none. */
struct tally *report_map(const char *path);

/* From the constructor, after settings_init(). A call before that does the same. */
void report_init(void);

struct report_what report_flock(int op);

/* True. */
bool report_begin(struct report_call *call, int fd, struct report_what what);
/* The call has returned `ret`, and errno. `decided`: what dflock had decided before that. */
void report_end(struct report_call *call, const struct protect_look *look, int decided, int ret);

/* --- record.c: the calls on record locks, fcntl() and lockf(), from their arguments to their results. Callable wherever fcntl() is;
 * errno changes --- */

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
