/*
 * The functions that programs call instead of libc's: NAME is exported, shim_NAME decides, real_NAME is what
 * would have been called without us. Only here is errno set.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <unistd.h>

#include "shim/acquire.h"
#include "shim/intent.h"
#include "shim/protect.h"
#include "shim/real.h"
#include "shim/settings.h"

#define EXPORT __attribute__((visibility("default")))

__attribute__((constructor)) static void shim_init(void)
{
	int saved = errno;

	real_init();
	settings_init();
	errno = saved;
}

static int shim_flock(int fd, int op)
{
	struct intent want;
	struct protect_by by;
	int saved = errno, rc = -ENOLCK;

	if (!intent_flock(op, &want))
		return real_flock(fd, op);
	switch (protect_look(fd, &by)) {
	case PROTECT_NO:
		errno = saved;
		return real_flock(fd, op);
	case PROTECT_ASK:
		rc = acquire_flock(fd, op, &want, &by);
		break;
	case PROTECT_REFUSED:
		break;
	}
	errno = rc < 0 ? -rc : saved;
	return rc < 0 ? -1 : 0;
}

EXPORT int flock(int fd, int op)
{
	return shim_flock(fd, op);
}

/* libc, too, reads the third argument as a pointer, whatever the command and whether it was given or not. */
#define PASS_FCNTL(name)                                                                                               \
	EXPORT int name(int fd, int cmd, ...)                                                                          \
	{                                                                                                              \
		va_list ap;                                                                                            \
		void *arg;                                                                                             \
                                                                                                                       \
		va_start(ap, cmd);                                                                                     \
		arg = va_arg(ap, void *);                                                                              \
		va_end(ap);                                                                                            \
		return real_##name(fd, cmd, arg);                                                                      \
	}

/* Not in the headers. */
int __fcntl(int fd, int cmd, ...);

PASS_FCNTL(fcntl)
PASS_FCNTL(fcntl64)
PASS_FCNTL(__fcntl)
#if __SIZEOF_POINTER__ == 4
int __fcntl_time64(int fd, int cmd, ...);
PASS_FCNTL(__fcntl_time64)
#endif

EXPORT int lockf(int fd, int cmd, off_t len)
{
	return real_lockf(fd, cmd, len);
}

EXPORT int lockf64(int fd, int cmd, off64_t len)
{
	return real_lockf64(fd, cmd, len);
}
