/*
 * See rundir.h. How all processes of a user find the same directory below /dev/shm, where anybody can make entries:
 *
 * An entry is *ours* if it is called dflock-UID, or dflock-UID. with anything behind the dot, and is a directory of the
 * user's on the same tmpfs, which others cannot write. Nothing else counts, whatever its name. The rule:
 *
 *   Of the entries that are ours the one with the lowest name is the runtime directory (dflock-UID comes first).
 *   Only if there is none, a keeper makes one: dflock-UID, or, if that name is somebody else's, dflock-UID. and the time
 *   in ns. Then it looks again, and goes by the rule.
 *
 * Why nobody else can make two processes disagree: another user can only make and remove entries that are not ours, and
 * these never count. /dev/shm is sticky, so that nobody else can remove or rename one that is ours. To give one of the
 * user's own directories such a name takes the right to write it (the kernel asks for it when a directory gets another
 * parent), and with that it is not ours. A mount on it (a user may mount FUSE on a directory of his own, with any owner
 * that his server likes) is another device. The name dflock-UID.TIME cannot be taken first, since its time is only read
 * when it is made. So a squatter decides under which name the first directory is made, and nothing after that: if he
 * frees dflock-UID again, the sibling stays the lowest of ours, and it is found before any is made.
 *
 * Why processes that choose at the same time converge: none makes an entry after it has seen one that is ours, so only
 * those make one that have looked before the first was made. With dflock-UID free one mkdir() succeeds, and the others
 * find that directory. With dflock-UID taken there may be several siblings, and all but the earliest may be in use by
 * those who looked in between; each of them finds the lowest when it looks the next time, which a program does for each
 * question. The keeper of a directory that nobody finds any more ends when it is idle. Two keepers are two hosts until
 * then: they exclude each other through the store, so that nothing but some speed is lost. Entries are never removed, so
 * the lowest only changes when a lower one is made, and that ends with the last of those processes.
 *
 * User namespaces. Ownership is what the kernel says in the process's own namespace; geteuid() and st_uid are translated
 * alike, so that equal numbers mean the same user, but for 65534, which also stands for every user that has no number
 * there. The name, however, is the number that the user has where /dev/shm comes from. Where /dev/shm is owned by the
 * namespace's own root (a container), that is the number here. Where it is owned by somebody that has no number here
 * (`unshare -Ur`), the process is a guest: its name is the number that the parent namespace has for it. A guest uses
 * the directory of its user if that is there already, and makes none: a keeper in its namespace could not look at, or stop, the
 * processes of the same user outside, which would find it. DFLOCK_RUNTIME_DIR gives it a keeper of its own.
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

#define SHM_DIR      "/dev/shm"
#define NAME         "dflock-"
#define OVERFLOW_UID 65534 /* how the kernel shows a user that has no number in this namespace */
#define ROUNDS       16    /* of looking and making, each after somebody else was faster */

/* Foreign: anything that is not ours, also what cannot be examined. */
enum entry { ENTRY_ABSENT, ENTRY_FOREIGN, ENTRY_OURS };

struct base {
	const char *path;
	uint64_t dev;
	uid_t owner;
	mode_t mode;
};

/* Raw calls here and below, because open() and close() are cancellation points and flock() is none. */
static int open_at(int dir, const char *name, int flags)
{
	return (int)sys_libc(sys_raw(SYS_openat, dir, name, flags | O_CLOEXEC));
}

static void close_raw(int fd)
{
	sys_raw(SYS_close, fd);
}

/* --- findings --- */

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

static int no_place(struct text *why, int err, const char *what)
{
	text_add(why, what);
	text_add(why, "; set DFLOCK_RUNTIME_DIR to a directory on a tmpfs that only this user can write");
	return -err;
}

/* --- who this is --- */

/* DONT_SYNC: what hangs there, mounted by somebody who can do so, is not asked. */
static int examine(int dir, const char *name, struct base *b)
{
	struct statx stx;

	if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
		  STATX_TYPE | STATX_MODE | STATX_UID, &stx) != 0)
		return -errno;
	*b = (struct base){.path = name,
			   .dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
			   .owner = stx.stx_uid,
			   .mode = stx.stx_mode};
	return 0;
}

static const char *read_number(const char *s, uint64_t *n)
{
	while (*s == ' ')
		s++;
	for (*n = 0; *s >= '0' && *s <= '9'; s++)
		*n = *n * 10 + (uint64_t)(*s - '0');
	return s;
}

