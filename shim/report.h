/*
 * What is told of each lock call: counted for `dflock run --report` (wire/tally.h), and a line for DFLOCK_LOG=debug.
 *
 * If neither is wanted, a lock call costs one load and one branch more. Else report_begin() and report_end() stand
 * around the call. Callable wherever flock() is; errno is kept. No descriptor stays open: the tally is mapped when the
 * program starts, and so goes on after chroot(), after a change of user, and if the program closes all descriptors.
 */
#ifndef DFLOCK_SHIM_REPORT_H
#define DFLOCK_SHIM_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/intent.h"
#include "shim/protect.h"
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

#endif
