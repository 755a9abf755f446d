/*
 * System calls that return -errno and are no cancellation points.
 *
 * flock() is no cancellation point, but libc's open, close, connect, recv, read and poll are: with a cancellation
 * pending, a thread would end inside the shim. So the shim makes those calls itself. The values after the name are
 * passed on as they are: give a pointer or a long where the kernel reads one. Callable anywhere.
 */
#ifndef DFLOCK_SHIM_SYS_H
#define DFLOCK_SHIM_SYS_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "wire/sys.h"

#define sys(name, ...) sys_raw(SYS_##name, __VA_ARGS__)

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

#endif
