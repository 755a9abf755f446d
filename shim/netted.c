/*
 * Under the net (docs/net.md) the kernel hands every lock call to a supervisor. The shim's own calls need none: they have a
 * lease, or are of files that no rule names. So they carry a key in the sixth argument, which lock calls do not use, and the
 * filter lets them pass.
 *
 * The kernel keeps that register, and a program's next lock call may have it still. So the key is bound to the call: it is
 * K ^ fd ^ command, in the low half; and the register is cleared as soon as the call has returned.
 *
 * A program that means to go past the net can read K in its environment. It can also lock nothing, or take the lock of another
 * file: the net is for programs that want to be protected.
 *
 * F_SETLKW, F_OFD_SETLKW and F_LOCK that take a lock are cancellation points, so libc makes them, without a key; the supervisor then
 * asks the keeper once more. To unlock they never wait, and become F_SETLK and F_OFD_SETLK (record.c): a call without the key may end
 * with EINTR though it does not wait (docs/net.md, finding 6).
 */

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "shim/real.h"
#include "shim/root.h"
#include "shim/settings.h"
#include "wire/leases.h"
#include "wire/rundir.h"
#include "wire/sys.h"
#include "wire/text.h"

/* What the path leads to; while that is missing, the path. */
static uint64_t netted_ground_of(const char *path)
{
	char text[64];
	struct stat st;

	if (sys_stat(path, &st) < 0)
		return leases_hash(path);
	text_print(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	return leases_hash(text);
}

uint64_t netted_ground(void)
{
	const struct settings *s = settings_get();
	char dir[PLACE_DIR_BYTES], why[WIRE_REASON_BYTES];

	if (rundir_find(&s->place, sys_geteuid(), dir, why, sizeof(why)) < 0)
		dir[0] = '\0';
	return netted_ground_of(s->place.config) ^ netted_ground_of(dir) << 1;
}

#ifdef SYS_INLINE

static uint64_t netted_key;
static bool netted_key_is_set;
static real_fcntl_fn *netted_fcntl_of_libc;

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

static int netted_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return netted_is_lock_command(cmd) ? (int)sys_libc(netted_call(SYS_fcntl, fd, cmd, arg))
					   : netted_fcntl_of_libc(fd, cmd, arg);
}

/* Another preload may hook flock(): it does not see these calls then, which is why this is done under the net alone. */
static void netted_replace(void)
{
	netted_fcntl_of_libc = real_fcntl64; /* on these machines the three are one */
	__atomic_store_n(&real_flock, netted_flock, __ATOMIC_RELEASE);
	__atomic_store_n(&real_fcntl, netted_fcntl, __ATOMIC_RELEASE);
	__atomic_store_n(&real_fcntl64, netted_fcntl, __ATOMIC_RELEASE);
	__atomic_store_n(&real___fcntl, netted_fcntl, __ATOMIC_RELEASE);
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

/* ENOSYS: both supervisors have been killed. */
bool netted_is_caught(void)
{
	long ret;

	do
		ret = sys(fcntl, -1L, F_OFD_GETLK, NETTED_HELLO_ADDRESS, netted_ground());
	while (ret == -EINTR);
	return ret == 0 || (ret == -EEXIST && root_was_left(settings_get())) || ret == -ENOSYS;
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

bool netted_is_caught(void)
{
	return false;
}

#endif
