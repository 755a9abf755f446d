/* A mount namespace of the test's own, in which it may mount as it likes; also for an ordinary user. */
#ifndef DFLOCK_TESTS_UNIT_OWN_MOUNTS_H
#define DFLOCK_TESTS_UNIT_OWN_MOUNTS_H

#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static inline void own_mounts_write(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* A file system makes no file for a user or a group without a number in its namespace (EOVERFLOW). */
static inline void own_mounts_map(uid_t as, uid_t uid, gid_t gid)
{
	char line[64];

	snprintf(line, sizeof(line), "%u %u 1", as, uid);
	own_mounts_write("/proc/self/uid_map", line);
	own_mounts_write("/proc/self/setgroups", "deny");
	snprintf(line, sizeof(line), "%u %u 1", gid, gid);
	own_mounts_write("/proc/self/gid_map", line);
}

/* An ordinary user has the number `as` in it. */
static inline void own_mounts_as(uid_t as)
{
	uid_t uid = getuid();
	gid_t gid = getgid();

	ck_assert_int_eq(unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)), 0);
	if (uid)
		own_mounts_map(as, uid, gid);
	ck_assert_int_eq(mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL), 0);
}

static inline void own_mounts(void) { own_mounts_as(0); }

#endif
