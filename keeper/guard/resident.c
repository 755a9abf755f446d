/* See resident.h. */
#include "keeper/guard/resident.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "keeper/log.h"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* "7f95c2eb4000-7f95c2eb5000 r-xp 00000000 00:1b 4879360   /path". The other libraries are the keeper's. What the linker
 * has without rights ("---p") is only room. */
bool resident_is_needed(const char *line, const char *program, unsigned long *from, unsigned long *to)
{
	char rights[5], path[PATH_MAX] = "";

	if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %4095[^\n]", from, to, rights, path) < 3 || rights[0] != 'r')
		return false;
	return strcmp(path, program) == 0 || strcmp(path, "[heap]") == 0 || strcmp(path, "[stack]") == 0 ||
	       strncmp(base_name(path), "libc.", 5) == 0 || strncmp(base_name(path), "libc-", 5) == 0 ||
	       strncmp(base_name(path), "ld-", 3) == 0;
}

static int lock_needed(const void *shared, size_t size)
{
	char program[PATH_MAX], *line = NULL;
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
	FILE *maps = fopen("/proc/self/maps", "re");
	int ret = maps && len > 0 ? 0 : -errno;
	size_t room = 0;

	program[len > 0 ? len : 0] = '\0';
	if (ret == 0 && mlock(shared, size) != 0)
		ret = -errno;
	while (ret == 0 && getline(&line, &room, maps) > 0) {
		unsigned long from, to;

		if (resident_is_needed(line, program, &from, &to) && mlock((const void *)from, to - from) != 0)
			ret = -errno;
	}
	free(line);
	if (maps)
		fclose(maps);
	return ret;
}

bool resident_stay(const void *shared, size_t size)
{
	static bool said;
	struct rlimit limit = {0};
	int ret;

	if (mlockall(MCL_CURRENT) == 0)
		return true;
	ret = lock_needed(shared, size);
	if (ret == 0 || said)
		return ret == 0;
	said = true;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	log_error("the keeper's parent cannot be locked into memory (%s; the limit is %llu kB): on a machine that swaps it "
		  "may stop the holders of locks too late; raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=) to 16 MB",
		  strerror(-ret), (unsigned long long)limit.rlim_cur / 1024);
	return false;
}