/* What number the parent namespace has for uid. 0; -ESRCH: none, it has no number here; or -errno: that cannot be read. */
static int outer_uid(uid_t uid, uid_t *outer)
{
	char map[2048];
	const char *s = map;
	uint64_t inside, outside, count;
	long n;
	int fd = open_at(AT_FDCWD, "/proc/self/uid_map", O_RDONLY);

	if (fd < 0)
		return -errno;
	n = sys_raw(SYS_read, fd, map, sizeof(map) - 1);
	close_raw(fd);
	if (n < 0)
		return -EIO;
	map[n] = '\0';
	/* A last line that is cut off ends without '\n'. */
	for (const char *end; (end = strchr(s, '\n')); s = end + 1) {
		s = read_number(read_number(read_number(s, &inside), &outside), &count);
		if (uid >= inside && uid - inside < count) {
			*outer = (uid_t)(outside + (uid - inside));
			return 0;
		}
	}
	return -ESRCH;
}

/* Nobody that has a number here: not even whether a file is its own can be said. */
static bool is_unknown(uid_t uid)
{
	uid_t outer;

	return uid == OVERFLOW_UID && outer_uid(uid, &outer) < 0;
}

static bool is_guest(const struct base *b, uid_t uid)
{
	return b->owner != 0 && (b->owner != uid || uid == OVERFLOW_UID);
}

/* The number that stands in the name. */
static int number_in_name(const struct base *b, uid_t uid, uid_t *number, struct text *why)
{
	*number = uid;
	if (!is_guest(b, uid))
		return 0;
	if (uid == OVERFLOW_UID || outer_uid(uid, number) < 0)
		return no_place(why, EPERM, "this process's user has no number in its user namespace");
	return 0;
}

/* --- what is there --- */

static enum entry entry_is(int dir, const char *name, const struct base *base, uid_t uid)
{
	struct base b;
	int rc = examine(dir, name, &b);

	if (rc < 0)
		return rc == -ENOENT ? ENTRY_ABSENT : ENTRY_FOREIGN;
	return S_ISDIR(b.mode) && b.owner == uid && !(b.mode & (S_IWGRP | S_IWOTH)) && b.dev == base->dev
		       ? ENTRY_OURS
		       : ENTRY_FOREIGN;
}

struct kernel_dirent {
	uint64_t ino;
	int64_t off;
	unsigned short length;
	unsigned char type;
	char name[];
};

/* Goes through what is called PREFIX and more: the lowest of ours in `lowest`, "" if there is none. */
static int find_sibling(int dir, const char *prefix, const struct base *base, uid_t uid, char lowest[PLACE_DIR_BYTES])
{
	_Alignas(struct kernel_dirent) char buf[2048];
	size_t len = strlen(prefix), room = PLACE_DIR_BYTES - strlen(base->path) - 1;
	const struct kernel_dirent *d;
	long n;

	lowest[0] = '\0';
	while ((n = sys_libc(sys_raw(SYS_getdents64, dir, buf, sizeof(buf)))) > 0) {
		for (long at = 0; at < n; at += d->length) {
			d = (const struct kernel_dirent *)(buf + at);
			if (strncmp(d->name, prefix, len) != 0 || strlen(d->name) >= room ||
			    (lowest[0] && strcmp(d->name, lowest) > 0) ||
			    entry_is(dir, d->name, base, uid) != ENTRY_OURS)
				continue;
			strcpy(lowest, d->name);
		}
	}
	return n < 0 ? -errno : 0;
}

static void set_dir(char dir[PLACE_DIR_BYTES], const char *base, const char *name)
{
	struct text text;

	text_init(&text, dir, PLACE_DIR_BYTES);
	text_add(&text, base);
	text_add(&text, "/");
	text_add(&text, name);
}

/* The first name of `number`. With `at`, another one. */
static void make_name(char name[PLACE_DIR_BYTES], uid_t number, const struct timespec *at)
{
	static const char hex[] = "0123456789abcdef";
	char digits[16];
	uint64_t ns;
	struct text text;

	text_init(&text, name, PLACE_DIR_BYTES);
	text_add(&text, NAME);
	text_add_number(&text, number);
	if (!at)
		return;
	/* As wide as any, so that the earliest is the lowest. */
	ns = (uint64_t)at->tv_sec * 1000000000 + (uint64_t)at->tv_nsec;
	for (size_t i = 0; i < sizeof(digits); i++)
		digits[i] = hex[ns >> 4 * (sizeof(digits) - 1 - i) & 15];
	text_add(&text, ".");
	text_add_bytes(&text, digits, sizeof(digits));
}

/* Below /dev/shm. *first: what has the first name. 0, with "" in dir if there is none; or -errno. */
static int find_in_shm(const struct base *base, uid_t uid, uid_t number, char dir[PLACE_DIR_BYTES], enum entry *first)
{
	char name[PLACE_DIR_BYTES], lowest[PLACE_DIR_BYTES];
	int fd = open_at(AT_FDCWD, base->path, O_RDONLY | O_DIRECTORY), rc = 0;

	dir[0] = '\0';
	*first = ENTRY_FOREIGN;
	if (fd < 0)
		return -errno;
	make_name(name, number, NULL);
	*first = entry_is(fd, name, base, uid);
	if (*first == ENTRY_OURS) {
		set_dir(dir, base->path, name);
	} else {
		strcat(name, ".");
		rc = find_sibling(fd, name, base, uid, lowest);
		if (lowest[0])
			set_dir(dir, base->path, lowest);
	}
	close_raw(fd);
	return rc;
}

