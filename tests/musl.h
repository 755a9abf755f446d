/* What the programs of the tests use of glibc and musl lacks: included before all else in those that `make check-musl` builds. */
#ifndef DFLOCK_TESTS_MUSL_H
#define DFLOCK_TESTS_MUSL_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOCK_MAND 32
#define LOCK_READ 64
#define fcntl64   fcntl
#define lockf64   lockf /* musl 1.2.4 took it away */
#define __fcntl   fcntl

/* glibc's on x86-64. The library needs nearly as much, and musl would give a thread 2 KiB. */
#undef PTHREAD_STACK_MIN
#define PTHREAD_STACK_MIN 16384

static inline int close_range(unsigned int first, unsigned int last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

static inline const char *strerrorname_np(int error)
{
#define NAME(name) [name] = #name
	static const char *const names[256] = {
		NAME(EACCES), NAME(EAGAIN), NAME(EBADF),  NAME(ECHILD), NAME(EDEADLK),   NAME(EEXIST), NAME(EFAULT),
		NAME(EINTR),  NAME(EINVAL), NAME(EIO),    NAME(EISDIR), NAME(EMFILE),    NAME(ENOENT), NAME(ENOLCK),
		NAME(ENOMEM), NAME(ENOSYS), NAME(ENOTTY), NAME(EPERM),  NAME(EOVERFLOW), NAME(EPIPE),  NAME(ESRCH),
	};
#undef NAME

	return error > 0 && error < 256 && names[error] ? names[error] : "unnamed";
}

#endif
