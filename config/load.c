#include "config/load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads up to `max` bytes. */
static int load_all(int fd, char *bytes, size_t max, size_t *len)
{
	*len = 0;
	while (*len <= max) {
		ssize_t n = read(fd, bytes + *len, max + 1 - *len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		*len += (size_t)n;
	}
	return -EFBIG;
}

int load_file(int dir, const char *path, size_t max, char **bytes, size_t *len, struct stat *st)
{
	char *buf = NULL;
	int ret;
	/* O_NONBLOCK: otherwise opening a FIFO waits for a writer. */
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (dir == AT_FDCWD ? 0 : O_NOFOLLOW));

	if (fd < 0)
		return -errno;
	if (fstat(fd, st) < 0) {
		ret = -errno;
		goto out;
	}
	if (!S_ISREG(st->st_mode)) {
		ret = -EINVAL;
		goto out;
	}
	buf = malloc(max + 2);
	if (!buf) {
		ret = -ENOMEM;
		goto out;
	}
	ret = load_all(fd, buf, max, len);
	if (ret < 0)
		goto out;
	buf[*len] = '\0';
	*bytes = buf;
	buf = NULL;
out:
	free(buf);
	close(fd);
	return ret;
}
