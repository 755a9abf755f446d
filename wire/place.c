#include "wire/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wire/page.h"
#include "wire/rundir.h"
#include "wire/sys.h"
#include "wire/text.h"

#define SYSTEM_CONFIG "/etc/dflock.conf"
#define USER_CONFIG   "/.config/dflock.conf"

/* Stands for a DFLOCK_CONFIG that cannot be used. Opening it always fails, so lock calls are refused; it never means
 * "no configuration". */
#define UNUSABLE_CONFIG "/dev/null/DFLOCK_CONFIG-has-no-usable-absolute-path"

/* An empty value counts as unset: in a shell, `DFLOCK_CONFIG= job` is the way to unset it for one command. */
static const char *place_setting(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

/* False: there is no such file, or it is in another user's home directory (HOME after su), and so not for us. */
static bool place_is_there(const char *path)
{
	struct stat st;

	return sys_stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR && errno != EACCES);
}

/* DONT_SYNC: a user may have mounted a file system there whose server hangs; it also says what it likes of owner and size. */
static int place_check_page(int fd, const char *dir, uid_t euid, struct statx *st, const char **why)
{
	if (sys(statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, st) < 0)
		*why = "it cannot be examined";
	else if (!S_ISREG(st->stx_mode))
		*why = "it is no regular file";
	else if (st->stx_attributes & STATX_ATTR_MOUNT_ROOT)
		*why = "something is mounted there";
	else if (!rundir_owner_counts(dir, st->stx_uid, euid))
		*why = "it belongs neither to you nor to root";
	else if (st->stx_mode & (S_IWGRP | S_IWOTH))
		*why = "others can write it";
	else
		return 0;
	return -EPERM;
}

int place_open_page(const char *dir, uid_t euid, struct statx *st, char *why, size_t why_size)
{
	int dirfd = rundir_open(dir, euid, false, why, why_size), ret;
	const char *what = "it is a symbolic link";
	long fd;

	if (dirfd < 0)
		return dirfd;
	fd = sys(openat, dirfd, PAGE_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	sys(close, dirfd);
	if (fd < 0 && fd != -ELOOP)
		return -ENOENT;
	ret = fd < 0 ? (int)fd : place_check_page((int)fd, dir, euid, st, &what);
	if (ret == 0)
		return (int)fd;
	text_print(
		why, why_size,
		"the page in %s is not to be trusted: %s; stop the keeper, remove the file, and start the keeper again",
		dir, what);
	if (fd >= 0)
		sys(close, fd);
	return ret;
}

/* Do programs of this user go by the rules of the configuration `path`, as the page says? */
static bool place_is_in_force(const struct place *place, const char *path)
{
	uid_t euid = sys_geteuid();
	char dir[PLACE_DIR_BYTES], why[256];
	/* The beginning of the page, up to the path and with it. */
	char head[offsetof(struct page, config_path) + PATH_MAX];
	uint64_t magic;
	uint32_t version, state;
	struct statx st;
	long n;
	int fd;

	if (rundir_find(place, euid, dir, why, sizeof(why)) < 0)
		return false;
	fd = place_open_page(dir, euid, &st, why, sizeof(why));
	if (fd < 0)
		return false;
	n = sys(read, fd, head, sizeof(head));
	sys(close, fd);
	if (n != (long)sizeof(head))
		return false;
	head[sizeof(head) - 1] = '\0';
	memcpy(&magic, head + offsetof(struct page, magic), sizeof(magic));
	memcpy(&version, head + offsetof(struct page, version), sizeof(version));
	memcpy(&state, head + offsetof(struct page, state), sizeof(state));
	return magic == PAGE_MAGIC && version == PAGE_VERSION && state == PAGE_RULES &&
	       strcmp(head + offsetof(struct page, config_path), path) == 0;
}

int place_absolute(const char *path, char out[PATH_MAX])
{
	char folder[PATH_MAX];
	long n;

	folder[0] = '\0';
	if (path[0] != '/') {
		/* The raw call: where the kernel has no path ("(unreachable)..."), libc's getcwd() looks for one itself
		 * and allocates memory. */
		n = sys_raw(SYS_getcwd, folder, sizeof(folder));
		if (n < 2 || folder[0] != '/')
			return -ENAMETOOLONG;
	}
	return text_print(out, PATH_MAX, "%s%s%s", strcmp(folder, "/") ? folder : "", path[0] == '/' ? "" : "/", path)
		       ? 0
		       : -ENAMETOOLONG;
}

static void place_find_config(struct place *place)
{
	const char *env = place_setting("DFLOCK_CONFIG"), *home = place_setting("HOME");

	if (env) {
		if (place_absolute(env, place->config) < 0)
			strcpy(place->config, UNUSABLE_CONFIG);
		return;
	}
	if (home && home[0] == '/' && text_print(place->config, sizeof(place->config), "%s" USER_CONFIG, home) &&
	    (place_is_there(place->config) || place_is_in_force(place, place->config)))
		return;
	place->config[0] = '\0';
	if (place_is_there(SYSTEM_CONFIG) || place_is_in_force(place, SYSTEM_CONFIG))
		strcpy(place->config, SYSTEM_CONFIG);
}

void place_init(struct place *place)
{
	const char *dir = place_setting("DFLOCK_RUNTIME_DIR");
	bool whole = text_print(place->runtime_env, sizeof(place->runtime_env), "%s", dir ? dir : "");

	place->runtime_env_bad = dir && (dir[0] != '/' || !whole);
	place_find_config(place);
}

int place_config_id(const char *path, struct wire_config_id *id)
{
	struct stat st;

	if (sys_stat(path, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*id = (struct wire_config_id){
		.dev = st.st_dev,
		.ino = st.st_ino,
		.size = (uint64_t)st.st_size,
		.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
		.ctime_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
	};
	return 0;
}

void place_find(const char *name, const char *folder, const char *installed, char path[PATH_MAX])
{
	char own[PATH_MAX / 2];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	char *slash;

	own[n > 0 ? n : 0] = '\0';
	slash = strrchr(own, '/');
	if (slash) {
		*slash = '\0';
		text_print(path, PATH_MAX, "%s/%s", own, name);
		if (!access(path, F_OK))
			return;
		slash = strrchr(own, '/');
		if (slash) {
			*slash = '\0';
			text_print(path, PATH_MAX, "%s/%s/%s", own, folder, name);
			if (!access(path, F_OK))
				return;
		}
	}
	text_print(path, PATH_MAX, "%s", installed);
}