static int guest(struct text *why)
{
	text_add(why, "no keeper of this user runs outside of this user namespace, and one inside could not stop the "
		      "user's other programs; start dflockd outside, or set DFLOCK_RUNTIME_DIR to a directory for this "
		      "namespace alone");
	return -EPERM;
}

/* /run/dflock/UID: nobody but root makes entries there. 0; -ENOENT: it is not there, or not ours; -EPERM: a guest. */
static int find_in_run(uid_t uid, bool make, char dir[PLACE_DIR_BYTES], struct text *why)
{
	char ignored[8], name[PLACE_DIR_BYTES];
	struct text unsaid, text;
	struct base base;
	uid_t number;

	text_init(&unsaid, ignored, sizeof(ignored));
	if (examine(AT_FDCWD, RUNDIR_SYSTEM, &base) < 0 || !S_ISDIR(base.mode) || base.mode & (S_IWGRP | S_IWOTH) ||
	    number_in_name(&base, uid, &number, &unsaid) < 0)
		return -ENOENT;
	text_init(&text, name, sizeof(name));
	text_add_number(&text, number);
	set_dir(dir, RUNDIR_SYSTEM, name);
	if (entry_is(AT_FDCWD, dir, &base, uid) != ENTRY_OURS)
		return -ENOENT;
	return make && is_guest(&base, uid) ? guest(why) : 0;
}

/* --- making one --- */

/* Only in memory do the page and the journal end with the boot that their times belong to. */
static bool is_in_memory(const struct statfs *fs)
{
	return (uint32_t)fs->f_type == TMPFS_MAGIC || (uint32_t)fs->f_type == RAMFS_MAGIC;
}

/* Root's own, where nobody else can take the name. False: /dev/shm must do. */
static bool make_in_run(uid_t uid)
{
	struct base base;
	struct statfs fs;

	if (uid != 0 || examine(AT_FDCWD, RUNDIR_SYSTEM, &base) < 0 || !S_ISDIR(base.mode) || base.owner != 0 ||
	    base.mode & (S_IWGRP | S_IWOTH) || statfs(RUNDIR_SYSTEM, &fs) != 0 || !is_in_memory(&fs))
		return false;
	return mkdir(RUNDIR_SYSTEM "/0", 0700) == 0 ||
	       (errno == EEXIST && entry_is(AT_FDCWD, RUNDIR_SYSTEM "/0", &base, uid) == ENTRY_OURS);
}

/* 0 also where somebody was faster: the caller looks again. */
static int make_in_shm(const struct base *base, uid_t number, enum entry first, struct text *why)
{
	char name[PLACE_DIR_BYTES], path[PLACE_DIR_BYTES];
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	make_name(name, number, first == ENTRY_ABSENT ? NULL : &now);
	set_dir(path, base->path, name);
	if (mkdir(path, 0700) == 0 || errno == EEXIST)
		return 0;
	return finding(why, path, errno, "cannot be made", NULL);
}

/* --- the rule --- */

/* -EAGAIN: one was made, or somebody was faster. */
static int look(uid_t uid, bool make, char dir[PLACE_DIR_BYTES], struct text *why)
{
	struct base base;
	enum entry first;
	uid_t number;
	int rc = examine(AT_FDCWD, SHM_DIR, &base);

	if (rc < 0 || !S_ISDIR(base.mode))
		return no_place(why, ENOTDIR, "there is no " SHM_DIR " to put a runtime directory in");
	if (make && is_guest(&base, uid))
		return guest(why);
	rc = number_in_name(&base, uid, &number, why);
	if (rc < 0)
		return rc;
	rc = find_in_shm(&base, uid, number, dir, &first);
	if (rc < 0) {
		no_place(why, -rc, SHM_DIR " cannot be searched for the runtime directory");
		return rc == -ENOENT ? -EIO : rc;
	}
	if (dir[0])
		return 0;
	if (!make)
		return -ENOENT;
	if (make_in_run(uid))
		return -EAGAIN;
	rc = make_in_shm(&base, number, first, why);
	return rc < 0 ? rc : -EAGAIN;
}

static bool is_system(char dir[PLACE_DIR_BYTES])
{
	struct text text;
	struct stat st;

	text_init(&text, dir, PLACE_DIR_BYTES);
	if (sys_stat(RUNDIR_SYSTEM "/" WIRE_SOCKET_NAME, &st) != 0)
		return false;
	text_add(&text, RUNDIR_SYSTEM);
	return true;
}

