#include "wire/place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "wire/page.h"
#include "wire/text.h"

#define SYSTEM_CONFIG "/etc/dflock.conf"
#define USER_CONFIG   "/.config/dflock.conf"
#define SYSTEM_DIR    "/run/dflock"
#define USER_DIR      "/dev/shm/dflock-"

/* A path below no directory: opening it fails, so that a DFLOCK_CONFIG that cannot be used refuses lock calls
 * and never means "no configuration". */
#define UNUSABLE_CONFIG "/dev/null/DFLOCK_CONFIG-has-no-usable-absolute-path"

/* An empty value counts as none: `DFLOCK_CONFIG= job` is how a shell switches it off. */
static const char *setting(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

/* Not there, or in a home directory that is somebody else's (HOME after su): then it is none of ours. */
static bool is_there(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR && errno != EACCES);
}

/* Are the rules that programs of this user go by those of the configuration `path`? */
static bool is_in_force(const struct place *place, const char *path)
{
	uid_t euid = geteuid();
	char dir[PLACE_DIR_BYTES], why[256];
	/* The page as far as its path. */
	char head[offsetof(struct page, config_path) + PATH_MAX];
	uint64_t magic;
	uint32_t version, state;
	struct stat st;
	long n = -1;
	int dirfd, fd;

	if (place_runtime_dir(place, euid, dir) < 0)
		return false;
	dirfd = place_open_runtime_dir(dir, euid, false, why, sizeof(why));
	if (dirfd < 0)
		return false;
	fd = (int)syscall(SYS_openat, dirfd, PAGE_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	syscall(SYS_close, dirfd);
	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && (st.st_uid == 0 || st.st_uid == euid) && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		n = syscall(SYS_read, fd, head, sizeof(head));
	syscall(SYS_close, fd);
	if (n != (long)sizeof(head))
		return false;
	head[sizeof(head) - 1] = '\0';
	memcpy(&magic, head + offsetof(struct page, magic), sizeof(magic));
	memcpy(&version, head + offsetof(struct page, version), sizeof(version));
	memcpy(&state, head + offsetof(struct page, state), sizeof(state));
	return magic == PAGE_MAGIC && version == PAGE_VERSION && state == PAGE_RULES &&
	       strcmp(head + offsetof(struct page, config_path), path) == 0;
}

static void make_absolute(struct text *text, const char *path)
{
	if (path[0] != '/') {
		/* The raw call: libc's getcwd() allocates where the kernel's fails, and turns away what is
		 * "(unreachable)" by doing so. */
		long n = syscall(SYS_getcwd, text->buf, text->size);

		if (n < 2 || text->buf[0] != '/') {
			text->cut = true;
			return;
		}
		text->len = (size_t)n - 1;
		if (text->len > 1)
			text_add(text, "/");
	}
	text_add(text, path);
}

static void find_config(struct place *place)
{
	const char *env = setting("DFLOCK_CONFIG"), *home = setting("HOME");
	struct text text;

	text_init(&text, place->config, sizeof(place->config));
	if (env) {
		make_absolute(&text, env);
		if (text.cut) {
			text_init(&text, place->config, sizeof(place->config));
			text_add(&text, UNUSABLE_CONFIG);
		}
		return;
	}
	if (home && home[0] == '/') {
		text_add(&text, home);
		text_add(&text, USER_CONFIG);
		if (!text.cut && (is_there(place->config) || is_in_force(place, place->config)))
			return;
	}
	text_init(&text, place->config, sizeof(place->config));
	if (is_there(SYSTEM_CONFIG) || is_in_force(place, SYSTEM_CONFIG))
		text_add(&text, SYSTEM_CONFIG);
}

void place_init(struct place *place)
{
	const char *dir = setting("DFLOCK_RUNTIME_DIR");
	struct text text;

	text_init(&text, place->runtime_env, sizeof(place->runtime_env));
	if (dir)
		text_add(&text, dir);
	place->runtime_env_bad = dir && (dir[0] != '/' || text.cut);
	find_config(place);
}

int place_absolute(const char *path, char out[PATH_MAX])
{
	struct text text;

	text_init(&text, out, PATH_MAX);
	make_absolute(&text, path);
	return text.cut ? -ENAMETOOLONG : 0;
}

int place_config_id(const char *path, struct wire_config_id *id)
{
	struct stat st;

	if (stat(path, &st) < 0)
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

int place_runtime_dir(const struct place *place, uid_t uid, char dir[PLACE_DIR_BYTES])
{
	struct stat st;
	struct text text;

	if (place->runtime_env_bad)
		return -EINVAL;
	text_init(&text, dir, PLACE_DIR_BYTES);
	if (place->runtime_env[0]) {
		text_add(&text, place->runtime_env);
	} else if (stat(SYSTEM_DIR "/" WIRE_SOCKET_NAME, &st) == 0) {
		text_add(&text, SYSTEM_DIR);
	} else {
		text_add(&text, USER_DIR);
		text_add_number(&text, uid);
	}
	return 0;
}

/* A finding about dir: what is wrong, and what to do. */
static int finding(struct text *why, const char *dir, int err, const char *what, const char *advice)
{
	text_add(why, "runtime directory ");
	text_add(why, dir);
	text_add(why, " ");
	text_add(why, what);
	if (!advice) {
		text_add(why, ": ");
		text_add_errno(why, err);
		advice = "; make it usable or set DFLOCK_RUNTIME_DIR";
	}
	text_add(why, advice);
	return -err;
}

/* Only in memory do the page and the journal end with the boot that their times belong to. */
static bool is_in_memory(const struct statfs *fs)
{
	return (uint32_t)fs->f_type == TMPFS_MAGIC || (uint32_t)fs->f_type == RAMFS_MAGIC;
}

static int check_dir(int fd, const char *dir, uid_t uid, struct text *why)
{
	char owner[32];
	struct text text;
	struct stat st;
	struct statfs fs;

	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return finding(why, dir, errno, "cannot be examined", NULL);
	if (S_ISLNK(st.st_mode))
		return finding(why, dir, ELOOP, "is a symbolic link",
			       "; name the directory itself in DFLOCK_RUNTIME_DIR, or remove the link");
	if (!S_ISDIR(st.st_mode))
		return finding(why, dir, ENOTDIR, "is not a directory", "; remove it or set DFLOCK_RUNTIME_DIR");
	if (st.st_uid != 0 && st.st_uid != uid) {
		text_init(&text, owner, sizeof(owner));
		text_add(&text, "belongs to uid ");
		text_add_number(&text, st.st_uid);
		return finding(why, dir, EPERM, owner,
			       ", not to you or root; have it removed, or set DFLOCK_RUNTIME_DIR");
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return finding(why, dir, EPERM, "can be written by others", "; take that away with chmod go-w");
	if (!is_in_memory(&fs))
		return finding(why, dir, EINVAL, "is not on a tmpfs",
			       "; set DFLOCK_RUNTIME_DIR to a directory below /dev/shm or /run");
	return 0;
}

/* Without O_DIRECTORY, so that the check can tell a link from a file. Raw calls here and below, because open()
 * and close() are cancellation points and flock() is none. */
static int open_dir(const char *dir)
{
	return (int)syscall(SYS_openat, AT_FDCWD, dir, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

int place_open_runtime_dir(const char *dir, uid_t uid, bool create, char *why, size_t why_size)
{
	char name[PLACE_DIR_BYTES];
	struct text path, text;
	int fd, rc;

	text_init(&text, why, why_size);
	text_init(&path, name, sizeof(name));
	text_add(&path, dir);
	if (name[0] != '/')
		return finding(&text, dir, EINVAL, "is not absolute", "; give it with a leading /");
	if (path.cut)
		return finding(&text, dir, ENAMETOOLONG, "has too long a name",
			       " for a socket in it; choose a shorter one");
	/* A slash at the end would make the kernel follow a link. */
	while (path.len > 1 && name[path.len - 1] == '/')
		name[--path.len] = '\0';

	fd = open_dir(name);
	if (fd < 0 && errno == ENOENT && create) {
		if (mkdir(name, 0700) < 0 && errno != EEXIST)
			return finding(&text, name, errno, "cannot be made", NULL);
		fd = open_dir(name);
	}
	if (fd < 0 && errno == ENOENT)
		return finding(&text, name, ENOENT, "is not there",
			       ": no keeper has run yet; start dflockd, or set DFLOCK_RUNTIME_DIR");
	if (fd < 0)
		return finding(&text, name, errno, "cannot be opened", NULL);
	rc = check_dir(fd, name, uid, &text);
	if (rc < 0) {
		syscall(SYS_close, fd);
		return rc;
	}
	return fd;
}
