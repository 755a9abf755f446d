/*
 * sibling FILE OUT flock|fcntl [files|vm]: locks FILE, and starts a process by clone(CLONE_PARENT), whose parent is this
 * one's parent, with a copy of the descriptors and the memory, or the same ones. That process appends to OUT again and
 * again. Says "PID" of it, and rests.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static int out;

static int tick(void *arg)
{
	for (const struct timespec pause = {.tv_nsec = 5000000}; write(out, "x", 1) == 1;)
		nanosleep(&pause, NULL);
	return arg != NULL;
}

int main(int argc, char **argv)
{
	static char stack[65536] __attribute__((aligned(16)));
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int flags = CLONE_PARENT, fd = argc > 3 ? open(argv[1], O_RDWR | O_CREAT, 0644) : -1, ret;
	pid_t pid;

	out = argc > 3 ? open(argv[2], O_WRONLY | O_APPEND | O_CREAT, 0644) : -1;
	if (argc > 4)
		flags |= strcmp(argv[4], "files") ? CLONE_VM : CLONE_FILES;
	ret = fd < 0 || out < 0          ? -1
	      : strcmp(argv[3], "flock") ? fcntl(fd, F_SETLK, &lock)
					 : flock(fd, LOCK_EX | LOCK_NB);
	pid = ret < 0 ? -1 : clone(tick, stack + sizeof(stack), flags | SIGCHLD, NULL);
	if (pid < 0) {
		perror("sibling");
		return EXIT_FAILURE;
	}
	printf("%d\n", (int)pid);
	fflush(stdout);
	for (;;)
		pause();
}
