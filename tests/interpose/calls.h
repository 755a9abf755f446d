/* What the small programs share: a call is printed with its result and errno, which was 77 before. */
#ifndef DFLOCK_TESTS_CALLS_H
#define DFLOCK_TESTS_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define CALL(what, call)                                                                                               \
	do {                                                                                                           \
		errno = 77;                                                                                            \
		long rc_ = (call);                                                                                     \
		int err_ = errno;                                                                                      \
		printf("%s: %ld %s\n", what, rc_, err_ == 77 ? "-" : strerrorname_np(err_));                           \
		fflush(stdout);                                                                                        \
	} while (0)

/* Which descriptors are open below 256; by a call that the shim does not touch. */
static inline void print_descriptors(void)
{
	printf("open:");
	for (int fd = 0; fd < 256; fd++)
		if (lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF)
			printf(" %d", fd);
	printf("\n");
	fflush(stdout);
}

static inline int must_open(const char *path, int flags)
{
	int fd = open(path, flags, 0600);

	if (fd < 0) {
		perror(path);
		exit(99);
	}
	return fd;
}

#endif
