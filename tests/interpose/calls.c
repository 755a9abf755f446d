/*
 * calls WHAT FILE [DIRECTORY]: "flock": every operation on every kind of descriptor; "fcntl": commands with every kind of third argument,
 * through each of its names and syscall(); "record": record locks with arguments that the kernel turns down, or that are easily got wrong.
 */
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static void operations(const char *path)
{
	static const int ops[] = {
		LOCK_SH,           LOCK_EX,
		LOCK_UN,           LOCK_SH | LOCK_NB,
		LOCK_EX | LOCK_NB, LOCK_UN | LOCK_NB,
		LOCK_UN,           0,
		LOCK_NB,           LOCK_SH | LOCK_EX,
		LOCK_EX | LOCK_UN, 16,
		LOCK_MAND,         LOCK_MAND | LOCK_READ,
		1 << 20,           -1,
	};
	char what[32];
	int fd = must_open(path, O_RDWR | O_CREAT);

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		snprintf(what, sizeof(what), "op %#x", (unsigned)ops[i]);
		CALL(what, flock(fd, ops[i]));
	}
	close(fd);
}

static void conflicts(const char *path)
{
	int a = must_open(path, O_RDWR), b = must_open(path, O_RDWR), c = dup(a);

	CALL("a shared", flock(a, LOCK_SH));
	CALL("b shared", flock(b, LOCK_SH | LOCK_NB));
	CALL("b upgrade fails", flock(b, LOCK_EX | LOCK_NB));
	CALL("and lost what it had: a upgrade", flock(a, LOCK_EX | LOCK_NB));
	CALL("the same description", flock(c, LOCK_EX | LOCK_NB));
	CALL("b exclusive", flock(b, LOCK_EX | LOCK_NB));
	CALL("b shared", flock(b, LOCK_SH | LOCK_NB));
	CALL("unlock through the copy", flock(c, LOCK_UN));
	CALL("b exclusive", flock(b, LOCK_EX | LOCK_NB));
	close(b);
	CALL("after close", flock(a, LOCK_EX | LOCK_NB));
	close(a);
	close(c);
}

static void kinds(const char *path, const char *dir)
{
	int pair[2];

	CALL("read-only, exclusive", flock(must_open(path, O_RDONLY), LOCK_EX | LOCK_NB));
	close(3);
	CALL("write-only, shared", flock(must_open(path, O_WRONLY), LOCK_SH | LOCK_NB));
	close(3);
	CALL("neither", flock(must_open(path, O_ACCMODE), LOCK_SH));
	close(3);
	CALL("O_PATH", flock(must_open(path, O_PATH), LOCK_EX));
	close(3);
	CALL("directory", flock(must_open(dir, O_RDONLY | O_DIRECTORY), LOCK_EX));
	close(3);
	CALL("/dev/null", flock(must_open("/dev/null", O_RDWR), LOCK_EX));
	close(3);
	CALL("memfd", flock(memfd_create("x", 0), LOCK_EX));
	close(3);
	CALL("eventfd", flock(eventfd(0, 0), LOCK_EX));
	close(3);
	if (pipe(pair) == 0)
		CALL("pipe", flock(pair[0], LOCK_EX));
	close(pair[0]);
	close(pair[1]);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)
		CALL("socket", flock(pair[0], LOCK_EX));
	close(pair[0]);
	close(pair[1]);
	CALL("never open", flock(200, LOCK_EX));
	CALL("closed", flock(3, LOCK_SH | LOCK_NB));
	CALL("-1", flock(-1, LOCK_EX));
	CALL("INT_MAX", flock(0x7fffffff, LOCK_EX));
	CALL("bad descriptor and operation", flock(-1, 0));
}

static void deleted(const char *path)
{
	int fd = must_open(path, O_RDWR);

	unlink(path);
	CALL("deleted", flock(fd, LOCK_EX));
	CALL("deleted, again", flock(fd, LOCK_SH | LOCK_NB));
	close(fd);
}

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

