#include "shim/report.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "shim/call.h"
#include "shim/intent.h"
#include "shim/real.h"
#include "shim/note.h"
#include "shim/oldlibc.h"
#include "shim/protect.h"
#include "wire/sys.h"

OLDLIBC(pthread_testcancel, OLDLIBC_FIRST);

#define OLDEST_PAGE 4096 /* no page of memory is smaller */
#define PROBE_TRIES 1000

struct command {
	bool test, wait;
	bool small; /* it takes a struct flock, which may be smaller than struct flock64 */
	enum wire_owner owner;
};

static struct command record_command_of(int cmd, bool ofd_small)
{
	const bool ofd = cmd == F_OFD_GETLK || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW;
	const bool large = cmd == F_GETLK64 || cmd == F_SETLK64 || cmd == F_SETLKW64;

	return (struct command){
		.test = cmd == F_GETLK || cmd == F_GETLK64 || cmd == F_OFD_GETLK,
		.wait = cmd == F_SETLKW || cmd == F_SETLKW64 || cmd == F_OFD_SETLKW,
		.small = ofd ? ofd_small : !large,
		.owner = ofd ? WIRE_OWNER_DESCRIPTION : WIRE_OWNER_PROCESS,
	};
}

/* --- the program's memory --- */

/* rt_sigprocmask() with an invalid `how`: the kernel reads the set, unless it is NULL, before it finds that and
 * fails. */
static bool record_is_readable(const char *at)
{
	return at && sys(rt_sigprocmask, -1L, at, NULL, (long)SYS_SIGNALS_BYTES) != -EFAULT;
}

/* Copies from memory that may not be mapped: first tries both ends, or one end if both are in one page. `mapped`: memory
 * that is, in a frame just below the program's. Most programs have their struct flock on the stack, and what is
 * there in the same page needs no system call. */
static int record_peek(void *to, const void *from, size_t size, const void *mapped)
{
	const char *end = (const char *)from + size - SYS_SIGNALS_BYTES;
	const uintptr_t there = (uintptr_t)mapped / OLDEST_PAGE, first = (uintptr_t)from / OLDEST_PAGE;
	const uintptr_t last = ((uintptr_t)from + size - 1) / OLDEST_PAGE;

	if (first != there && !record_is_readable(from))
		return -EFAULT;
	if (last != there && last != first && !record_is_readable(end))
		return -EFAULT;
	memcpy(to, from, size);
	return 0;
}

static int record_read(struct flock64 *lock, const void *arg, bool small, const void *mapped)
{
	struct flock narrow;
	int ret;

	if (!small)
		return record_peek(lock, arg, sizeof(*lock), mapped);
	ret = record_peek(&narrow, arg, sizeof(narrow), mapped);
	if (ret == 0)
		*lock = (struct flock64){
			.l_type = narrow.l_type,
			.l_whence = narrow.l_whence,
			.l_start = narrow.l_start,
			.l_len = narrow.l_len,
			.l_pid = narrow.l_pid,
		};
	return ret;
}

/* `arg` is writable: the kernel has just written there. */
static int record_write(void *arg, const struct flock64 *lock, bool small)
{
	struct flock narrow = {
		.l_type = lock->l_type,
		.l_whence = lock->l_whence,
		.l_start = (__typeof__(narrow.l_start))lock->l_start,
		.l_len = (__typeof__(narrow.l_len))lock->l_len,
		.l_pid = lock->l_pid,
	};

	if (!small) {
		memcpy(arg, lock, sizeof(*lock));
		return 0;
	}
	if (narrow.l_start != lock->l_start || narrow.l_len != lock->l_len)
		return -EOVERFLOW;
	memcpy(arg, &narrow, sizeof(narrow));
	return 0;
}

/* --- what the call wants --- */

static int record_resolve(int fd, const struct flock64 *lock, struct intent *want)
{
	int ret = intent_record(fd, lock, want);

	if (ret == 0 || ret == -EBADF || ret == -EINVAL || ret == -EOVERFLOW)
		return ret;
	errno = -ret;
	note_refused(fd, "where the range begins cannot be found out: %m");
	return -ENOLCK;
}

static int record_take(int fd, const struct flock64 *lock, enum wire_owner owner, bool wait, bool raw,
		       struct protect_look *look)
{
	struct intent want = {.owner = owner, .nonblock = !wait, .raw = raw};
	int ret;

	if (lock->l_type != F_RDLCK && lock->l_type != F_WRLCK)
		return CALL_KERNEL;
	switch (protect_look(fd, look)) {
	case PROTECT_NO:
		return CALL_KERNEL;
	case PROTECT_REFUSED:
		return -ENOLCK;
	case PROTECT_ASK:
		break;
	}
	if (!look->page && protect_is_kernels(fd))
		return CALL_KERNEL;
	/* If the range is bad, refuse the call here and not in the kernel: the file may grow before that, and then the
	 * kernel would accept the range. */
	ret = record_resolve(fd, lock, &want);
	if (ret < 0)
		return protect_is_kernels(fd) ? CALL_KERNEL : ret;
	if (owner == WIRE_OWNER_DESCRIPTION && lock->l_pid != 0)
		return CALL_KERNEL;
	return acquire_record(fd, &want, look);
}

/* As blocker_find(). */
static int record_find_remote(int fd, const struct flock64 *lock, enum wire_owner owner, struct protect_look *look,
			      struct flock64 *found)
{
	struct intent want = {.owner = owner, .nonblock = true};
	int ret;

	switch (protect_look(fd, look)) {
	case PROTECT_NO:
		look->disclaimed = true;
		return 0;
	case PROTECT_REFUSED:
		return -ENOLCK;
	case PROTECT_ASK:
		break;
	}
	ret = record_resolve(fd, lock, &want);
	return ret < 0 ? ret : blocker_find(fd, &want, look, found);
}

