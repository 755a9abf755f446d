/* shim/real.h: the kernel's locks, taken without waiting; a program that has to wait tries again when a lock was let
 * go. */
#include <stdlib.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>

#include "shim/note.h"
#include "shim/real.h"
#include "tests/sim/sim.h"
#include "wire/text.h"

#define SLOW (700 * MS) /* a program may take so long to get to its kernel lock: longer than a pin */

static void dawdle(struct program *p)
{
	program_sleep(p, rng_chance(&p->rng, 50) ? rng_between(&p->rng, 0, SLOW) : rng_delay(&p->rng, SLOW));
}

static int sim_flock(int fd, int op)
{
	struct program *p = program_of_task();

	dawdle(p);
	for (;;) {
		int ret = flock(fd, (op & ~LOCK_NB) | (op & LOCK_UN ? 0 : LOCK_NB));

		if (ret == 0 && !p->caught)
			lives_call(p, op & LOCK_UN ? 'd' : 't');
		if (ret == 0 || errno != EWOULDBLOCK)
			return ret;
		kernel_changed(p->host); /* a conversion that does not succeed at once has lost the old lock */
		errno = EWOULDBLOCK;
		if (op & LOCK_NB)
			return -1;
		if (!program_wait_for_lock(p)) {
			errno = EINTR;
			return -1;
		}
	}
}

static int sim_fcntl(int fd, int cmd, ...)
{
	struct program *p = program_of_task();
	struct flock64 *lock;
	va_list args;

	va_start(args, cmd);
	lock = va_arg(args, struct flock64 *);
	va_end(args);
	dawdle(p);
	for (;;) {
		int ret = fcntl(fd, cmd == F_OFD_SETLKW ? F_OFD_SETLK : cmd, lock);

		if (ret == 0)
			kernel_changed(p->host); /* it may be less than before */
		if (ret == 0 || errno != EAGAIN || cmd != F_OFD_SETLKW)
			return ret;
		if (!program_wait_for_lock(p)) {
			errno = EINTR;
			return -1;
		}
	}
}

int (*real_flock)(int fd, int op) = sim_flock;
real_fcntl_fn *real_fcntl64 = sim_fcntl;

/* No simulated call comes by syscall(), and no thread is cancelled. */
int real_syscall_fcntl(int fd, int cmd, ...) { abort(); }
bool real_single_threaded(void) { return true; }

/* --- shim/note.h --- */

void note_refused(int fd, const char *format, ...)
{
	char what[WIRE_REASON_BYTES];
	va_list ap;

	va_start(ap, format);
	text_vprint(what, sizeof(what), format, ap);
	va_end(ap);
	note_line(fd, what);
}

void note_line(int fd, const char *line) { sim_trace("p%d: refused: %s", program_of_task()->id, line); }
void note_debug(int fd, const char *what) { sim_trace("p%d: %s", program_of_task()->id, what); }
