/* A file that a test finds again in what /proc says: for test_procfs_locks.c and test_procfs_process.c. */
#ifndef DFLOCK_TESTS_UNIT_PROCFS_FILE_H
#define DFLOCK_TESTS_UNIT_PROCFS_FILE_H

#include "tests/unit/suite.h"

/* A descriptor of a new file on a tmpfs, which has no name any more. */
static inline int make_file(struct stat *st)
{
	int fd = suite_nameless_file();

	ck_assert_int_eq(fstat(fd, st), 0);
	return fd;
}

struct wanted {
	struct stat st;
	unsigned count;
};

#endif
