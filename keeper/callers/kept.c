/* See configfile.h. The file: KEPT_MAGIC, the path with its NUL, the text up to the end. The keeper writes a new file beside
 * it and renames that, so a keeper that is killed meanwhile leaves the earlier copy. */
#include "keeper/callers/configfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "config/load.h"

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

int kept_read(int dir_fd, const char *path, struct config_source *source)
{
	const size_t magic = sizeof(KEPT_MAGIC) - 1, path_bytes = strlen(path) + 1;
	char *bytes = NULL;
	struct stat st;
	size_t len;
	int ret = load_file(dir_fd, KEPT_NAME, KEPT_MAX, &bytes, &len, &st);

	*source = (struct config_source){.path = NULL};
	if (ret < 0)
		return ret == -EFBIG ? -EINVAL : ret;
	if (st.st_uid != geteuid() || len <= magic || memcmp(bytes, KEPT_MAGIC, magic) != 0 ||
	    !memchr(bytes + magic, '\0', len - magic))
		ret = -EINVAL;
	else if (strcmp(bytes + magic, path) != 0)
		ret = -ENOENT;
	if (ret == 0) {
		source->len = len - magic - path_bytes;
		source->path = strdup(path);
		source->text = malloc(source->len + 1);
		if (source->path && source->text) {
			memcpy(source->text, bytes + magic + path_bytes, source->len + 1);
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