/* Is the lock that was found a probe of the keeper's, which has a lock for a moment (keeper/kernel/probe.h)? It belongs
 * to no program, and no program may see its pid. */
static bool record_is_probe(int fd, const struct flock64 *found, int tries)
{
	struct protect_look look;

	if (found->l_pid <= 0 || tries == PROBE_TRIES || protect_look(fd, &look) != PROTECT_ASK || !look.page ||
	    __atomic_load_n(&look.page->keeper, __ATOMIC_RELAXED) != (uint32_t)found->l_pid ||
	    !protect_page_is_near(&look))
		return false;
	sched_yield();
	return true;
}

/* `lock` is a copy of *arg from before the call. 1: another host's lock is in the way. */
static int record_test(real_fcntl_fn *real, int fd, int cmd, void *arg, const struct flock64 *lock,
		       struct command command, struct protect_look *look)
{
	struct flock64 found;
	int ret;

	for (int tries = 0;; tries++) {
		if (real(fd, cmd, arg) < 0)
			return -errno;
		/* With F_UNLCK, F_OFD_GETLK shows the description's own locks. */
		if (lock->l_type == F_UNLCK)
			return 0;
		/* It is mapped: the kernel has just written there. */
		ret = record_read(&found, arg, command.small, arg);
		if (ret < 0)
			return ret;
		if (found.l_type == F_UNLCK)
			break;
		if (!record_is_probe(fd, &found, tries))
			return 0;
		record_write(arg, lock, command.small);
	}
	ret = record_find_remote(fd, lock, command.owner, look, &found);
	if (ret == 0)
		return 0;
	if (ret > 0)
		ret = record_write(arg, &found, command.small);
	if (ret == 0)
		return 1;
	record_write(arg, lock, command.small);
	return ret == ASK_NETTED ? (int)sys_fcntl(fd, cmd, arg) : ret;
}

/* --- the calls --- */

int record_fcntl(real_fcntl_fn *real, int fd, int cmd, void *arg, bool ofd_small, struct protect_look *look)
{
	struct command command = record_command_of(cmd, ofd_small);
	struct flock64 lock;
	int ret;

	if (record_read(&lock, arg, command.small, look) < 0)
		return CALL_KERNEL;
	if (command.test) {
		ret = record_test(real, fd, cmd, arg, &lock, command, look);
		return ret > 0 ? 0 : ret;
	}
	/* To unlock never waits. Under the net F_SETLK has the key, and F_SETLKW has none. */
	if (lock.l_type == F_UNLCK && command.wait && netted_is_on()) {
		if (real != real_syscall_fcntl && pthread_testcancel)
			pthread_testcancel();
		return real_fcntl64(fd, command.owner == WIRE_OWNER_PROCESS ? F_SETLK : F_OFD_SETLK, arg) < 0 ? -errno
													      : 0;
	}
	return record_take(fd, &lock, command.owner, command.wait, real == real_syscall_fcntl, look);
}

int record_lockf(int fd, int cmd, int64_t len, struct protect_look *look)
{
	const struct command command = {.test = true, .owner = WIRE_OWNER_PROCESS};
	struct flock64 lock = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = len}, found;
	int ret;

	if (cmd == F_LOCK || cmd == F_TLOCK)
		return record_take(fd, &lock, WIRE_OWNER_PROCESS, cmd == F_LOCK, false, look);
	if (cmd != F_TEST)
		return CALL_KERNEL;
	lock.l_type = F_RDLCK; /* libc, too, asks for a lock that keeps out a reader */
	found = lock;
	ret = record_test(real_fcntl64, fd, F_GETLK64, &found, &lock, command, look);
	if (ret == 0 && (found.l_type == F_UNLCK || found.l_pid == getpid()))
		return 0;
	return ret < 0 ? ret : -EACCES;
}

/* --- what is told of them --- */

static struct report_what record_report_lock(int fd, enum report_kind kind, const char *name,
					     const struct flock64 *lock, struct intent want)
{
	struct flock64 shape = *lock;

	if (lock->l_type == F_UNLCK && kind == REPORT_TAKE)
		kind = REPORT_UNLOCK;
	shape.l_type = lock->l_type == F_RDLCK ? F_RDLCK : F_WRLCK;
	want.space = WIRE_RECORD;
	want.mode = lock->l_type == F_RDLCK ? WIRE_SHARED : WIRE_EXCLUSIVE;
	intent_record(fd, &shape, &want);
	return (struct report_what){.kind = kind, .name = name, .want = want};
}

struct report_what record_report(int fd, int cmd, const void *arg, bool ofd_small)
{
	struct command command = record_command_of(cmd, ofd_small);
	struct intent want = {.owner = command.owner, .nonblock = !command.wait};
	struct flock64 lock;

	if (record_read(&lock, arg, command.small, &want) < 0)
		return (struct report_what){.name = "fcntl"};
	return record_report_lock(fd, command.test ? REPORT_TEST : REPORT_TAKE, "fcntl", &lock, want);
}

struct report_what record_report_lockf(int fd, int cmd, int64_t len)
{
	const struct flock64 lock = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = len};
	const struct intent want = {.owner = WIRE_OWNER_PROCESS, .nonblock = cmd != F_LOCK};

	return record_report_lock(fd,
				  cmd == F_LOCK || cmd == F_TLOCK ? REPORT_TAKE
				  : cmd == F_ULOCK                ? REPORT_UNLOCK
				  : cmd == F_TEST                 ? REPORT_TEST
								  : REPORT_NOTHING,
				  "lockf", &lock, want);
}
