#include "shim/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef SYS_fcntl64
#define SYS_FCNTL SYS_fcntl64
#else
#define SYS_FCNTL SYS_fcntl
#endif

static int raw_flock(int fd, int op)
{
	return (int)syscall(SYS_flock, fd, op);
}

static int raw_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return (int)syscall(SYS_FCNTL, fd, cmd, arg);
}

/* As in libc: a lock of the process, from the current offset on. */
static int raw_lockf64(int fd, int cmd, off64_t len)
{
	struct flock64 lock = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = len};

	switch (cmd) {
	case F_TEST:
		lock.l_type = F_RDLCK;
		if (raw_fcntl(fd, F_GETLK64, &lock) < 0)
			return -1;
		if (lock.l_type == F_UNLCK || lock.l_pid == getpid())
			return 0;
		errno = EACCES;
		return -1;
	case F_ULOCK:
		lock.l_type = F_UNLCK;
		return raw_fcntl(fd, F_SETLK64, &lock);
	case F_LOCK:
		return raw_fcntl(fd, F_SETLKW64, &lock);
	case F_TLOCK:
		return raw_fcntl(fd, F_SETLK64, &lock);
	default:
		errno = EINVAL;
		return -1;
	}
}

static int raw_chroot(const char *path)
{
	return (int)syscall(SYS_chroot, path);
}

static int raw_lockf(int fd, int cmd, off_t len)
{
	return raw_lockf64(fd, cmd, len);
}

int (*real_chroot)(const char *path) = raw_chroot;
int (*real_flock)(int fd, int op) = raw_flock;
int (*real_lockf)(int fd, int cmd, off_t len) = raw_lockf;
int (*real_lockf64)(int fd, int cmd, off64_t len) = raw_lockf64;
real_fcntl_fn *real_fcntl = raw_fcntl;
real_fcntl_fn *real_fcntl64 = raw_fcntl;
real_fcntl_fn *real___fcntl = raw_fcntl;
#if __SIZEOF_POINTER__ == 4
real_fcntl_fn *real___fcntl_time64 = raw_fcntl;
#endif

/* A constructor before ours may have started threads: each pointer changes in one step. */
#define RESOLVE(name)                                                                                                  \
	do {                                                                                                           \
		void *found = dlsym(RTLD_NEXT, #name);                                                                 \
		if (found)                                                                                             \
			__atomic_store_n(&real_##name, (__typeof__(real_##name))found, __ATOMIC_RELAXED);              \
	} while (0)

void real_init(void)
{
	RESOLVE(chroot);
	RESOLVE(flock);
	RESOLVE(lockf);
	RESOLVE(lockf64);
	RESOLVE(fcntl);
	RESOLVE(fcntl64);
	RESOLVE(__fcntl);
#if __SIZEOF_POINTER__ == 4
	RESOLVE(__fcntl_time64);
#endif
}
