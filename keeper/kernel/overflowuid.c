/* See overflowuid.h. */
#include "keeper/kernel/overflowuid.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "procfs/procfs.h"

#define ALL_UIDS 4294967295u /* all but -1, which is no uid */

bool overflowuid_maps_all(const char *uid_map)
{
	unsigned long long inside, outside, count, sum = 0;
	int length;

	/* The extents of a map never overlap. */
	for (; sscanf(uid_map, "%llu %llu %llu%n", &inside, &outside, &count, &length) == 3; uid_map += length)
		sum += count;
	return sum >= ALL_UIDS;
}

uid_t overflowuid_get(void)
{
	char text[16384]; /* 340 extents of 33 bytes */
	ssize_t n = procfs_head(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text));

	if (n > 0 && n < (ssize_t)sizeof(text) - 1 && overflowuid_maps_all(text))
		return OVERFLOWUID_NONE;
	if (procfs_head(AT_FDCWD, "/proc/sys/kernel/overflowuid", text, sizeof(text)) > 0)
		return (uid_t)strtoul(text, NULL, 10);
	return OVERFLOWUID_DEFAULT;
}
