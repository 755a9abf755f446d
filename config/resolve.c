#include "config/internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as many as the kernel follows */

/* Errors that mean "does not exist, or not for us": such a path is resolved as far as possible. */
static bool resolve_is_missing(int err)
{
	return err == ENOENT || err == ENOTDIR || err == EACCES;
}

static int resolve_join(char out[PATH_MAX], const char *dir, const char *rest, size_t rest_len)
{
	int n = snprintf(out, PATH_MAX, "%s/%.*s", strcmp(dir, "/") == 0 ? "" : dir, (int)rest_len, rest);

	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int resolve_normalise(const char *path, char out[PATH_MAX])
{
	size_t len = 0;

	if (path[0] != '/')
		return -EINVAL;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	while (*path) {
		size_t n;

		path += strspn(path, "/");
		n = strcspn(path, "/");
		if ((n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
			return -EINVAL;
		if (n > 0)
			out[len++] = '/';
		memcpy(out + len, path, n);
		len += n;
		path += n;
	}
	if (len == 0)
		out[len++] = '/';
	out[len] = '\0';
	return 0;
}

/* Splits `path` into its longest existing directory, resolved, and the rest, which is a part of `path`. */
static int resolve_split(const char *path, char dir[PATH_MAX], const char **rest)
{
	char prefix[PATH_MAX];
	size_t len = strlen(path);

	do {
		while (path[len - 1] != '/')
			len--;
		*rest = path + len--;
		snprintf(prefix, sizeof(prefix), "%.*s", len ? (int)len : 1, path);
		if (realpath(prefix, dir))
			return 0;
	} while (resolve_is_missing(errno) && len);
	return -errno;
}

/* The rest does not exist, but its first name may be a link whose target does not exist. If so, `path` becomes the path
 * that it leads to. 1; 0: it is no link; or -errno. */
static int resolve_link(const char *dir, const char *rest, char path[PATH_MAX])
{
	char link[PATH_MAX], target[PATH_MAX];
	size_t name_len = strcspn(rest, "/"), tail_len = strlen(rest + name_len);
	ssize_t n;
	int ret = resolve_join(link, dir, rest, name_len);

	if (ret < 0)
		return ret;
	n = readlink(link, target, sizeof(target));
	if (n < 0)
		return resolve_is_missing(errno) || errno == EINVAL ? 0 : -errno;
	if ((size_t)n + tail_len >= sizeof(target))
		return -ENAMETOOLONG;
	/* Copied now, since `rest` is a part of `path`. */
	memcpy(target + n, rest + name_len, tail_len + 1);
	if (target[0] != '/')
		ret = resolve_join(path, dir, target, (size_t)n + tail_len);
	else
		memcpy(path, target, (size_t)n + tail_len + 1);
	return ret < 0 ? ret : 1;
}

int resolve_path(const char *path, char out[PATH_MAX])
{
	char work[PATH_MAX], dir[PATH_MAX], joined[PATH_MAX];
	int ret = resolve_normalise(path, work);

	for (int links = 0; ret >= 0 && links < LINKS_MAX; links++) {
		const char *rest;

		if (realpath(work, out))
			return 0;
		if (!resolve_is_missing(errno))
			return -errno;
		ret = resolve_split(work, dir, &rest);
		if (ret == 0)
			ret = resolve_link(dir, rest, work);
		if (ret == 0) {
			/* A link's target may have superfluous slashes and, where nothing exists, the names . and .. */
			ret = resolve_join(joined, dir, rest, strlen(rest));
			return ret < 0 ? ret : resolve_normalise(joined, out);
		}
	}
	return ret < 0 ? ret : -ELOOP;
}
