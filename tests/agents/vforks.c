/*
 * A program that spends most of its time in vfork(): the child rests for half a second before it ends, like a child
 * that closes thousands of descriptors before its exec. Appends a byte to FILE each time.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = argc > 1 ? open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;

	while (fd >= 0 && write(fd, "x", 1) == 1) {
		pid_t pid = vfork();

		if (pid == 0) {
			nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			return EXIT_FAILURE;
	}
	return EXIT_FAILURE;
}
