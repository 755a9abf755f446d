/*
 * How a process may come to a lock call; tests/cluster/test_net_around.py builds it without a dynamic linker, with glibc and with musl.
 *
 *   shapes take FILE            flock(LOCK_EX | LOCK_NB); says "ok" or the errno; keeps it until its input ends
 *   shapes own-table FILE       the same in a thread with descriptors of its own; the same number of its process is /dev/null
 *   shapes vfork FILE           the same in a program that vfork() and exec() have started
 *   shapes leader-gone FILE     the same in a thread whose process has lost its first thread
 *   shapes vfork-only FILE      the same in a child by vfork(), whose parent stands still until it ends
 *   shapes exec FILE            the same after another thread than the first one has executed it
 *   shapes passed FILE          takes it, and executes a program that cannot know
 *   shapes storm FILE N COUNT   N processes at once; each waits for it, adds 1 to the number in the file COUNT, and ends
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

/* The descriptor that own-table has twice. */
#define TWICE 20

static char **words;

static void die(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0)
		die(path);
	return fd;
}

static void wait_for_end(void)
{
	char byte;

	while (read(0, &byte, 1) > 0)
		;
}

static void try_lock(int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		printf("ok\n");
	else
		printf("%d\n", errno);
	fflush(stdout);
}

static void take(void)
{
	try_lock(open_file(words[2]));
	wait_for_end();
}

static void start_taking(void)
{
	execl("/proc/self/exe", words[0], "take", words[2], (char *)NULL);
	_exit(1);
}

static void *take_in_own_table(void *arg)
{
	if (unshare(CLONE_FILES) != 0)
		die("unshare");
	if (dup2(open_file(words[2]), TWICE) < 0)
		die("dup2");
	try_lock(TWICE);
	wait_for_end();
	return arg;
}

static void *exec_in_thread(void *arg)
{
	start_taking();
	return arg;
}

static void in_thread(void *(*work)(void *))
{
	pthread_t thread;

	if (dup2(open("/dev/null", O_RDWR), TWICE) < 0)
		die("/dev/null");
	if (pthread_create(&thread, NULL, work, NULL) != 0)
		die("pthread_create");
	pthread_join(thread, NULL);
}

static void *take_in_last_thread(void *first)
{
	pthread_join(*(pthread_t *)first, NULL);
	take();
	exit(0);
}

static void leave(void)
{
	static pthread_t first, last;

	first = pthread_self();
	if (pthread_create(&last, NULL, take_in_last_thread, &first) != 0)
		die("pthread_create");
	pthread_exit(NULL);
}

/* What a child by vfork() may not do by the standard: it uses its parent's memory, which nobody else uses meanwhile. */
static void by_vfork(void (*work)(void))
{
	pid_t child = vfork();

	if (child == 0) {
		work();
		_exit(0);
	}
	if (child < 0 || waitpid(child, NULL, 0) != child)
		die("vfork");
}

/* The file's descriptor stays open in the program that is executed. */
static void pass(void)
{
	int fd = open_file(words[2]);

	if (fcntl(fd, F_SETFD, 0) != 0)
		die("fcntl");
	try_lock(fd);
	execlp("cat", "cat", (char *)NULL);
	die("cat");
}

/* Not at once, so that two processes that both have the lock lose one. */
static void add_one(const char *path)
{
	int fd = open_file(path);
	long n = 0;

	if (pread(fd, &n, sizeof(n), 0) < 0)
		die(path);
	for (int i = 0; i < 10; i++)
		sched_yield();
	n++;
	if (pwrite(fd, &n, sizeof(n), 0) != sizeof(n))
		die(path);
}

static void storm(long processes)
{
	long ended = 0;
	int status;

	for (long i = 0; i < processes; i++) {
		pid_t child = fork();

		if (child < 0)
			die("fork");
		if (child)
			continue;
		if (flock(open_file(words[2]), LOCK_EX) != 0)
			_exit(1);
		add_one(words[4]);
		_exit(0);
	}
	while (wait(&status) > 0)
		ended += status == 0;
	printf("%ld\n", ended);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	words = argv;
	if (strcmp(what, "take") == 0)
		take();
	else if (strcmp(what, "own-table") == 0)
		in_thread(take_in_own_table);
	else if (strcmp(what, "vfork") == 0)
		by_vfork(start_taking);
	else if (strcmp(what, "vfork-only") == 0)
		by_vfork(take);
	else if (strcmp(what, "leader-gone") == 0)
		leave();
	else if (strcmp(what, "exec") == 0)
		in_thread(exec_in_thread);
	else if (strcmp(what, "passed") == 0)
		pass();
	else if (strcmp(what, "storm") == 0 && argc == 5)
		storm(atol(argv[3]));
	else
		return 2;
	return 0;
}
