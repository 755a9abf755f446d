/*
 * See rundir.h. How all processes of a user find the same directory below /dev/shm, where any user can make entries:
 *
 * An entry is *ours* if it is called dflock-UID, or dflock-UID. with anything behind the dot, and is a directory that
 * belongs to the user, is on the same tmpfs, and cannot be written by others. Nothing else counts, whatever its name.
 * The rule:
 *
 *   Of the entries that are ours, the one with the lowest name is the runtime directory (dflock-UID comes first).
 *   Only if there is none, a keeper makes one: dflock-UID, or, if that name belongs to another user, dflock-UID. and
 *   the time in ns. Then the keeper looks again, and goes by the rule.
 *
 * Why no other user can make two processes disagree: another user can only make and remove entries that are not ours,
 * and these never count. /dev/shm is sticky, so no other user can remove or rename an entry that is ours. To give one
 * of the user's own directories such a name, another user needs the right to write that directory (the kernel asks for
 * it when a directory gets another parent), and then it is not ours. A mount on an entry (a user may mount FUSE on a
 * directory of the user's own, with any owner that the FUSE server likes) is another device. The name dflock-UID.TIME
 * cannot be taken in advance, since its time is read only when it is made. So a squatter decides under which name the
 * first directory is made, and nothing after that: if the squatter frees dflock-UID again, the sibling stays the lowest
 * of ours, and it is found before another one is made.
 *
 * Why processes that choose at the same time converge: no process makes an entry after it has seen one that is ours, so
 * only processes that looked before the first was made make one. With dflock-UID free, one mkdir() succeeds, and the
 * others find that directory. With dflock-UID taken there may be several siblings, and processes that looked in between
 * may use any of them; each process finds the lowest one when it looks the next time, which a program does for each
 * question. The keeper of a directory that no process finds any more ends when it is idle. Until then two keepers are
 * two hosts: they exclude each other through the store, so nothing but some speed is lost. Entries are never removed,
 * so the lowest name changes only when a lower one is made, and that ends with the last of those processes.
 *
 * User namespaces. The kernel says in the process's own namespace whom a file belongs to; it translates geteuid() and
 * st_uid alike, so equal numbers mean the same user. The exception is 65534, which stands for every user without a
 * number there. The name, however, has the number that the user has where /dev/shm comes from. If /dev/shm belongs to
 * the namespace's own root (a container), that is the number here. If it belongs to a user without a number here
 * (`unshare -Ur`), the process is a guest, and its name has the number that the parent namespace gives it. A guest uses
 * the directory of its user if that exists already, and makes none: a keeper in its namespace could neither look into
 * nor stop the processes of the same user outside, which would find that keeper. DFLOCK_RUNTIME_DIR gives a guest a
 * keeper of its own.
 */
#include "wire/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "wire/sys.h"
#include "wire/text.h"

#define SHM_DIR "/dev/shm"
#define NAME    "dflock-"
/* How the kernel shows a user that has no number in this namespace. */
#define RUNDIR_OVERFLOW_UID 65534
#define ROUNDS              16 /* of looking and making; each one more after another process was faster */

/* Foreign: anything that is not ours, also an entry that cannot be examined. */
enum rundir_entry { ENTRY_ABSENT, ENTRY_FOREIGN, ENTRY_OURS };

struct rundir_base {
	const char *path;
	uint64_t dev;
	uid_t owner;
	mode_t mode;
};

/* --- findings, and users --- */

/* openat() and close() as raw calls: libc's are cancellation points, and flock() is none. The first adds O_CLOEXEC and
 * sets errno as usual. */
static int rundir_open_at(int dir, const char *name, int flags)
{
	return (int)sys_libc(sys_raw(SYS_openat, dir, name, flags | O_CLOEXEC));
}

static void rundir_close(int fd)
{
	sys_raw(SYS_close, fd);
}

/* Writes "runtime directory DIR WHAT", and then `advice`, or, if that is NULL, the text of `err` and an advice. Returns
 * -err. */
