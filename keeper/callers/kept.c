/* See kept.h. The file: KEPT_MAGIC, the path with its NUL, the text up to the end. The keeper writes a new file beside
 * it and renames that, so a keeper that is killed meanwhile leaves the earlier copy. */
#include "keeper/callers/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define KEPT_MAGIC "dflock configuration in force, 1\n"
#define KEPT_NEW   KEPT_NAME ".new"
#define KEPT_MAX   ((2u << 20) + PATH_MAX)

int kept_write(int dir_fd, const struct config *config)
{
	struct iovec parts[] = {{(void *)KEPT_MAGIC, sizeof(KEPT_MAGIC) - 1},
				{config->path, strlen(config->path) + 1},
				{config->text, config->text_len}};
	size_t bytes = parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
	int ret = 0, fd;
	ssize_t n;

	unlinkat(dir_fd, KEPT_NEW, 0);
	fd = openat(dir_fd, KEPT_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		ret = -errno;
	} else {
		n = writev(fd, parts, 3);
		if (n < 0)
			ret = -errno;
		else if ((size_t)n != bytes)
			ret = -ENOSPC;
		close(fd);
	}
	if (ret == 0 && renameat(dir_fd, KEPT_NEW, dir_fd, KEPT_NAME) != 0)
		ret = -errno;
	if (ret < 0) { /* a copy that is not in force any more would be worse than none */
		unlinkat(dir_fd, KEPT_NEW, 0);
		kept_remove(dir_fd);
	}
	return ret;
}

static int kept_read_bytes(int dir_fd, char **bytes, size_t *len)
{
	struct stat st;
	ssize_t n = -1;
	int fd;

	*bytes = NULL;
	*len = 0;
	fd = openat(dir_fd, KEPT_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size <= (off_t)KEPT_MAX) {
		*len = (size_t)st.st_size;
		*bytes = malloc(*len + 1);
		n = *bytes ? read(fd, *bytes, *len) : -1;
	}
	close(fd);
	if (n >= 0 && (size_t)n == *len) {
		(*bytes)[*len] = '\0';
		return 0;
	}
	free(*bytes);
	return -EINVAL;
}

int kept_read(int dir_fd, const char *path, struct config_source *source)
{
	const size_t magic = sizeof(KEPT_MAGIC) - 1, path_bytes = strlen(path) + 1;
	char *bytes;
	size_t len;
	int ret = kept_read_bytes(dir_fd, &bytes, &len);

	*source = (struct config_source){.path = NULL};
	if (ret < 0)
		return ret;
	if (len <= magic || memcmp(bytes, KEPT_MAGIC, magic) != 0 || !memchr(bytes + magic, '\0', len - magic))
		ret = -EINVAL;
	else if (strcmp(bytes + magic, path) != 0)
		ret = -ENOENT;
	if (ret == 0) {
		source->path = strdup(path);
		source->len = len - magic - path_bytes;
		source->text = malloc(source->len + 1);
		if (source->path && source->text) {
			memcpy(source->text, bytes + magic + path_bytes, source->len);
			source->text[source->len] = '\0';
		} else {
			config_source_free(source);
			ret = -ENOMEM;
		}
	}
	free(bytes);
	return ret;
}

void kept_remove(int dir_fd)
{
	unlinkat(dir_fd, KEPT_NAME, 0);
}
