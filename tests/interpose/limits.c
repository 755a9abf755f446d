/* limits WHAT FILE [DATA]: takes locks where descriptors, or something else, have been taken away. WHAT is a row of the table below. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static int fd; /* of FILE */
static const char *data;

static void use_up(void)
{
	struct rlimit limit = {40, 40};

	setrlimit(RLIMIT_NOFILE, &limit);
	while (dup(1) >= 0)
		;
}

static void used_up(void)
{
	use_up();
	CALL("used up", flock(fd, LOCK_EX));
	close(20);
	close(21);
	CALL("two left", flock(fd, LOCK_EX | LOCK_NB));
	CALL("unlock", flock(fd, LOCK_UN));
}

static void used_up_later(void)
{
	CALL("with the page", flock(must_open("/etc/passwd", O_RDONLY), LOCK_SH | LOCK_NB));
	use_up();
	CALL("used up", flock(fd, LOCK_EX));
}

static void closed(void)
{
	fd = dup2(fd, 9);
	close_range(2, 8, 0);
	close_range(10, ~0u, 0);
	close(0);
	CALL("all others closed", flock(fd, LOCK_EX));
	CALL("unlock", flock(fd, LOCK_UN));
}

/* Any line on descriptor 2 would now be in the data. */
static void stderr_is_data(void)
{
	dup2(must_open(data, O_RDWR | O_CREAT), 2);
	CALL("stderr is data", flock(fd, LOCK_EX));
}

/* The same pipe that was there from the start; its reader has gone by now: SIGPIPE would end us. */
static void stderr_is_broken(void)
{
	int pair[2];

	if (read(0, pair, 1) == 0)
		CALL("stderr is broken", flock(fd, LOCK_EX));
}

static void *lock(void *arg)
{
	struct flock all = {.l_type = F_WRLCK};

	CALL("small stack", fcntl(fd, F_SETLK, &all));
	return arg;
}

static void small_stack(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 16 << 10); /* glibc's least on x86-64 */
	pthread_create(&thread, &attributes, lock, NULL);
	pthread_join(thread, NULL);
}

static void subreaper(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	CALL("subreaper", flock(fd, LOCK_EX));
}

static void seccomp(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = {1, &allow};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
	CALL("seccomp", flock(fd, LOCK_EX));
}

/* The first child of this process is the first process of a pid namespace, which ends with it. */
static void children_elsewhere(void)
{
	pid_t child;

	if (unshare(CLONE_NEWPID) < 0)
		perror("unshare");
	CALL("children elsewhere", flock(fd, LOCK_EX));
	child = fork();
	if (child == 0)
		_exit(0);
	CALL("its first child", child > 0 && waitpid(child, NULL, 0) == child ? 0 : -1);
}

static const struct {
	const char *name;
	void (*run)(void), (*then)(void);
} kinds[] = {
	{"used-up", used_up, NULL},
	{"used-up-later", used_up_later, NULL},
	{"closed", closed, print_descriptors},
	{"stderr-is-data", stderr_is_data, NULL},
	{"stderr-is-broken", stderr_is_broken, NULL},
	{"small-stack", small_stack, print_descriptors},
	{"subreaper", subreaper, NULL},
	{"seccomp", seccomp, NULL},
	{"children-elsewhere", children_elsewhere, NULL},
};

int main(int argc, char **argv)
{
	if (argc < 3)
		return 99;
	data = argv[3];
	fd = must_open(argv[2], O_RDWR | O_CREAT);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(argv[1], kinds[i].name) == 0) {
			kinds[i].run();
			if (kinds[i].then)
				kinds[i].then();
			return 0;
		}
	}
	return 99;
}
