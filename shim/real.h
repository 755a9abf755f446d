/*
 * The functions that the program would have called without us: the next ones in the search order of the dynamic linker,
 * so that other preloads still work. Before real_init(), or without dlsym() (oldlibc.h), the raw system calls. Callable
 * anywhere, also before constructors. They set errno as usual.
 *
 * real_fcntl and the other fcntl functions must be called with exactly three arguments, the third of a pointer's size:
 * libc itself reads it so for every command.
 */
#ifndef DFLOCK_SHIM_REAL_H
#define DFLOCK_SHIM_REAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef int real_fcntl_fn(int fd, int cmd, ...);

/* syscall() with all arguments that a system call may have, as libc reads them. */
typedef long real_syscall_fn(long number, long a, long b, long c, long d, long e, long f);

extern int (*real_chroot)(const char *path);
extern int (*real_flock)(int fd, int op);
extern real_syscall_fn *real_syscall;
extern real_fcntl_fn *real_fcntl;
extern real_fcntl_fn *real_fcntl64;
extern real_fcntl_fn *real___fcntl;
#if __SIZEOF_POINTER__ == 4
extern real_fcntl_fn *real___fcntl_time64;
#endif

/* syscall(SYS_flock, fd, op). */
int real_syscall_flock(int fd, int op);
/* syscall(SYS_fcntl, fd, cmd, arg), or SYS_fcntl64 where there is one: no cancellation point. */
int real_syscall_fcntl(int fd, int cmd, ...);

/* lockf() but for F_TEST, as libc makes it: a lock of the process, from the current offset on, by calls of fcntl64. */
int real_lockf64(int fd, int cmd, off64_t len);

/* Does this process have only one thread? Before real_init(), and with a glibc before 2.32, /proc says it; false if
 * that cannot be read. errno may change. */
bool real_single_threaded(void);

/* Finds the next functions. Called once, from the constructor. */
void real_init(void);

/* --- netted.c: under the net (docs/net.md) --- */

/* The net's key: K as 16 hexadecimal digits. */
#define NETTED_VARIABLE "DFLOCK_NET"

/* After real_init(), once, from the constructor: the real functions for lock calls carry the key from now on. Does nothing without
 * one, or where the calls are not inline (wire/sys.h). */
void netted_init(void);
/* Do they? */
bool netted_is_on(void);
/*
 * Is this process, which is restricted by seccomp, under a net that goes by the same configuration, or by one that it left with its root
 * directory? Then it must start no keeper, which would be, too, and a call without the key is the supervisor's. The key proves nothing: the
 * environment may come to a program outside (at, files of variables), or be cleaned inside.
 */
bool netted_is_caught(void);

/* Which configuration file and which runtime directory this process goes by: the same number for processes that go by the same ones. */
uint64_t netted_ground(void);

/* fcntl(-1, F_OFD_GETLK, this): net/lockcall.h. */
#define NETTED_HELLO_ADDRESS UINT64_C(0x6466656e)

#endif
