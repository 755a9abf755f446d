/* Answers that are JSON: see status.h. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "keeper/callers/status.h"

/* Writes large pieces: json_dumpfd() would make a system call for each comma. Any thread. */
int status_to_memfd(const json_t *doc)
{
	int fd = memfd_create("dflock-status", MFD_CLOEXEC), ret;
	FILE *f = fd < 0 ? NULL : fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 3), "w");
	bool written = f && json_dumpf(doc, f, JSON_INDENT(1)) == 0;

	if (f && fclose(f) != 0)
		written = false;
	if (written && lseek(fd, 0, SEEK_SET) == 0)
		return fd;
	ret = errno;
	if (fd >= 0)
		close(fd);
	errno = ret;
	return -1;
}