static int by_environment(const struct place *place, char dir[PLACE_DIR_BYTES], struct text *why)
{
	struct text text;

	text_init(&text, dir, PLACE_DIR_BYTES);
	if (place->runtime_env_bad) {
		text_add(why, "DFLOCK_RUNTIME_DIR must be an absolute path of at most ");
		text_add_number(why, PLACE_DIR_BYTES - 1);
		text_add(why, " characters, not ");
		text_add(why, place->runtime_env);
		return -EINVAL;
	}
	text_add(&text, place->runtime_env);
	return 0;
}

static int find(const struct place *place, uid_t uid, bool make, char dir[PLACE_DIR_BYTES], char *line, size_t size)
{
	int rc = -EAGAIN;
	struct text why;

	text_init(&why, line, size);
	if (place->runtime_env[0] || place->runtime_env_bad)
		return by_environment(place, dir, &why);
	for (int i = 0; i < ROUNDS && rc == -EAGAIN; i++) {
		if (is_system(dir))
			return 0;
		rc = find_in_run(uid, make, dir, &why);
		if (rc != -ENOENT)
			break;
		dir[0] = '\0';
		rc = look(uid, make, dir, &why);
	}
	if (rc == -EAGAIN)
		no_place(&why, EAGAIN, "no runtime directory can be made below " SHM_DIR ": others make and remove it");
	return rc;
}

int rundir_find(const struct place *place, uid_t uid, char dir[PLACE_DIR_BYTES], char *why, size_t why_size)
{
	return find(place, uid, false, dir, why, why_size);
}

int rundir_make(const struct place *place, uid_t uid, char dir[PLACE_DIR_BYTES], char *why, size_t why_size)
{
	return find(place, uid, true, dir, why, why_size);
}

bool rundir_is_taken(uid_t uid, char *line, size_t size)
{
	char path[PLACE_DIR_BYTES], name[PLACE_DIR_BYTES];
	struct base shm, b;
	struct text why;
	uid_t number;

	text_init(&why, line, size);
	if (examine(AT_FDCWD, SHM_DIR, &shm) < 0 || number_in_name(&shm, uid, &number, &why) < 0)
		return false;
	make_name(name, number, NULL);
	set_dir(path, SHM_DIR, name);
	if (entry_is(AT_FDCWD, path, &shm, uid) != ENTRY_FOREIGN || examine(AT_FDCWD, path, &b) < 0)
		return false;
	text_init(&why, line, size);
	text_add(&why, path);
	if (b.owner != uid) {
		text_add(&why, " belongs to uid ");
		text_add_number(&why, b.owner);
	} else if (S_ISDIR(b.mode) && b.dev == shm.dev) {
		text_add(&why, " can be written by others");
	} else {
		text_add(&why, " is a mount point, or no directory");
	}
	return true;
}

/* --- opening it --- */

static int check_dir(int fd, const char *dir, uid_t uid, struct text *why)
{
	char owner[32];
	struct text text;
	struct stat st;
	struct statfs fs;

	if (sys_fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return finding(why, dir, errno, "cannot be examined", NULL);
	if (S_ISLNK(st.st_mode))
		return finding(why, dir, ELOOP, "is a symbolic link",
			       "; name the directory itself in DFLOCK_RUNTIME_DIR, or remove the link");
	if (!S_ISDIR(st.st_mode))
		return finding(why, dir, ENOTDIR, "is not a directory", "; remove it or set DFLOCK_RUNTIME_DIR");
	if (st.st_uid == OVERFLOW_UID && is_unknown(uid))
		return finding(why, dir, EPERM, "cannot be said to be anybody's",
			       ", since this process's user has no number in its user namespace; map it there "
			       "(unshare --map-user)");
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

int rundir_open(const char *dir, uid_t uid, bool create, char *why, size_t why_size)
{
	/* Without O_DIRECTORY, so that the check can tell a link from a file. */
	const int flags = O_PATH | O_NOFOLLOW;
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

	fd = open_at(AT_FDCWD, name, flags);
	if (fd < 0 && errno == ENOENT && create) {
		if (mkdir(name, 0700) < 0 && errno != EEXIST)
			return finding(&text, name, errno, "cannot be made", NULL);
		fd = open_at(AT_FDCWD, name, flags);
	}
	if (fd < 0 && errno == ENOENT)
		return finding(&text, name, ENOENT, "is not there",
			       ": no keeper has run yet; start dflockd, or set DFLOCK_RUNTIME_DIR");
	if (fd < 0)
		return finding(&text, name, errno, "cannot be opened", NULL);
	rc = check_dir(fd, name, uid, &text);
	if (rc < 0) {
		close_raw(fd);
		return rc;
	}
	return fd;
}
