/* How many descriptors this process has open, for tests that nothing stays open. */
#ifndef DFLOCK_TESTS_UNIT_OPEN_COUNT_H
#define DFLOCK_TESTS_UNIT_OPEN_COUNT_H

#include <check.h>
#include <dirent.h>

/* Always the same too many: the folder's own entries, and the descriptor by which it is read. */
static inline int count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

#endif
