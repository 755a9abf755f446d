/* limits WHAT FILE [DIRECTORY]: takes a lock where descriptors, or the file system, have been taken away. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static void use_up(void)
{
	struct rlimit limit = {40, 40};

	setrlimit(RLIMIT_NOFILE, &limit);
	while (dup(1) >= 0)
		;
}

static void *lock(void *arg)
{
	struct flock lock = {.l_type = F_WRLCK};

	CALL("small stack", fcntl(*(int *)arg, F_SETLK, &lock));
	return NULL;
}

static void lock_on_a_small_stack(int fd)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 16 << 10); /* glibc's least on x86-64 */
	pthread_create(&thread, &attributes, lock, &fd);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	int fd;

	if (argc < 3)
		return 99;
	fd = must_open(argv[2], O_RDWR | O_CREAT);
	if (strcmp(argv[1], "used-up") == 0) {
		use_up();
		CALL("used up", flock(fd, LOCK_EX));
		close(20);
		close(21);
		CALL("two left", flock(fd, LOCK_EX | LOCK_NB));
		CALL("unlock", flock(fd, LOCK_UN));
		return 0;
	}
	if (strcmp(argv[1], "used-up-later") == 0) {
		CALL("with the page", flock(must_open("/etc/passwd", O_RDONLY), LOCK_SH | LOCK_NB));
		use_up();
		CALL("used up", flock(fd, LOCK_EX));
		return 0;
	}
	if (strcmp(argv[1], "closed") == 0) {
		fd = dup2(fd, 9);
		close_range(2, 8, 0);
		close_range(10, ~0u, 0);
		close(0);
		CALL("all others closed", flock(fd, LOCK_EX));
		CALL("unlock", flock(fd, LOCK_UN));
	}
	if (strcmp(argv[1], "stderr-is-data") == 0) {
		/* Any line on descriptor 2 would now be in the data. */
		dup2(must_open(argv[3], O_RDWR | O_CREAT), 2);
		CALL("stderr is data", flock(fd, LOCK_EX));
	}
	if (strcmp(argv[1], "stderr-is-broken") == 0) {
		int pair[2];

		/* The same pipe that was there from the start; its reader has gone by now: SIGPIPE would end us. */
		if (read(0, pair, 1) != 0)
			return 99;
		CALL("stderr is broken", flock(fd, LOCK_EX));
	}
	if (strcmp(argv[1], "small-stack") == 0)
		lock_on_a_small_stack(fd);
	if (strcmp(argv[1], "subreaper") == 0) {
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		CALL("subreaper", flock(fd, LOCK_EX));
	}
	if (strcmp(argv[1], "seccomp") == 0) {
		struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
		struct sock_fprog filter = {1, &allow};

		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
		CALL("seccomp", flock(fd, LOCK_EX));
	}
	if (strcmp(argv[1], "chroot") == 0) {
		if (chroot(argv[3]) < 0 || chdir("/") < 0)
			return 99;
		CALL("chroot, earlier descriptor", flock(fd, LOCK_EX));
		close(fd);
		fd = must_open("/inside", O_RDWR | O_CREAT);
		CALL("chroot", flock(fd, LOCK_EX));
	}
	print_descriptors();
	return 0;
}
