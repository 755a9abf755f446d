/* See rundir.h: opening a runtime directory and checking it. */
#include "wire/rundir_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "wire/sys.h"

/* --- what rundir.c needs, too --- */

int rundir_open_at(int dir, const char *name, int flags)
{
	return (int)sys_libc(sys_raw(SYS_openat, dir, name, flags | O_CLOEXEC));
}

void rundir_close(int fd)
{
	sys_raw(SYS_close, fd);
}

int rundir_finding(struct text *why, const char *dir, int err, const char *what, const char *advice)
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

static const char *rundir_read_number(const char *s, uint64_t *n)
{
	while (*s == ' ')
		s++;
	for (*n = 0; *s >= '0' && *s <= '9'; s++)
		*n = *n * 10 + (uint64_t)(*s - '0');
	return s;
}

int rundir_outer_uid(uid_t uid, uid_t *outer)
{
	char map[2048];
	const char *s = map;
	uint64_t inside, outside, count;
	long n;
	int fd = rundir_open_at(AT_FDCWD, "/proc/self/uid_map", O_RDONLY);

	if (fd < 0)
		return -errno;
	n = sys_raw(SYS_read, fd, map, sizeof(map) - 1);
	rundir_close(fd);
	if (n < 0)
		return -EIO;
	map[n] = '\0';
	/* A last line that was cut off has no '\n' and is left out. */
	for (const char *end; (end = strchr(s, '\n')); s = end + 1) {
		s = rundir_read_number(rundir_read_number(rundir_read_number(s, &inside), &outside), &count);
		if (uid >= inside && uid - inside < count) {
			*outer = (uid_t)(outside + (uid - inside));
			return 0;
		}
	}
	return -ESRCH;
}

/* A user without a number here: the kernel shows all such users as the same one, so such a user's own files cannot be
 * told from others. */
static bool rundir_is_unknown(uid_t uid)
{
	uid_t outer;

	return uid == RUNDIR_OVERFLOW_UID && rundir_outer_uid(uid, &outer) < 0;
}

uid_t rundir_uid(uid_t uid)
{
	return uid == RUNDIR_MY_UID ? sys_geteuid() : uid;
}

bool rundir_owner_counts(const char *dir, uid_t owner, uid_t uid)
{
	uid_t outer;

	if (owner == 0 || owner == rundir_uid(uid))
		return true;
	return owner == RUNDIR_OVERFLOW_UID && strcmp(dir, RUNDIR_SYSTEM) == 0 &&
	       rundir_outer_uid(owner, &outer) == -ESRCH;
}

bool rundir_is_in_memory(const struct statfs *fs)
{
	return (uint32_t)fs->f_type == TMPFS_MAGIC || (uint32_t)fs->f_type == RAMFS_MAGIC;
}

/* --- opening it --- */

static int rundir_check(int fd, const char *dir, uid_t uid, struct text *why)
{
	char owner[96];
	struct text text;
	struct stat st;
	struct statfs fs;

	if (sys_fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return rundir_finding(why, dir, errno, "cannot be examined", NULL);
	if (S_ISLNK(st.st_mode))
		return rundir_finding(why, dir, ELOOP, "is a symbolic link",
				      "; name the directory itself in DFLOCK_RUNTIME_DIR, or remove the link");
	if (!S_ISDIR(st.st_mode))
		return rundir_finding(why, dir, ENOTDIR, "is not a directory", "; remove it or set DFLOCK_RUNTIME_DIR");
	if (st.st_uid == RUNDIR_OVERFLOW_UID && rundir_is_unknown(uid))
		return rundir_finding(why, dir, EPERM, "belongs to a user that cannot be identified",
				      ", since this process's user has no number in its user namespace; map it there "
				      "(unshare --map-user)");
	if (!rundir_owner_counts(dir, st.st_uid, uid)) {
		text_init(&text, owner, sizeof(owner));
		text_add(&text, "belongs to uid ");
		text_add_number(&text, st.st_uid);
		text_add(&text, ", not to root or to uid ");
		text_add_number(&text, uid);
		text_add(&text, ", as which this process runs");
		return rundir_finding(why, dir, EPERM, owner, "; have it removed, or set DFLOCK_RUNTIME_DIR");
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return rundir_finding(why, dir, EPERM, "can be written by others", "; take that away with chmod go-w");
	if (!rundir_is_in_memory(&fs))
		return rundir_finding(why, dir, EINVAL, "is not on a tmpfs",
				      "; set DFLOCK_RUNTIME_DIR to a directory below /dev/shm or /run");
	return 0;
}

int rundir_open(const char *dir, uid_t uid, bool create, char *why, size_t why_size)
{
	/* Without O_DIRECTORY, so that the check can tell a link from a file. */
	const int flags = O_PATH | O_NOFOLLOW;
	char name[PLACE_DIR_BYTES];
	struct text path, text;
	int fd, ret;

	text_init(&text, why, why_size);
	text_init(&path, name, sizeof(name));
	text_add(&path, dir);
	if (name[0] != '/')
		return rundir_finding(&text, dir, EINVAL, "is not absolute", "; give it with a leading /");
	if (path.cut)
		return rundir_finding(&text, dir, ENAMETOOLONG, "has too long a name",
				      " for a socket in it; choose a shorter one");
	/* A slash at the end would make the kernel follow a link. */
	while (path.len > 1 && name[path.len - 1] == '/')
		name[--path.len] = '\0';

	fd = rundir_open_at(AT_FDCWD, name, flags);
	if (fd < 0 && errno == ENOENT && create) {
		if (mkdir(name, 0700) < 0 && errno != EEXIST)
			return rundir_finding(&text, name, errno, "cannot be made", NULL);
		fd = rundir_open_at(AT_FDCWD, name, flags);
	}
	if (fd < 0 && errno == ENOENT)
		return rundir_finding(&text, name, ENOENT, "is not there",
				      ": no keeper has run yet; start dflockd, or set DFLOCK_RUNTIME_DIR");
	if (fd < 0)
		return rundir_finding(&text, name, errno, "cannot be opened", NULL);
	ret = rundir_check(fd, name, rundir_uid(uid), &text);
	if (ret < 0) {
		rundir_close(fd);
		return ret;
	}
	return fd;
}