static int rundir_finding(struct text *why, const char *dir, int err, const char *what, const char *advice)
{
	errno = err;
	text_add(why, "runtime directory %s %s", dir, what);
	if (advice)
		text_add(why, "%s", advice);
	else
		text_add(why, ": %m; make it usable or set DFLOCK_RUNTIME_DIR");
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

/* The number that the parent namespace has for `uid`. 0; -ESRCH: `uid` is no number of this namespace; or -errno: the
 * map cannot be read. */
static int rundir_outer_uid(uid_t uid, uid_t *outer)
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

/* A runtime directory must be in memory: its page and the keeper's records must end with the boot that their times
 * belong to. */
static bool rundir_is_in_memory(const struct statfs *fs)
{
	return (uint32_t)fs->f_type == TMPFS_MAGIC || (uint32_t)fs->f_type == RAMFS_MAGIC;
}

static int rundir_no_place(struct text *why, int err, const char *what)
{
	text_add(why, "%s; set DFLOCK_RUNTIME_DIR to a directory on a tmpfs that only this user can write", what);
	return -err;
}

/* --- which user this is --- */

/* DONT_SYNC: another user may have mounted a file system there whose server hangs. */
static int rundir_examine(int dir, const char *name, struct rundir_base *b)
{
	struct statx stx;

	long ret = sys_raw(SYS_statx, dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
			   STATX_TYPE | STATX_MODE | STATX_UID, &stx); /* libc's may be fakeroot's */

	if (ret < 0)
		return (int)ret;
	*b = (struct rundir_base){.path = name,
				  .dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
				  .owner = stx.stx_uid,
				  .mode = stx.stx_mode};
	return 0;
}

static bool rundir_is_guest(const struct rundir_base *b, uid_t uid)
{
	return b->owner != 0 && (b->owner != uid || uid == RUNDIR_OVERFLOW_UID);
}

/* The number that stands in the name. False: this process's user has none in its user namespace. */
static bool rundir_number(const struct rundir_base *b, uid_t uid, uid_t *number)
{
	*number = uid;
	return !rundir_is_guest(b, uid) || (uid != RUNDIR_OVERFLOW_UID && rundir_outer_uid(uid, number) == 0);
}

/* --- what is there --- */

static enum rundir_entry rundir_entry(int dir, const char *name, const struct rundir_base *base, uid_t uid)
{
	struct rundir_base b;
	int ret = rundir_examine(dir, name, &b);

	if (ret < 0)
		return ret == -ENOENT ? ENTRY_ABSENT : ENTRY_FOREIGN;
	return S_ISDIR(b.mode) && b.owner == uid && !(b.mode & (S_IWGRP | S_IWOTH)) && b.dev == base->dev
		       ? ENTRY_OURS
		       : ENTRY_FOREIGN;
}

/* Goes through the entries whose names begin with `prefix`: the lowest name of ours in `lowest`, "" if there is
 * none. */
static int rundir_find_sibling(int dir, const char *prefix, const struct rundir_base *base, uid_t uid,
			       char lowest[PLACE_DIR_BYTES])
{
	_Alignas(struct sys_dirent) char buf[2048];
	size_t len = strlen(prefix), room = PLACE_DIR_BYTES - strlen(base->path) - 1;
	const struct sys_dirent *d;
	long n;

	lowest[0] = '\0';
	while ((n = sys_libc(sys_raw(SYS_getdents64, dir, buf, sizeof(buf)))) > 0) {
		for (long at = 0; at < n; at += d->length) {
			d = (const struct sys_dirent *)(buf + at);
			if (strncmp(d->name, prefix, len) != 0 || strlen(d->name) >= room ||
			    (lowest[0] && strcmp(d->name, lowest) > 0) ||
			    rundir_entry(dir, d->name, base, uid) != ENTRY_OURS)
				continue;
			strcpy(lowest, d->name);
		}
	}
	return n < 0 ? -errno : 0;
}

/* The first name for the user `number`; or, with the time `at_ns`, that of a sibling: always 19 digits, so that the earliest name is
 * the lowest. */
static void rundir_name(char dir[PLACE_DIR_BYTES], const struct rundir_base *base, uid_t number, int64_t at_ns)
{
	if (at_ns)
		text_print(dir, PLACE_DIR_BYTES, "%s/" NAME "%u.%lld", base->path, number,
			   (long long)at_ns + 1000000000000000000);
	else
		text_print(dir, PLACE_DIR_BYTES, "%s/" NAME "%u", base->path, number);
}

/* Looks below /dev/shm. *first: what has the first name. 0, with "" in dir if there is none of ours; or -errno. */
static int rundir_find_in_shm(const struct rundir_base *base, uid_t uid, uid_t number, char dir[PLACE_DIR_BYTES],
			      enum rundir_entry *first)
{
	char name[PLACE_DIR_BYTES], lowest[PLACE_DIR_BYTES];
	int fd, ret;

	rundir_name(dir, base, number, 0);
	*first = rundir_entry(AT_FDCWD, dir, base, uid);
	if (*first == ENTRY_OURS)
		return 0;
	text_print(name, sizeof(name), "%s.", strrchr(dir, '/') + 1);
	dir[0] = '\0';
	fd = rundir_open_at(AT_FDCWD, base->path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return -errno;
	ret = rundir_find_sibling(fd, name, base, uid, lowest);
	if (lowest[0])
		text_print(dir, PLACE_DIR_BYTES, "%s/%s", base->path, lowest);
	rundir_close(fd);
	return ret;
}

static int rundir_refuse_guest(struct text *why)
{
	text_add(why, "no keeper of this user runs outside of this user namespace, and one inside could not stop the "
		      "user's other programs; start dflockd outside, or set DFLOCK_RUNTIME_DIR to a directory for "
		      "this namespace alone");
	return -EPERM;
}

/* Looks for /run/dflock/UID: only root makes entries there. 0; -ENOENT: it is not there, or not ours; -EPERM: this
 * process is a guest, and `make` is set. */
static int rundir_find_in_run(uid_t uid, bool make, char dir[PLACE_DIR_BYTES], struct text *why)
{
	struct rundir_base base;
	uid_t number;

	if (rundir_examine(AT_FDCWD, RUNDIR_SYSTEM, &base) < 0 || !S_ISDIR(base.mode) ||
	    base.mode & (S_IWGRP | S_IWOTH) || !rundir_number(&base, uid, &number))
		return -ENOENT;
	text_print(dir, PLACE_DIR_BYTES, RUNDIR_SYSTEM "/%u", number);
	if (rundir_entry(AT_FDCWD, dir, &base, uid) != ENTRY_OURS)
		return -ENOENT;
	return make && rundir_is_guest(&base, uid) ? rundir_refuse_guest(why) : 0;
}

/* --- making one --- */

/* Makes root's own directory where no other user can take the name. False: it cannot be made there; use /dev/shm. */
static bool rundir_make_in_run(uid_t uid)
{
	struct rundir_base base;
	struct statfs fs;

	if (uid != 0 || rundir_examine(AT_FDCWD, RUNDIR_SYSTEM, &base) < 0 || !S_ISDIR(base.mode) || base.owner != 0 ||
	    base.mode & (S_IWGRP | S_IWOTH) || statfs(RUNDIR_SYSTEM, &fs) != 0 || !rundir_is_in_memory(&fs))
		return false;
	return mkdir(RUNDIR_SYSTEM "/0", 0700) == 0 ||
	       (errno == EEXIST && rundir_entry(AT_FDCWD, RUNDIR_SYSTEM "/0", &base, uid) == ENTRY_OURS);
}

/* 0 also if another process was faster: the caller looks again. */
static int rundir_make_in_shm(const struct rundir_base *base, uid_t number, enum rundir_entry first, struct text *why)
{
	char path[PLACE_DIR_BYTES];
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	rundir_name(path, base, number, first == ENTRY_ABSENT ? 0 : (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
	if (mkdir(path, 0700) == 0 || errno == EEXIST)
		return 0;
	return rundir_finding(why, path, errno, "cannot be made", NULL);
}

/* --- the rule --- */

/* Looks below /dev/shm, and makes a directory if there is none. -EAGAIN: one was made, by this process or another. */
static int rundir_look(uid_t uid, bool make, char dir[PLACE_DIR_BYTES], struct text *why)
{
	struct rundir_base base;
	enum rundir_entry first;
	uid_t number;
	int ret = rundir_examine(AT_FDCWD, SHM_DIR, &base);

	if (ret < 0 || !S_ISDIR(base.mode))
		return rundir_no_place(why, ENOTDIR, "there is no " SHM_DIR " to put a runtime directory in");
	if (make && rundir_is_guest(&base, uid))
		return rundir_refuse_guest(why);
	if (!rundir_number(&base, uid, &number))
		return rundir_no_place(why, EPERM, "this process's user has no number in its user namespace");
	ret = rundir_find_in_shm(&base, uid, number, dir, &first);
	if (ret < 0) {
		rundir_no_place(why, -ret, SHM_DIR " cannot be searched for the runtime directory");
		return ret == -ENOENT ? -EIO : ret;
	}
	if (dir[0])
		return 0;
	if (!make)
		return -ENOENT;
	if (rundir_make_in_run(uid))
		return -EAGAIN;
	ret = rundir_make_in_shm(&base, number, first, why);
	return ret < 0 ? ret : -EAGAIN;
}

static int rundir_search(const struct place *place, uid_t uid, bool make, char dir[PLACE_DIR_BYTES], char *line,
			 size_t size)
{
	int ret = -EAGAIN;
	struct text why;
	struct stat st;

	text_init(&why, line, size);
	dir[0] = '\0';
	if (place->runtime_env_bad) {
		text_add(&why, "DFLOCK_RUNTIME_DIR must be an absolute path of at most %d characters, not %s",
			 PLACE_DIR_BYTES - 1, place->runtime_env);
		return -EINVAL;
	}
	if (place->runtime_env[0]) {
		strcpy(dir, place->runtime_env);
		return 0;
	}
	for (int i = 0; i < ROUNDS && ret == -EAGAIN; i++) {
		if (sys_stat(RUNDIR_SYSTEM "/" WIRE_SOCKET_NAME, &st) == 0) {
			strcpy(dir, RUNDIR_SYSTEM);
			return 0;
		}
		uid = rundir_uid(uid);
		ret = rundir_find_in_run(uid, make, dir, &why);
		if (ret != -ENOENT)
			break;
		dir[0] = '\0';
		ret = rundir_look(uid, make, dir, &why);
	}
	if (ret == -EAGAIN)
		rundir_no_place(&why, EAGAIN,
				"no runtime directory can be made below " SHM_DIR ": others make and remove it");
	return ret;
}

int rundir_find(const struct place *place, uid_t uid, char dir[PLACE_DIR_BYTES], char *why, size_t why_size)
{
	return rundir_search(place, uid, false, dir, why, why_size);
}

int rundir_make(const struct place *place, uid_t uid, char dir[PLACE_DIR_BYTES], char *why, size_t why_size)
{
	return rundir_search(place, uid, true, dir, why, why_size);
}

bool rundir_is_taken(uid_t uid, char *why, size_t why_size)
{
	char path[PLACE_DIR_BYTES];
	struct rundir_base shm, b;
	uid_t number;

	if (rundir_examine(AT_FDCWD, SHM_DIR, &shm) < 0 || !rundir_number(&shm, uid, &number))
		return false;
	rundir_name(path, &shm, number, 0);
	if (rundir_entry(AT_FDCWD, path, &shm, uid) != ENTRY_FOREIGN || rundir_examine(AT_FDCWD, path, &b) < 0)
		return false;
	if (b.owner != uid)
		text_print(why, why_size, "%s belongs to uid %u", path, b.owner);
	else
		text_print(why, why_size, "%s %s", path,
			   S_ISDIR(b.mode) && b.dev == shm.dev ? "can be written by others"
							       : "is a mount point, or no directory");
	return true;
}

/* --- opening it --- */

static int rundir_check(int fd, const char *dir, uid_t uid, struct text *why)
{
	char owner[96];
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
		text_print(owner, sizeof(owner),
			   "belongs to uid %u, not to root or to uid %u, as which this process runs", st.st_uid, uid);
		return rundir_finding(why, dir, EPERM, owner, "; have it removed, or set DFLOCK_RUNTIME_DIR");
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return rundir_finding(why, dir, EPERM, "can be written by others", "; take that away with chmod go-w");
	if (!rundir_is_in_memory(&fs))
		return rundir_finding(
			why, dir, EINVAL, "is not on a tmpfs",
			"; mount one there, or set DFLOCK_RUNTIME_DIR to a directory on one, as /dev/shm is");
	return 0;
}

int rundir_open(const char *dir, uid_t uid, bool create, char *why, size_t why_size)
{
	/* Without O_DIRECTORY, so that the check can tell a link from a file. */
	const int flags = O_PATH | O_NOFOLLOW;
	char name[PLACE_DIR_BYTES];
	bool whole = text_print(name, sizeof(name), "%s", dir);
	struct text text;
	int fd, ret;

	text_init(&text, why, why_size);
	if (name[0] != '/')
		return rundir_finding(&text, dir, EINVAL, "is not absolute", "; give it with a leading /");
	if (!whole)
		return rundir_finding(&text, dir, ENAMETOOLONG, "has too long a name",
				      " for a socket in it; choose a shorter one");
	/* A slash at the end would make the kernel follow a link. */
	for (size_t len = strlen(name); len > 1 && name[len - 1] == '/';)
		name[--len] = '\0';

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
