/*
 * The functions that programs call instead of libc's: NAME is exported, shim_NAME decides, real_NAME is the function
 * that the program would have called without us. Only this file sets errno for the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "shim/ask.h"
#include "shim/call.h"
#include "shim/intent.h"
#include "shim/protect.h"
#include "shim/real.h"
#include "shim/report.h"
#include "shim/root.h"
#include "shim/settings.h"
#include "wire/sys.h"

#define EXPORT __attribute__((visibility("default")))

__attribute__((constructor)) static void shim_init(void)
{
	int saved = errno;

	real_init();
	netted_init();
	settings_init();
	report_init();
	require_check();
	errno = saved;
}

/* The result, for the program, of a call that was not passed on and ended with 0 or -errno. */
static int shim_end(int ret, int saved)
{
	errno = ret < 0 ? -ret : saved;
	return ret < 0 ? -1 : 0;
}

static inline int shim_flock_decide(int fd, int op, struct protect_look *look)
{
	struct intent want;

	if (!intent_flock(op, &want))
		return CALL_KERNEL;
	switch (protect_look(fd, look)) {
	case PROTECT_NO:
		return CALL_KERNEL;
	case PROTECT_ASK:
		return acquire_flock(fd, op, &want, look);
	default:
		return -ENOLCK;
	}
}

static int shim_flock(int (*real)(int fd, int op), int fd, int op)
{
	struct protect_look look;
	struct report_call report;
	const int saved = errno;
	bool reported;
	int decided, ret;

	abandoned_end();
	look.refused = look.disclaimed = false;
	reported = report_is_wanted() && report_begin(&report, fd, report_flock(op));
	decided = shim_flock_decide(fd, op, &look);
	errno = saved;
	ret = decided == CALL_KERNEL ? real(fd, op) : shim_end(decided, saved);
	if (reported)
		report_end(&report, &look, decided, ret);
	return ret;
}

EXPORT int flock(int fd, int op)
{
	/* Mostly LOCK_UN, with nothing to keep in a frame. */
	if (!intent_is_flock(op) && !report_is_wanted()) {
		abandoned_end();
		return real_flock(fd, op);
	}
	return shim_flock(real_flock, fd, op);
}

EXPORT int chroot(const char *path)
{
	return root_change(path);
}

/* Not inlined, so that all the other commands of fcntl() stay fast. */
static __attribute__((noinline)) int shim_fcntl(real_fcntl_fn *real, int fd, int cmd, void *arg, bool ofd_small)
{
	struct protect_look look;
	struct report_call report;
	const int saved = errno;
	bool reported;
	int decided, ret;

	abandoned_end();
	look.refused = look.disclaimed = false;
	reported = report_is_wanted() && report_begin(&report, fd, record_report(fd, cmd, arg, ofd_small));
	decided = record_fcntl(real, fd, cmd, arg, ofd_small, &look);
	errno = saved;
	ret = decided == CALL_KERNEL ? real(fd, cmd, arg) : shim_end(decided, saved);
	/* The kernel, or record_fcntl(), has written there. Both kinds of struct flock begin with l_type. */
	if (reported) {
		report.found =
			report.what.kind == REPORT_TEST && ret == 0 && ((const struct flock *)arg)->l_type != F_UNLCK;
		report_end(&report, &look, decided, ret);
	}
	return ret;
}

/*
 * libc, too, reads the third argument as a pointer, for every command, whether the program gave it or not. These functions
 * are not variadic as those of libc are: that would cost a frame and a second return at every call. On all of these
 * architectures a third argument of this kind arrives in the same place in both kinds of functions.
 */
#if !(defined(__x86_64__) || defined(__i386__) || defined(__aarch64__) || defined(__arm__) || defined(__riscv) ||      \
      defined(__powerpc64__) || defined(__s390x__) || defined(__mips__) || defined(__loongarch__))
#error "does a variadic function find its third argument where another one does?"
#endif

