#include "shim/real.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#include "shim/oldlibc.h"
#include "wire/sys.h"

OLDLIBC(dlsym, OLDLIBC_FIRST);
OLDLIBC(dlerror, OLDLIBC_FIRST);

#ifdef SYS_fcntl64
#define SYS_FCNTL SYS_fcntl64
#else
#define SYS_FCNTL SYS_fcntl
#endif

static int raw_flock(int fd, int op)
{
	return (int)sys_libc(sys(flock, fd, op));
}

static int raw_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* As in libc: the negative number of a process group would look like an error. */
	if (cmd == F_GETOWN) {
		struct f_owner_ex owner;
		long ret = sys_raw(SYS_FCNTL, fd, F_GETOWN_EX, &owner);

		return ret < 0 ? (int)sys_libc(ret) : owner.type == F_OWNER_GID ? -owner.pid : owner.pid;
	}
	return (int)sys_libc(sys_raw(SYS_FCNTL, fd, cmd, arg));
}

static int raw_chroot(const char *path)
{
	return (int)sys_libc(sys(chroot, path));
}

static long raw_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	return sys_libc(sys_call(number, a, b, c, d, e, f));
}

int (*real_chroot)(const char *path) = raw_chroot;
int (*real_flock)(int fd, int op) = raw_flock;
real_syscall_fn *real_syscall = raw_syscall;
real_fcntl_fn *real_fcntl = raw_fcntl;
real_fcntl_fn *real_fcntl64 = raw_fcntl;
real_fcntl_fn *real___fcntl = raw_fcntl;
#if __SIZEOF_POINTER__ == 4
real_fcntl_fn *real___fcntl_time64 = raw_fcntl;
#endif

int real_lockf64(int fd, int cmd, off64_t len)
{
	struct flock64 lock = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_len = len};

	switch (cmd) {
	case F_ULOCK:
		lock.l_type = F_UNLCK;
		return real_fcntl64(fd, F_SETLK64, &lock);
	case F_LOCK:
		return real_fcntl64(fd, F_SETLKW64, &lock);
	case F_TLOCK:
		return real_fcntl64(fd, F_SETLK64, &lock);
	default:
		errno = EINVAL;
		return -1;
	}
}

int real_syscall_flock(int fd, int op)
{
	return (int)real_syscall(SYS_flock, fd, op, 0, 0, 0, 0);
}

int real_syscall_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return (int)real_syscall(SYS_FCNTL, fd, cmd, (long)arg, 0, 0, 0);
}

static const char *single_threaded;

bool real_single_threaded(void)
{
	struct stat st;

	if (single_threaded)
		return *single_threaded;
	/* Each thread is a directory there, and `.` and `..` count as links, too. */
	return sys_stat("/proc/self/task", &st) == 0 && st.st_nlink == 3;
}

/* A constructor that ran before ours may have started threads, so each pointer changes in one step. */
#define RESOLVE(name)                                                                                                  \
	do {                                                                                                           \
		void *found = dlsym(RTLD_NEXT, #name);                                                                 \
		if (found)                                                                                             \
			__atomic_store_n(&real_##name, (__typeof__(real_##name))found, __ATOMIC_RELAXED);              \
	} while (0)

void real_init(void)
{
	if (!dlsym)
		return;
	single_threaded = dlsym(RTLD_DEFAULT, "__libc_single_threaded"); /* glibc 2.32 */
	RESOLVE(syscall);
	RESOLVE(chroot);
	RESOLVE(flock);
	RESOLVE(fcntl);
	RESOLVE(fcntl64);
	RESOLVE(__fcntl);
#if __SIZEOF_POINTER__ == 4
	RESOLVE(__fcntl_time64);
#endif
	/* musl has fcntl() alone, which is a cancellation point, too. */
	if (real_fcntl64 == raw_fcntl)
		__atomic_store_n(&real_fcntl64, real_fcntl, __ATOMIC_RELAXED);
	/* What was not found is no error of the program's, which may look for one after a dlsym() of its own. */
	if (dlerror)
		dlerror();
}
