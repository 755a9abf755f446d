/* See netted.h. */
#include "shim/netted.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "shim/real.h"
#include "wire/sys.h"

#ifdef SYS_INLINE

static uint64_t netted_key;
static bool netted_key_is_set;
static real_fcntl_fn *netted_fcntl_of_libc, *netted_fcntl64_of_libc, *netted___fcntl_of_libc;

/* sys_call() with three arguments and the key, which no register has afterwards. */
static long netted_call(long number, int fd, long command, void *arg)
{
	const uint64_t key = netted_key ^ (uint32_t)fd ^ (uint32_t)command;

#ifdef __x86_64__
	register uint64_t r9 __asm__("r9") = key;

	__asm__ volatile("syscall\n\txorl %%r9d, %%r9d"
			 : "+a"(number), "+r"(r9)
			 : "D"((long)fd), "S"(command), "d"(arg)
			 : "rcx", "r11", "memory");
	return number;
#else
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = fd;
	register long x1 __asm__("x1") = command;
	register void *x2 __asm__("x2") = arg;
	register uint64_t x5 __asm__("x5") = key;

	__asm__ volatile("svc #0\n\tmov x5, xzr" : "+r"(x0), "+r"(x5) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#endif
}

static int netted_flock(int fd, int op)
{
	return (int)sys_libc(netted_call(SYS_flock, fd, op, NULL));
}

static bool netted_is_lock_command(int cmd)
{
	return cmd == F_GETLK || cmd == F_SETLK || cmd == F_OFD_GETLK || cmd == F_OFD_SETLK;
}

static int netted_fcntl_by(real_fcntl_fn *libc, int fd, int cmd, void *arg)
{
	return netted_is_lock_command(cmd) ? (int)sys_libc(netted_call(SYS_fcntl, fd, cmd, arg)) : libc(fd, cmd, arg);
}

#define NETTED_FCNTL(name)                                                                                             \
	static int netted_##name(int fd, int cmd, ...)                                                                 \
	{                                                                                                              \
		va_list ap;                                                                                            \
		void *arg;                                                                                             \
                                                                                                                       \
		va_start(ap, cmd);                                                                                     \
		arg = va_arg(ap, void *);                                                                              \
		va_end(ap);                                                                                            \
		return netted_fcntl_by(netted_##name##_of_libc, fd, cmd, arg);                                         \
	}
NETTED_FCNTL(fcntl)
NETTED_FCNTL(fcntl64)
NETTED_FCNTL(__fcntl)

/* Another preload may hook flock(): it does not see these calls then, which is why this is done under the net alone. */
static void netted_replace(void)
{
	netted_fcntl_of_libc = real_fcntl;
	netted_fcntl64_of_libc = real_fcntl64;
	netted___fcntl_of_libc = real___fcntl;
	__atomic_store_n(&real_flock, netted_flock, __ATOMIC_RELEASE);
	__atomic_store_n(&real_fcntl, netted_fcntl, __ATOMIC_RELEASE);
	__atomic_store_n(&real_fcntl64, netted_fcntl64, __ATOMIC_RELEASE);
	__atomic_store_n(&real___fcntl, netted___fcntl, __ATOMIC_RELEASE);
}

/* -1: it is none. */
static int netted_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool netted_is_on(void)
{
	return netted_key_is_set;
}

void netted_init(void)
{
	const char *text = secure_getenv(NETTED_VARIABLE);
	uint64_t key = 0;

	if (!text)
		return;
	for (int i = 0; i < 16; i++) {
		if (netted_digit(text[i]) < 0)
			return;
		key = key << 4 | (uint64_t)netted_digit(text[i]);
	}
	if (text[16])
		return;
	netted_key = key;
	netted_key_is_set = true;
	netted_replace();
}

#else

void netted_init(void)
{
}

bool netted_is_on(void)
{
	return false;
}

#endif
