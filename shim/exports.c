/*
 * The functions that programs call instead of libc's: NAME is exported, shim_NAME decides, real_NAME is what
 * would have been called without us. Only here is errno set.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <unistd.h>

#include "shim/abandoned.h"
#include "shim/acquire.h"
#include "shim/intent.h"
#include "shim/protect.h"
#include "shim/real.h"
#include "shim/record.h"
#include "shim/root.h"
#include "shim/settings.h"

#define EXPORT __attribute__((visibility("default")))

__attribute__((constructor)) static void shim_init(void)
{
	int saved = errno;

	real_init();
	settings_init();
	errno = saved;
}

/* The end of a call that was not passed on: 0 or -errno, for the program. */
static int end(int rc, int saved)
{
	errno = rc < 0 ? -rc : saved;
	return rc < 0 ? -1 : 0;
}

static int shim_flock(int fd, int op)
{
	struct intent want;
	struct protect_look look;
	int saved = errno, rc = -ENOLCK;

	abandoned_end();
	if (!intent_flock(op, &want))
		return real_flock(fd, op);
	switch (protect_look(fd, &look)) {
	case PROTECT_NO:
		rc = ACQUIRE_KERNEL;
		break;
	case PROTECT_ASK:
		rc = acquire_flock(fd, op, &want, &look);
		break;
	case PROTECT_REFUSED:
		break;
	}
	if (rc != ACQUIRE_KERNEL)
		return end(rc, saved);
	errno = saved;
	return real_flock(fd, op);
}

EXPORT int flock(int fd, int op)
{
	return shim_flock(fd, op);
}

EXPORT int chroot(const char *path)
{
	return root_change(path);
}

/* Out of the way of all the other commands. */
static __attribute__((noinline, cold)) int shim_fcntl(real_fcntl_fn *real, int fd, int cmd, void *arg, bool ofd_small)
{
	int saved = errno, rc;

	abandoned_end();
	rc = record_fcntl(real, fd, cmd, arg, ofd_small);
	if (rc != RECORD_KERNEL)
		return end(rc, saved);
	errno = saved;
	return real(fd, cmd, arg);
}

/* libc, too, reads the third argument as a pointer, whatever the command and whether it was given or not. */
#define EXPORT_FCNTL(name, ofd_small)                                                                                  \
	EXPORT int name(int fd, int cmd, ...)                                                                          \
	{                                                                                                              \
		va_list ap;                                                                                            \
		void *arg;                                                                                             \
                                                                                                                       \
		va_start(ap, cmd);                                                                                     \
		arg = va_arg(ap, void *);                                                                              \
		va_end(ap);                                                                                            \
		if (__builtin_expect(record_is(cmd), 0))                                                               \
			return shim_fcntl(real_##name, fd, cmd, arg, ofd_small);                                       \
		return real_##name(fd, cmd, arg);                                                                      \
	}

/* Not in the headers. */
int __fcntl(int fd, int cmd, ...);

EXPORT_FCNTL(fcntl, true)
EXPORT_FCNTL(fcntl64, false)
EXPORT_FCNTL(__fcntl, true)
#if __SIZEOF_POINTER__ == 4
int __fcntl_time64(int fd, int cmd, ...);
EXPORT_FCNTL(__fcntl_time64, false)
#endif

#define EXPORT_LOCKF(name, type)                                                                                       \
	EXPORT int name(int fd, int cmd, type len)                                                                     \
	{                                                                                                              \
		int saved = errno, rc;                                                                                 \
                                                                                                                       \
		abandoned_end();                                                                                       \
		rc = record_lockf(fd, cmd, len);                                                                       \
                                                                                                                       \
		if (rc != RECORD_KERNEL)                                                                               \
			return end(rc, saved);                                                                         \
		errno = saved;                                                                                         \
		rc = real_##name(fd, cmd, len);                                                                        \
		return cmd == F_TEST && (rc == 0 || errno == EACCES) ? end(record_lockf_test(fd, len), saved) : rc;    \
	}

EXPORT_LOCKF(lockf, off_t)
EXPORT_LOCKF(lockf64, off64_t)
