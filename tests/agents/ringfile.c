/*
 * ringfile FILE: locks the file with flock(), registers it with an io_uring, and closes its descriptor: only the ring keeps
 * the description, and the lock. Says "held", and then "runs" for each line on standard input.
 */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct io_uring_params params = {0};
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1, ring;
	char line[16];

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
		perror("flock");
		return EXIT_FAILURE;
	}
	ring = (int)syscall(SYS_io_uring_setup, 1, &params);
	if (ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &fd, 1) != 0) {
		puts("no io_uring"); /* an older kernel, or kernel.io_uring_disabled */
		return EXIT_SUCCESS;
	}
	close(fd);
	puts("held");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		puts("runs");
		fflush(stdout);
	}
	return EXIT_SUCCESS;
}