#define EXPORT_FCNTL(name, ofd_small)                                                                                  \
	EXPORT int export_##name(int fd, int cmd, void *arg) __asm__(#name);                                           \
	EXPORT int export_##name(int fd, int cmd, void *arg)                                                           \
	{                                                                                                              \
		if (__builtin_expect(record_is(cmd), 0))                                                               \
			return shim_fcntl(real_##name, fd, cmd, arg, ofd_small);                                       \
		return real_##name(fd, cmd, arg);                                                                      \
	}

EXPORT_FCNTL(fcntl, true)
EXPORT_FCNTL(fcntl64, false)
EXPORT_FCNTL(__fcntl, true)
#if __SIZEOF_POINTER__ == 4
EXPORT_FCNTL(__fcntl_time64, false)
#endif

#ifdef SYS_INLINE
/*
 * syscall(SYS_flock, ...) and syscall(SYS_fcntl, ...). For all other numbers the code must only compare and jump, and
 * leave everything in its place, also on the stack: after some calls the frame is gone (clone, vfork), and if the
 * program gave fewer than six arguments, other data of the caller stands where libc reads the sixth. Before a jump from
 * C, gcc wrote that place again, which would undo a change that another thread has made there. Hence assembly where the
 * sixth argument is on the stack.
 */
long shim_syscall_flock(int fd, int op);
long shim_syscall_fcntl(int fd, int cmd, void *arg);

__attribute__((used)) long shim_syscall_flock(int fd, int op)
{
	return shim_flock(netted_is_on() ? real_flock : real_syscall_flock, fd, op);
}

__attribute__((used)) long shim_syscall_fcntl(int fd, int cmd, void *arg)
{
	const bool waits =
		cmd == F_SETLKW || cmd == F_OFD_SETLKW; /* libc's, which has no key, is a cancellation point */

	return shim_fcntl(netted_is_on() && !waits ? real_fcntl64 : real_syscall_fcntl, fd, cmd, arg, false);
}

#ifdef __x86_64__
_Static_assert(SYS_fcntl == 72 && SYS_flock == 73, "the numbers below");
_Static_assert(F_GETLK == 5 && F_SETLKW == 7 && F_GETLK64 == 5 && F_OFD_GETLK == 36 && F_OFD_SETLKW == 38,
	       "the commands below are those of record_is()");

/* Compares 32 bits of the number, as the kernel does. */
__asm__(".pushsection .text\n"
	".globl syscall\n"
	".type syscall, @function\n"
	".p2align 4\n"
	"syscall:\n"
	".cfi_startproc\n"
	"	endbr64\n"
	"	cmpl $72, %edi\n"
	"	je 2f\n"
	"	cmpl $73, %edi\n"
	"	je 4f\n"
	"1:	jmp *real_syscall(%rip)\n"
	"2:	leal -5(%rdx), %eax\n"
	"	cmpl $2, %eax\n"
	"	jbe 3f\n"
	"	leal -36(%rdx), %eax\n"
	"	cmpl $2, %eax\n"
	"	ja 1b\n"
	"3:	movl %esi, %edi\n"
	"	movl %edx, %esi\n"
	"	movq %rcx, %rdx\n"
	"	jmp shim_syscall_fcntl\n"
	"4:	movl %esi, %edi\n"
	"	movl %edx, %esi\n"
	"	jmp shim_syscall_flock\n"
	".cfi_endproc\n"
	".size syscall, . - syscall\n"
	".popsection\n");
#else
/* Under its own name it would have to be variadic. For callers there is no difference on this architecture: seven
 * registers. */
EXPORT long shim_syscall(long number, long a, long b, long c, long d, long e, long f) __asm__("syscall");

long shim_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	if (__builtin_expect((int)number == SYS_flock, 0))
		return shim_syscall_flock((int)a, (int)b);
	if (__builtin_expect((int)number == SYS_fcntl && record_is((int)b), 0))
		return shim_syscall_fcntl((int)a, (int)b, (void *)c);
	return real_syscall(number, a, b, c, d, e, f);
}
#endif
#endif

static int shim_lockf(int fd, int cmd, int64_t len)
{
	struct protect_look look;
	struct report_call report;
	const int saved = errno;
	bool reported;
	int decided, ret;

	abandoned_end();
	look.refused = look.disclaimed = false;
	reported = report_is_wanted() && report_begin(&report, fd, record_report_lockf(fd, cmd, len));
	decided = record_lockf(fd, cmd, len, &look);
	errno = saved;
	ret = decided == CALL_KERNEL ? real_lockf64(fd, cmd, len) : shim_end(decided, saved);
	if (reported) {
		report.found = report.what.kind == REPORT_TEST && ret < 0 && errno == EACCES;
		report_end(&report, &look, decided, ret);
	}
	return ret;
}

EXPORT int lockf(int fd, int cmd, off_t len)
{
	return shim_lockf(fd, cmd, len);
}

EXPORT int lockf64(int fd, int cmd, off64_t len)
{
	return shim_lockf(fd, cmd, len);
}
