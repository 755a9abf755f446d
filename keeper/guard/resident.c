/* See resident.h. */
#include "keeper/guard/resident.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
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

/* The other libraries are the keeper's. What the linker has without rights ("---p") is only room. */
bool resident_is_needed(const struct procfs_map *map, const char *program)
{
	if (map->rights[0] != 'r')
		return false;
	return strcmp(map->name, program) == 0 || strcmp(map->name, "[heap]") == 0 ||
	       strcmp(map->name, "[stack]") == 0 || strncmp(base_name(map->name), "libc.", 5) == 0 ||
	       strncmp(base_name(map->name), "libc-", 5) == 0 || strncmp(base_name(map->name), "ld-", 3) == 0;
}

static int lock_map(void *arg, const struct procfs_map *map)
{
	if (resident_is_needed(map, arg) && mlock((const void *)(uintptr_t)map->from, map->to - map->from) != 0)
		return -errno;
	return 0;
}

static int lock_needed(const void *shared, size_t size)
{
	char program[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (len <= 0 || mlock(shared, size) != 0)
		return -errno;
	program[len] = '\0';
	return procfs_maps(getpid(), lock_map, program);
}

bool resident_stay(const void *shared, size_t size)
{
	static bool said;
	struct rlimit limit = {0};
	int ret;

	if (mlockall(MCL_CURRENT) == 0)
		return true;
	ret = lock_needed(shared, size);
	if (ret == 0)
		log_stay_resident();
	if (ret == 0 || said)
		return ret == 0;
	said = true;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	log_event(
		LINE_PARENT_SWAPPABLE,
		"the keeper's parent cannot be locked into memory (%s; the limit is %llu kB): on a machine that swaps it "
		"may stop the holders of locks too late; raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=) to 16 MB",
		strerror(-ret), (unsigned long long)limit.rlim_cur / 1024);
	return false;
}
