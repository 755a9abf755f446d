/*
 * places WHERE FILE: takes and gives up locks from an unusual place. WHERE: main, preinit, constructor, handler (on a small stack), fork,
 * vfork, threads, threads-fork. Before it may stand "record-", for record locks instead of flock(), or "syscall-", for both by
 * libc's syscall(), and for others by it that the shim must not touch.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/interpose/calls.h"

#define THREADS 8
#define ROUNDS  100

static enum { FLOCK, RECORD, SYSCALL } kind;
static const char *path;

/* Says what stands behind the kind. */
static const char *take_kind(const char *where)
{
	kind = strncmp(where, "record-", 7) == 0 ? RECORD : strncmp(where, "syscall-", 8) == 0 ? SYSCALL : FLOCK;
	return where + (kind == RECORD ? 7 : kind == SYSCALL ? 8 : 0);
}

static int record(int fd, int cmd, short type, off_t start)
{
	struct flock lock = {.l_type = type, .l_start = start, .l_len = 10};

	return fcntl(fd, cmd, &lock);
}

static void lock_by_flock(const char *who, int fd)
{
	CALL(who, flock(fd, LOCK_EX));
	CALL(who, flock(fd, LOCK_UN));
	CALL(who, flock(fd, LOCK_SH | LOCK_NB));
	CALL(who, fcntl(fd, F_GETFD));
}

static void lock_records(const char *who, int fd)
{
	CALL(who, record(fd, F_SETLK, F_WRLCK, 0));
	CALL(who, record(fd, F_SETLKW, F_RDLCK, 5));
	CALL(who, record(fd, F_GETLK, F_WRLCK, 0));
	CALL(who, record(fd, F_SETLK, F_UNLCK, 0));
	CALL(who, record(fd, F_OFD_SETLKW, F_WRLCK, 20));
	CALL(who, lockf(fd, F_LOCK, 5));
	CALL(who, lockf(fd, F_TEST, 5));
}

/* What fcntl() does by it: calls.c. */
static void lock_by_syscall(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_start = 10, .l_len = 5}, test = lock;
	struct timespec none = {0}, left;
	int other = must_open(path, O_RDWR);
	void *map;

	CALL("flock", syscall(SYS_flock, fd, LOCK_EX));
	CALL("flock, held", syscall(SYS_flock, other, LOCK_EX | LOCK_NB));
	CALL("unlock", syscall(SYS_flock, fd, LOCK_UN));
	CALL("flock, shared", syscall(SYS_flock, other, LOCK_SH | LOCK_NB));
	CALL("flock, no such operation", syscall(SYS_flock, fd, 99));
	CALL("flock, bad descriptor", syscall(SYS_flock, 99, LOCK_EX));
	CALL("flock, upper halves", syscall(SYS_flock, (long)fd | INT64_C(1) << 40, (long)LOCK_SH | INT64_C(1) << 33));
	CALL("F_SETLKW", syscall(SYS_fcntl, fd, F_SETLKW, &lock));
	CALL("F_OFD_GETLK", syscall(SYS_fcntl, other, F_OFD_GETLK, &test));
	printf("type %d start %ld len %ld\n", test.l_type, (long)test.l_start, (long)test.l_len);
	CALL("command 8 and 35", syscall(SYS_fcntl, fd, 35, 0L));
	CALL("close", syscall(SYS_close, other));
	CALL("close again", syscall(SYS_close, other));
	CALL("getpid", syscall(SYS_getpid) == getpid());
	CALL("no such call", syscall(9999));
	CALL("negative", syscall(-1));
	map = (void *)syscall(SYS_mmap, NULL, 8192L, (long)PROT_READ, (long)MAP_PRIVATE, (long)fd, 4096L);
	CALL("all six", map != MAP_FAILED && syscall(SYS_munmap, map, 8192L) == 0);
	CALL("five", syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &none, &left));
	CALL("pselect6", syscall(SYS_pselect6, 0L, NULL, NULL, NULL, &none, NULL));
}

