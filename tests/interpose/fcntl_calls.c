/* fcntl_calls FILE: commands of fcntl() with every kind of third argument, through each of its names and syscall(), and lockf(). */
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/interpose/calls.h"

extern int __fcntl(int fd, int cmd, ...);
typedef int fcntl_fn(int fd, int cmd, ...);

static int by_syscall(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

static void flags(fcntl_fn *f, int fd)
{
	CALL("F_GETFD", f(fd, F_GETFD));
	CALL("F_SETFD", f(fd, F_SETFD, FD_CLOEXEC));
	CALL("F_GETFD", f(fd, F_GETFD));
	CALL("F_DUPFD", f(fd, F_DUPFD, 50));
	CALL("F_DUPFD_CLOEXEC", f(fd, F_DUPFD_CLOEXEC, 50));
	CALL("F_GETFD of the copy", f(51, F_GETFD));
	CALL("F_DUPFD of nothing", f(-1, F_DUPFD, 0));
	CALL("F_DUPFD too high", f(fd, F_DUPFD, 0x7fffffff));
	CALL("F_SETFL", f(fd, F_SETFL, O_NONBLOCK | O_APPEND));
	CALL("F_GETFL", f(fd, F_GETFL));
	CALL("unknown", f(fd, 9999, 1L));
	CALL("unknown, closed", f(77, 9999, 1L));
	close(50);
	close(51);
}

static void owners(fcntl_fn *f, int fd)
{
	struct f_owner_ex owner = {F_OWNER_PID, getpid()};

	CALL("F_SETOWN", f(fd, F_SETOWN, 0));
	CALL("F_GETOWN", f(fd, F_GETOWN));
	CALL("F_SETOWN_EX", f(fd, F_SETOWN_EX, &owner));
	owner.pid = 0;
	CALL("F_GETOWN_EX", f(fd, F_GETOWN_EX, &owner));
	printf("mine: %d\n", owner.pid == getpid());
	CALL("F_GETOWN is mine", f(fd, F_GETOWN) == getpid());
	CALL("F_SETOWN group", f(fd, F_SETOWN, -getpgrp()));
	CALL("F_GETOWN is the group", f(fd, F_GETOWN) == -getpgrp());
	CALL("F_SETSIG", f(fd, F_SETSIG, SIGUSR1));
	CALL("F_GETSIG", f(fd, F_GETSIG));
	CALL("F_SETOWN_EX, bad pointer", f(fd, F_SETOWN_EX, (void *)8));
}

static void records(fcntl_fn *f, int fd, int other)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
	struct flock test = lock;

	CALL("F_SETLK", f(fd, F_SETLK, &lock));
	CALL("F_SETLKW", f(fd, F_SETLKW, &lock));
	CALL("F_GETLK", f(fd, F_GETLK, &test));
	printf("type %d\n", test.l_type);
	test = lock;
	CALL("F_OFD_GETLK", f(other, F_OFD_GETLK, &test));
	printf("type %d start %ld len %ld mine %d\n", test.l_type, (long)test.l_start, (long)test.l_len,
	       test.l_pid == getpid());
	test = lock;
	CALL("F_OFD_SETLK", f(other, F_OFD_SETLK, &test));
	lock.l_type = F_UNLCK;
	CALL("unlock", f(fd, F_SETLK, &lock));
	CALL("F_OFD_SETLK", f(other, F_OFD_SETLK, &test));
	CALL("F_OFD_SETLKW", f(other, F_OFD_SETLKW, &test));
	test.l_type = F_UNLCK;
	CALL("F_OFD_SETLK unlock", f(other, F_OFD_SETLK, &test));
	lock.l_type = 17;
	CALL("bad type", f(fd, F_SETLK, &lock));
	CALL("bad pointer", f(fd, F_SETLK, (void *)8));
	CALL("bad descriptor", f(99, F_SETLKW, &lock));
	lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
	CALL("write lock, read-only", f(must_open("/etc/passwd", O_RDONLY), F_SETLK, &lock));
	close(5);
}

static void others(fcntl_fn *f, int fd)
{
	uint64_t hint = 0;
	int pair[2], memfd = memfd_create("x", MFD_ALLOW_SEALING);

	CALL("F_GET_RW_HINT", f(fd, F_GET_RW_HINT, &hint));
	hint = RWH_WRITE_LIFE_SHORT;
	CALL("F_SET_RW_HINT", f(fd, F_SET_RW_HINT, &hint));
	CALL("F_GETLEASE", f(fd, F_GETLEASE));
	CALL("F_SETLEASE", f(fd, F_SETLEASE, F_UNLCK));
	CALL("F_ADD_SEALS", f(memfd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK));
	CALL("F_GET_SEALS", f(memfd, F_GET_SEALS));
	close(memfd);
	if (pipe(pair) == 0) {
		CALL("F_SETPIPE_SZ", f(pair[0], F_SETPIPE_SZ, 8192));
		CALL("F_GETPIPE_SZ", f(pair[1], F_GETPIPE_SZ));
		close(pair[0]);
		close(pair[1]);
	}
}

static void lockfs(int (*f)(int, int, off_t), int fd)
{
	lseek(fd, 100, SEEK_SET);
	CALL("F_LOCK", f(fd, F_LOCK, 10));
	CALL("F_TLOCK", f(fd, F_TLOCK, 0));
	CALL("F_TEST", f(fd, F_TEST, -5));
	CALL("F_ULOCK", f(fd, F_ULOCK, 0));
	CALL("before the start", f(fd, F_LOCK, -200));
	CALL("unknown", f(fd, 9, 0));
	CALL("bad descriptor", f(99, F_TLOCK, 0));
	CALL("unknown, bad descriptor", f(99, 77, 0));
}

int main(int argc, char **argv)
{
	fcntl_fn *const names[] = {fcntl, fcntl64, __fcntl, by_syscall};
	int fd, other;

	if (argc != 2)
		return 99;
	fd = must_open(argv[1], O_RDWR | O_CREAT);
	other = must_open(argv[1], O_RDWR);
	for (int i = 0; i < 4; i++) {
		printf("--- name %d\n", i);
		flags(names[i], fd);
		owners(names[i], fd);
		records(names[i], fd, other);
		others(names[i], fd);
	}
	lockfs(lockf, fd);
	lockfs(lockf64, fd);
	print_descriptors();
	return 0;
}
