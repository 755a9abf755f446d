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

static inline void own_mounts(void)
{
	uid_t uid = getuid();

	ck_assert_int_eq(unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)), 0);
	if (uid) {
		char line[64];
		int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);

		snprintf(line, sizeof(line), "0 %d 1", (int)uid);
		ck_assert_int_gt(write(fd, line, strlen(line)), 0);
		close(fd);
	}
	ck_assert_int_eq(mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL), 0);
}

#endif