static void lock_all(const char *who)
{
	int fd = must_open(path, O_RDWR | O_CREAT);

	if (kind == FLOCK)
		lock_by_flock(who, fd);
	else if (kind == RECORD)
		lock_records(who, fd);
	else
		lock_by_syscall(fd);
	close(fd);
}

/* Without printing; how many calls failed. */
static long lock_in_thread(int fd)
{
	if (kind == FLOCK)
		return (flock(fd, LOCK_EX) < 0 || flock(fd, LOCK_UN) < 0) +
		       (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno != EWOULDBLOCK);
	return (record(fd, F_OFD_SETLKW, F_WRLCK, 0) < 0 || record(fd, F_OFD_SETLK, F_UNLCK, 0) < 0) +
	       (record(fd, F_OFD_SETLK, F_RDLCK, 5) < 0 && errno != EAGAIN);
}

/* Runs before the constructor of any library. */
static void early(int argc, char **argv, char **envp)
{
	if (argc == 3 && strcmp(take_kind(argv[1]), "preinit") == 0) {
		path = argv[2];
		lock_all("preinit");
	}
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(int, char **, char **) = early;

/* A constructor of musl's gets no arguments. */
__attribute__((constructor)) static void at_start(void)
{
	static char words[1024];
	int line = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t n = line < 0 ? -1 : read(line, words, sizeof(words) - 1);
	const char *first = words + strlen(words) + 1, *second = first + strlen(first) + 1;

	close(line);
	if (n > 0 && strcmp(take_kind(first), "constructor") == 0 && second < words + n) {
		path = second;
		lock_all("constructor");
	}
}

static void handler(int sig) { lock_all("handler"); }

static void in_handler(void)
{
	/* The smallest stack that a program may reasonably give its handlers. */
	static char memory[16384];
	stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};
	struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &act, NULL);
	raise(SIGUSR1);
}

static void in_child(pid_t pid, const char *who)
{
	int status;

	if (pid == 0) {
		lock_all(who);
		fflush(stdout);
		_exit(0);
	}
	CALL("waited", waitpid(pid, &status, 0) == pid ? status : -1);
}

static void *many_locks(void *arg)
{
	long *failures = arg;

	for (int i = 0; i < ROUNDS; i++) {
		/* Several descriptions: the kernel makes them wait for each other. */
		int fd = must_open(path, O_RDWR | O_CREAT);

		*failures += lock_in_thread(fd);
		close(fd);
	}
	return NULL;
}

static void in_threads(bool forking)
{
	pthread_t threads[THREADS];
	char child_path[512];
	long failures[THREADS] = {0}, sum = 0;

	snprintf(child_path, sizeof(child_path), "%s.child", path);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, many_locks, &failures[i]);
	for (int i = 0; forking && i < 5; i++) {
		int status = -1;
		pid_t pid = fork();

		/* A file of its own: it has copies of descriptors that were locked when it was made. */
		if (pid == 0) {
			long failed = 0;

			path = child_path;
			many_locks(&failed);
			_exit(failed != 0);
		}
		waitpid(pid, &status, 0);
		sum += status != 0;
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		sum += failures[i];
	}
	printf("failures: %ld\n", sum);
}

int main(int argc, char **argv)
{
	const char *where;

	if (argc != 3)
		return 99;
	where = take_kind(argv[1]);
	path = argv[2];
	if (strcmp(where, "main") == 0)
		lock_all("main");
	if (strcmp(where, "handler") == 0)
		in_handler();
	if (strcmp(where, "fork") == 0)
		in_child(kind == SYSCALL ? (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L) : fork(), "child");
	if (strcmp(where, "vfork") == 0)
		in_child(vfork(), "vfork child");
	if (strncmp(where, "threads", 7) == 0)
		in_threads(strcmp(where, "threads-fork") == 0);
	print_descriptors();
	return 0;
}