static void print_lock(const struct flock *lock)
{
	printf("  type %d whence %d start %lld len %lld pid %d\n", lock->l_type, lock->l_whence,
	       (long long)lock->l_start, (long long)lock->l_len, lock->l_pid == getpid() ? 1 : lock->l_pid);
}

/* Two pages, of which the second may not be touched; the struct ends `inside` bytes into it. */
static struct flock *at_border(char *pages, long inside)
{
	struct flock *lock = (struct flock *)(pages + 4096 + inside - (long)sizeof(*lock));

	if (inside <= 0)
		*lock = (struct flock){.l_type = F_WRLCK, .l_start = 10, .l_len = 5};
	return lock;
}

static void pointers(int fd)
{
	static const int commands[] = {F_SETLK, F_SETLKW, F_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK};
	static const struct flock constant = {.l_type = F_WRLCK, .l_start = 10, .l_len = 5};
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct flock unlock = {.l_type = F_UNLCK};

	mprotect(pages + 4096, 4096, PROT_NONE);
	for (int i = 0; i < 6; i++) {
		printf("command %d\n", commands[i]);
		CALL("NULL", fcntl(fd, commands[i], NULL));
		CALL("-1", fcntl(fd, commands[i], (void *)-1));
		CALL("no address at all", fcntl(fd, commands[i], (void *)0x1234567812345678));
		CALL("forbidden", fcntl(fd, commands[i], pages + 4096));
		CALL("half of it", fcntl(fd, commands[i], at_border(pages, 16)));
		CALL("a byte of it", fcntl(fd, commands[i], at_border(pages, 1)));
		CALL("up to the border", fcntl(fd, commands[i], at_border(pages, 0)));
		CALL("not aligned", fcntl(fd, commands[i], at_border(pages, -3)));
		CALL("in constant memory", fcntl(fd, commands[i], &constant));
		CALL("bad pointer, bad descriptor", fcntl(77, commands[i], NULL));
		fcntl(fd, i < 3 ? F_SETLK : F_OFD_SETLK, &unlock);
	}
	munmap(pages, 8192);
}

struct above {
	int fd;
	struct flock *lock; /* in the page above the stack */
};

static int above_the_stack(void *arg)
{
	struct above *above = arg;

	CALL("above the stack", fcntl(above->fd, F_GETLK, above->lock));
	mprotect(above->lock, 4096, PROT_NONE);
	CALL("not there any more", fcntl(above->fd, F_GETLK, above->lock));
	return 0;
}

/* That memory could be read in an earlier call says nothing, also where it lies beside the frames of this one. */
static void beside_the_stack(int fd)
{
	const size_t size = 16 * 4096;
	char *stack = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct above above = {fd, (struct flock *)(stack + size)};
	int status = -1;

	*above.lock = (struct flock){.l_type = F_WRLCK};
	waitpid(clone(above_the_stack, stack + size, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &above), &status,
		0);
	CALL("waited", status);
	munmap(stack, size + 4096);
}

static void modes(const char *path)
{
	static const int commands[] = {F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_GETLK, F_OFD_GETLK};
	struct flock unlock = {.l_type = F_UNLCK};
	static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_PATH, O_RDONLY | O_DIRECTORY};

	for (int i = 0; i < 5; i++) {
		int fd = must_open(i == 4 ? "/dev/shm" : path, flags[i]);

		for (int j = 0; j < 6; j++) {
			struct flock sh = {.l_type = F_RDLCK, .l_len = 3}, ex = {.l_type = F_WRLCK, .l_len = 3};
			struct flock bad = {.l_type = F_WRLCK, .l_whence = 9},
				     range = {.l_type = F_WRLCK, .l_start = -1};
			struct flock pid = {.l_type = F_RDLCK, .l_pid = 5};

			printf("flags %d command %d\n", i, commands[j]);
			CALL("shared", fcntl(fd, commands[j], &sh));
			CALL("exclusive", fcntl(fd, commands[j], &ex));
			CALL("bad whence", fcntl(fd, commands[j], &bad));
			CALL("bad range", fcntl(fd, commands[j], &range));
			CALL("l_pid", fcntl(fd, commands[j], &pid));
			fcntl(fd, F_SETLK, &unlock);
			fcntl(fd, F_OFD_SETLK, &unlock);
		}
		close(fd);
	}
}

