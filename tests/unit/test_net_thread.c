/* A thread whose descriptors are looked at through a pidfd of its process, as before Linux 6.9. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* dflock-net is no part of the library that unit tests are linked with. */
#include "net/thread.c"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

#define FD 100 /* both threads have it at first */

static struct recent {
	volatile pid_t second;
	volatile bool go, gone;
} * seen;

static void *second_thread(void *arg)
{
	seen->second = (pid_t)syscall(SYS_gettid);
	pause();
	return arg;
}

static void stays(void) {}

static void leaves(void)
{
	if (unshare(CLONE_FILES) != 0 || close(FD) != 0)
		_exit(1);
}

static void ends(void) { pthread_exit(NULL); }

/* A process with two threads. When it is told to go, the first one does `work`. */
static pid_t start(void (*work)(void))
{
	pthread_t thread;
	pid_t pid;

	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(seen, MAP_FAILED);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (dup2(open("/dev/null", O_RDWR), FD) < 0 || pthread_create(&thread, NULL, second_thread, NULL) != 0)
			_exit(1);
		wait_until(seen->go);
		work();
		seen->gone = true;
		pause();
	}
	wait_until(seen->second);
	return pid;
}

static bool has_ended(pid_t pid)
{
	struct procfs_stat stat;
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "/proc/%d/task/%d/stat", (int)pid, (int)pid);
	return procfs_stat_read(AT_FDCWD, name, &stat) && stat.state == 'Z';
}

/* What a copy for the second thread gives if the first one does its work after the pidfd was opened. */
static int copy_after(void (*work)(void), int fd)
{
	pid_t pid = start(work);
	struct thread t = {.tid = seen->second, .memory = -1};
	long pidfd = thread_open_process(&t);
	int ret;

	ck_assert_int_ge(pidfd, 0);
	t.pidfd = (int)pidfd;
	seen->go = true;
	wait_until(seen->gone || has_ended(pid));
	ret = thread_copy(&t, fd);
	thread_close(&t);
	if (ret >= 0)
		close(ret);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	munmap(seen, sizeof(*seen));
	return ret;
}

TEST(shared_descriptors)
{
	ck_assert_int_ge(copy_after(stays, FD), 0);
	ck_assert_int_eq(copy_after(stays, FD + 1), -EBADF);
}

TEST(the_first_thread_leaves_them) { ck_assert_int_eq(copy_after(leaves, FD), -EXDEV); }

TEST(the_first_thread_has_ended) { ck_assert_int_eq(copy_after(ends, FD), -EXDEV); }

/* -ESRCH would mean that the thread has ended: its call would get no answer. */
TEST(without_a_free_descriptor)
{
	struct thread t = {.tid = getpid(), .memory = -1};
	struct rlimit limit, none;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){0, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_int_eq(thread_open_process(&t), -EIO);
	setrlimit(RLIMIT_NOFILE, &limit); /* sanitizers open files at the end */
}
