/*
 * syscall_calls WHERE FILE: lock calls by libc's syscall(), and others by it that the shim must not touch. WHERE: main,
 * preinit, constructor, handler, fork, vfork.
 */
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/interpose/calls.h"

static const char *path;

static void flocks(int fd, int other)
{
	CALL("flock", syscall(SYS_flock, fd, LOCK_EX));
	CALL("flock, held", syscall(SYS_flock, other, LOCK_EX | LOCK_NB));
	CALL("unlock", syscall(SYS_flock, fd, LOCK_UN));
	CALL("flock, shared", syscall(SYS_flock, other, LOCK_SH | LOCK_NB));
	CALL("flock, no such operation", syscall(SYS_flock, fd, 99));
	CALL("flock, bad descriptor", syscall(SYS_flock, 99, LOCK_EX));
	CALL("flock, upper halves", syscall(SYS_flock, (long)fd | INT64_C(1) << 40, (long)LOCK_SH | INT64_C(1) << 33));
	CALL("unlock", syscall(SYS_flock, fd, LOCK_UN));
	CALL("unlock", syscall(SYS_flock, other, LOCK_UN));
}

static void records(int fd, int other)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5}, test = lock;

	CALL("F_SETLK", syscall(SYS_fcntl, fd, F_SETLK, &lock));
	CALL("F_SETLKW", syscall(SYS_fcntl, fd, F_SETLKW, &lock));
	CALL("F_GETLK", syscall(SYS_fcntl, fd, F_GETLK, &test));
	printf("type %d\n", test.l_type);
	test = lock;
	CALL("F_OFD_GETLK", syscall(SYS_fcntl, other, F_OFD_GETLK, &test));
	printf("type %d start %ld len %ld mine %d\n", test.l_type, (long)test.l_start, (long)test.l_len,
	       test.l_pid == getpid());
	test = lock;
	CALL("F_OFD_SETLK", syscall(SYS_fcntl, other, F_OFD_SETLK, &test));
	lock.l_type = F_UNLCK;
	CALL("unlock", syscall(SYS_fcntl, fd, F_SETLK, &lock));
	CALL("F_OFD_SETLKW", syscall(SYS_fcntl, other, F_OFD_SETLKW, &test));
	test.l_type = F_UNLCK;
	CALL("F_OFD_SETLK unlock", syscall(SYS_fcntl, other, F_OFD_SETLK, &test));
	lock.l_type = 17;
	CALL("bad type", syscall(SYS_fcntl, fd, F_SETLK, &lock));
	CALL("bad pointer", syscall(SYS_fcntl, fd, F_SETLK, (void *)8));
	CALL("bad descriptor", syscall(SYS_fcntl, 99, F_SETLKW, &lock));
}

static void others(int fd)
{
	struct timespec none = {0}, left;
	void *map;

	CALL("F_GETFD", syscall(SYS_fcntl, fd, F_GETFD));
	CALL("F_DUPFD", syscall(SYS_fcntl, fd, F_DUPFD, 50));
	CALL("close", syscall(SYS_close, 50));
	CALL("close again", syscall(SYS_close, 50));
	CALL("F_SETOWN", syscall(SYS_fcntl, fd, F_SETOWN, 0L));
	CALL("command 4", syscall(SYS_fcntl, fd, F_SETFL, (long)O_NONBLOCK));
	CALL("command 8 and 35", syscall(SYS_fcntl, fd, 35, 0L));
	CALL("getpid", syscall(SYS_getpid) == getpid());
	CALL("no such call", syscall(9999));
	CALL("negative", syscall(-1));
	map = (void *)syscall(SYS_mmap, NULL, 8192L, (long)PROT_READ, (long)MAP_PRIVATE, (long)fd, 4096L);
	CALL("all six", map != MAP_FAILED && syscall(SYS_munmap, map, 8192L) == 0);
	CALL("five", syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &none, &left));
	CALL("pselect6", syscall(SYS_pselect6, 0L, NULL, NULL, NULL, &none, NULL));
}

static void all(const char *who)
{
	int fd = must_open(path, O_RDWR | O_CREAT), other = must_open(path, O_RDWR);

	printf("%s\n", who);
	flocks(fd, other);
	records(fd, other);
	others(fd);
	close(fd);
	close(other);
}

/* Runs before the constructor of any library. */
static void early(int argc, char **argv, char **envp)
{
	if (argc == 3 && strcmp(argv[1], "preinit") == 0) {
		path = argv[2];
		all("preinit");
	}
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **, char **) = early;

__attribute__((constructor)) static void at_start(void)
{
	const char *file = started_for("constructor");

	if (file) {
		path = file;
		all("constructor");
	}
}

static void handler(int sig) { all("handler"); }

static void in_child(pid_t pid, const char *who)
{
	int status;

	if (pid == 0) {
		all(who);
		fflush(stdout);
		_exit(0);
	}
	CALL("waited", waitpid(pid, &status, 0) == pid ? status : -1);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 99;
	path = argv[2];
	if (strcmp(argv[1], "main") == 0)
		all("main");
	if (strcmp(argv[1], "handler") == 0) {
		signal(SIGUSR1, handler);
		raise(SIGUSR1);
	}
	if (strcmp(argv[1], "fork") == 0)
		in_child((pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L), "fork");
	if (strcmp(argv[1], "vfork") == 0)
		in_child(vfork(), "vfork");
	print_descriptors();
	return 0;
}
