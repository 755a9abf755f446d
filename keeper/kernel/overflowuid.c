/* See overflowuid.h. */
#include "keeper/kernel/overflowuid.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* False if it cannot be read, or not as a whole. */
static bool read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 && (size_t)n < size - 1;
}

uid_t overflowuid_get(void)
{
	char text[16384]; /* 340 extents of 33 bytes */

	if (read_file("/proc/self/uid_map", text, sizeof(text)) && overflowuid_maps_all(text))
		return OVERFLOWUID_NONE;
	if (read_file("/proc/sys/kernel/overflowuid", text, sizeof(text)))
		return (uid_t)strtoul(text, NULL, 10);
	return OVERFLOWUID_DEFAULT;
}
