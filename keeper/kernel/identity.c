/*
 * See identity.h. A mount's number is unique among all namespaces for as long as the mount exists, and it exists while
 * a file on it is open. The table may lag behind the last change, but not once the kernel has been asked whether it has
 * changed.
 */
#include "keeper/kernel/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "keeper/kernel/errand.h"
#include "keeper/kernel/mountmap.h"
#include "procfs/procfs.h"

#define STAT_MS 20

/* --- the kernel's number --- */

static struct {
	pthread_mutex_t mutex;
	struct mountmap map;
} ours = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool identity_find_ours(int id, uint64_t *dev)
{
	const struct mountmap_mount *found;

	pthread_mutex_lock(&ours.mutex);
	found = mountmap_refresh(&ours.map) >= 0 ? mountmap_find(&ours.map, id) : NULL;
	if (found)
		*dev = found->dev;
	pthread_mutex_unlock(&ours.mutex);
	return found != NULL;
}

struct identity_mount {
	int id;
	uint64_t dev;
};

static int identity_compare_id(void *arg, const struct procfs_mount *mount)
{
	struct identity_mount *wanted = arg;

	if (mount->id != wanted->id)
		return 0;
	wanted->dev = mount->dev;
	return 1;
}

/* For another process's namespace: this is rare, so its table is not kept. 1: it has the mount. 0: it does not. */
static int identity_find_theirs(pid_t pid, int id, uint64_t *dev)
{
	struct identity_mount wanted = {.id = id};
	FILE *table = procfs_mounts_open(pid);
	int ret = table ? procfs_mounts(table, identity_compare_id, &wanted) : -errno;

	if (ret == 1)
		*dev = wanted.dev;
	if (table)
		fclose(table);
	return ret;
}

bool identity_mount_is_ours(int mount_id)
{
	uint64_t dev;

	return identity_find_ours(mount_id, &dev);
}

struct identity identity_from(const struct procfs_fdinfo *info, pid_t pid, const struct stat *st, bool *gone)
{
	struct identity id = {.dev = st->st_dev, .ino = info->ino ? info->ino : st->st_ino};

	*gone = info->mount_id >= 0 && !identity_find_ours(info->mount_id, &id.dev) && pid > 0 &&
		identity_find_theirs(pid, info->mount_id, &id.dev) == 0;
	return id;
}

struct identity identity_of(int fd, pid_t pid, const struct stat *st)
{
	struct procfs_fdinfo info;
	bool gone;

	procfs_fdinfo_head(fd, &info);
	return identity_from(&info, pid, st, &gone);
}

/* --- what stat says --- */

struct identity_stat {
	int fds;
	char name[16];
	bool ok;
	struct identity id;
};

static void identity_run_stat(void *memory)
{
	struct identity_stat *s = memory;
	struct statx st;

	s->ok = statx(s->fds, s->name, AT_STATX_DONT_SYNC, STATX_INO, &st) == 0;
	s->id = (struct identity){.dev = makedev(st.stx_dev_major, st.stx_dev_minor), .ino = st.stx_ino};
}

static void identity_free_stat(void *memory)
{
	struct identity_stat *s = memory;

	close(s->fds);
	free(s);
}

bool identity_by_stat(int fds, int number, struct identity *out)
{
	struct identity_stat *s = calloc(1, sizeof(*s));
	struct errand *errand;
	bool ok = false;

	if (!s)
		return false;
	snprintf(s->name, sizeof(s->name), "%d", number);
	s->fds = fcntl(fds, F_DUPFD_CLOEXEC, 3);
	if (s->fds < 0) {
		free(s);
		return false;
	}
	errand = errand_start(identity_run_stat, identity_free_stat, s);
	if (!errand)
		return false;
	if (errand_wait(errand, STAT_MS) && s->ok) {
		*out = s->id;
		ok = true;
	}
	errand_leave(errand);
	return ok;
}
