/*
 * A preload behind the shim (after it in LD_PRELOAD) that stops a program just before the kernel takes its lock: while the
 * file that DFLOCK_TEST_HELD names exists, flock() makes a second file, that name with ".reached" behind it, and waits
 * until the first one is gone (at most WAIT_MS). Unlocking is not held up.
 *
 * It also stops a keeper's probe just after that has taken the kernel lock: DFLOCK_TEST_TAKEN is the same for the
 * moment after the lock. And DFLOCK_TEST_FORK stops any process before a _Fork().
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 20000

static void wait_while_there(const char *path)
{
	char reached[4096];

	if (access(path, F_OK) != 0)
		return;
	snprintf(reached, sizeof(reached), "%s.reached", path);
	close(open(reached, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	for (int ms = 0; ms < WAIT_MS && access(path, F_OK) == 0; ms++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int flock(int fd, int op)
{
	static int (*real_flock)(int, int);
	const char *before = getenv("DFLOCK_TEST_HELD"), *after = getenv("DFLOCK_TEST_TAKEN");
	int ret;

	if (!real_flock)
		*(void **)&real_flock = dlsym(RTLD_NEXT, "flock");
	if (before && !(op & LOCK_UN))
		wait_while_there(before);
	ret = real_flock(fd, op);
	if (ret == 0 && after && !(op & LOCK_UN))
		wait_while_there(after);
	return ret;
}

pid_t _Fork(void)
{
	static pid_t (*real_fork)(void);
	const char *before = getenv("DFLOCK_TEST_FORK");

	if (!real_fork)
		*(void **)&real_fork = dlsym(RTLD_NEXT, "_Fork");
	if (before)
		wait_while_there(before);
	return real_fork();
}
