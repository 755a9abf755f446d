/*
 * System calls without libc's syscall() and stat(): the shim exports a syscall() of its own, which must not get the
 * shim's own calls; and a shim that needs stat@GLIBC_2.33 would not load with an older glibc. Callable anywhere, also
 * in signal handlers, after fork and before constructors.
 *
 * They return -errno and are no cancellation points. flock() is none either, but libc's open, close, connect, recv, read and poll
 * are: with a cancellation pending, a thread would end inside the shim. The values after the name are passed on as they are: give a
 * pointer or a long where the kernel reads one.
 */
#ifndef DFLOCK_WIRE_SYS_H
#define DFLOCK_WIRE_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/time_types.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#if (defined(__x86_64__) && !defined(__ILP32__)) || defined(__aarch64__)
/* On these machines the calls are inline, and the shim exports syscall(). On others they are libc's, and it does
 * not. */
#define SYS_INLINE 1
#endif

/* Passes the values on as they are: the caller gives a pointer or a long where the kernel reads one. 0 or more, or
 * -errno. */
static inline long sys_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(SYS_INLINE) && defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return number;
#elif defined(SYS_INLINE)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
	long ret = syscall(number, a, b, c, d, e, f);

	return ret < 0 ? -errno : ret;
#endif
}

#define SYS_CALL_(number, a, b, c, d, e, f, ...)                                                                       \
	sys_call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
/* sys_raw(SYS_read, fd, buf, size): up to six arguments. 0 or more, or -errno; errno stays. */
#define sys_raw(...)   SYS_CALL_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define sys(name, ...) sys_raw(SYS_##name, __VA_ARGS__)

/* The result of sys_raw() as libc gives it: -1 with errno set, or the value. */
static inline long sys_libc(long ret)
{
	if (ret < 0 && ret >= -4095) {
		errno = (int)-ret;
		return -1;
	}
	return ret;
}

/* An entry as getdents64() gives it. */
struct sys_dirent {
	uint64_t ino;
	int64_t off;
	unsigned short length;
	unsigned char type;
	char name[];
};

/* As stat(2), with errno. With SYS_INLINE, the kernel's struct stat is also libc's. */
static inline int sys_stat(const char *path, struct stat *st)
{
#ifdef SYS_INLINE
	return (int)sys_libc(sys_raw(SYS_newfstatat, AT_FDCWD, path, st, 0));
#else
	return stat(path, st);
#endif
}

/* As fstat(2), with errno, for device, inode, kind, links, owner and size. It asks no file server, which may hang: these are what this
 * kernel knows. */
static inline int sys_fstat(int fd, struct stat *st)
{
	struct statx stx;

	if (sys_libc(sys_raw(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &stx)) < 0)
		return -1;
	*st = (struct stat){
		.st_dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
		.st_ino = stx.stx_ino,
		.st_mode = stx.stx_mode,
		.st_nlink = stx.stx_nlink,
		.st_uid = stx.stx_uid,
		.st_size = (off_t)stx.stx_size,
	};
	return 0;
}

/* Not libc's geteuid(): under fakeroot(1) that returns 0 for every user, and the kernel and the keeper go by the real
 * one. */
static inline uid_t sys_geteuid(void)
{
#ifdef SYS_geteuid32
	return (uid_t)sys_raw(SYS_geteuid32);
#else
	return (uid_t)sys_raw(SYS_geteuid);
#endif
}

#ifdef SYS_fcntl64
#define sys_fcntl(fd, cmd, arg) sys(fcntl64, fd, cmd, arg)
#else
#define sys_fcntl(fd, cmd, arg) sys(fcntl, fd, cmd, arg)
#endif

/* Not libc's, for the same reason as sys_geteuid(). */
static inline gid_t sys_getegid(void)
{
#ifdef SYS_getegid32
	return (gid_t)sys_raw(SYS_getegid32);
#else
	return (gid_t)sys_raw(SYS_getegid);
#endif
}

static inline int sys_getresuid(uid_t *real, uid_t *effective, uid_t *saved)
{
#ifdef SYS_getresuid32
	return (int)sys_raw(SYS_getresuid32, real, effective, saved);
#else
	return (int)sys_raw(SYS_getresuid, real, effective, saved);
#endif
}

/* Moves a new descriptor that is 0, 1 or 2 to a higher number: a thread that writes to its closed standard output must
 * not write into our socket. Returns the descriptor, or -errno with `fd` closed; a negative `fd` is returned as it
 * is. */
static inline int sys_above_stdio(int fd)
{
	long moved;

	if (fd < 0 || fd > 2)
		return fd;
	moved = sys_fcntl(fd, F_DUPFD_CLOEXEC, 3L);
	sys(close, fd);
	return (int)moved;
}

/* The kernel's own signal set: libc's functions leave out the signals that libc uses itself. */
#define SYS_SIGNALS_BYTES (_NSIG / 8)
struct sys_signals {
	unsigned long bits[SYS_SIGNALS_BYTES / sizeof(unsigned long)];
};

static inline void sys_add_signal(struct sys_signals *set, int sig)
{
	set->bits[(size_t)(sig - 1) / (8 * sizeof(long))] |= 1ul << ((size_t)(sig - 1) % (8 * sizeof(long)));
}

static inline bool sys_has_signal(const struct sys_signals *set, int sig)
{
	return set->bits[(size_t)(sig - 1) / (8 * sizeof(long))] >> ((size_t)(sig - 1) % (8 * sizeof(long))) & 1;
}

static inline int64_t sys_clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#ifdef SYS_clock_gettime64
#define SYS_CLOCK_GETTIME SYS_clock_gettime64
#else
#define SYS_CLOCK_GETTIME SYS_clock_gettime
#endif

/* The kernel's own. libc's, as above, takes less time; but a preload may show its program another one, which may stand still
 * (faketime). */
static inline int64_t sys_kernel_clock_ns(clockid_t clock)
{
	struct __kernel_timespec ts;

	if (sys_raw(SYS_CLOCK_GETTIME, clock, &ts) < 0)
		return sys_clock_ns(clock);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#endif