static void tests(int fd, int other)
{
	struct flock ex = {.l_type = F_WRLCK, .l_start = 10, .l_len = 5}, lock = ex;
	struct flock own = {.l_type = F_UNLCK};

	lseek(fd, 10, SEEK_SET);
	CALL("OFD lock", fcntl(other, F_OFD_SETLK, &ex));
	CALL("F_GETLK in the way", fcntl(fd, F_GETLK, &lock));
	print_lock(&lock);
	lock = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_CUR, .l_start = 5, .l_len = 4, .l_pid = 9};
	CALL("F_GETLK beside it", fcntl(fd, F_GETLK, &lock));
	print_lock(&lock);
	CALL("F_GETLK for nothing", fcntl(fd, F_GETLK, &own));
	CALL("F_OFD_GETLK for its own", fcntl(other, F_OFD_GETLK, &own));
	print_lock(&own);
	CALL("F_TEST in the way", lockf(fd, F_TEST, 0));
	CALL("F_TLOCK in the way", lockf(fd, F_TLOCK, 1));
	CALL("F_TEST beside it", lockf(fd, F_TEST, -2));
	ex.l_type = F_RDLCK;
	CALL("OFD lock, shared", fcntl(other, F_OFD_SETLK, &ex));
	CALL("F_TEST sees no shared lock", lockf(fd, F_TEST, 0));
	CALL("F_TLOCK does", lockf(fd, F_TLOCK, 0));
	CALL("F_LOCK beside it", lockf(fd, F_LOCK, -2));
	CALL("F_TEST, own lock", lockf(fd, F_TEST, -2));
	CALL("F_ULOCK", lockf(fd, F_ULOCK, -2));
	for (int i = 0; i < 2; i++) {
		int (*f)(int, int, off_t) = i ? lockf64 : lockf;

		CALL("F_LOCK", f(fd, F_LOCK, -3));
		CALL("F_ULOCK", f(fd, F_ULOCK, 0));
		CALL("F_LOCK before the start", f(fd, F_LOCK, -13));
		CALL("F_TEST before the start", f(fd, F_TEST, -13));
		CALL("F_LOCK, too long", f(fd, F_LOCK, 0x7fffffffffffffff));
		CALL("unknown", f(fd, 9, 0));
		CALL("bad descriptor", f(99, F_TLOCK, 0));
		CALL("unknown, bad descriptor", f(99, 77, 0));
	}
}

int main(int argc, char **argv)
{
	fcntl_fn *const names[] = {fcntl, fcntl64, __fcntl, by_syscall};
	int fd, other;

	if (argc < 3)
		return 99;
	fd = must_open(argv[2], O_RDWR | O_CREAT);
	if (strcmp(argv[1], "flock") == 0) {
		close(fd);
		operations(argv[2]);
		conflicts(argv[2]);
		kinds(argv[2], argv[3]);
		deleted(argv[2]);
		print_descriptors();
		return 0;
	}
	other = must_open(argv[2], O_RDWR);
	for (int i = 0; i < 4 && strcmp(argv[1], "fcntl") == 0; i++) {
		printf("--- name %d\n", i);
		flags(names[i], fd);
		owners(names[i], fd);
		records(names[i], fd, other);
		others(names[i], fd);
	}
	if (strcmp(argv[1], "record") == 0) {
		pointers(fd);
		beside_the_stack(fd);
		modes(argv[2]);
		tests(fd, other);
	}
	print_descriptors();
	return 0;
}
