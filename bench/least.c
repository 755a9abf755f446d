/*
 * What any preload has to do before a lock call: find out which file the descriptor refers to now, since it may be another one than at the last
 * call. Nothing is done with that. So a program with this library takes the least that one with dflock could take (`floor` of bench/run.py).
 *
 * Before an exclusive or shared record lock, what the process has in the range is asked for, too: it must be put back if the call fails later.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static void least_identify(int fd)
{
	struct statx stx;

	syscall(SYS_statx, fd, "", AT_STATX_DONT_SYNC | AT_EMPTY_PATH,
		STATX_TYPE | STATX_NLINK | STATX_CTIME | STATX_INO | STATX_BTIME | 0x1000 /* STATX_MNT_ID */, &stx);
}

EXPORTED int flock(int fd, int operation)
{
	if (!(operation & LOCK_UN))
		least_identify(fd);
	return (int)syscall(SYS_flock, fd, operation);
}

EXPORTED int fcntl(int fd, int command, ...)
{
	struct flock *lock, had;
	va_list args;

	va_start(args, command);
	lock = va_arg(args, struct flock *);
	va_end(args);
	if (command == F_GETLK) {
		least_identify(fd);
	} else if (command == F_SETLK && lock->l_type != F_UNLCK) {
		least_identify(fd);
		had = (struct flock){
			.l_type = F_WRLCK, .l_whence = lock->l_whence, .l_start = lock->l_start, .l_len = lock->l_len};
		syscall(SYS_fcntl, fd, F_OFD_GETLK, &had);
	}
	return (int)syscall(SYS_fcntl, fd, command, lock);
}

EXPORTED __typeof__(fcntl) fcntl64 __attribute__((alias("fcntl")));
