/*
 * See identity.h. A mount's number is unique among all namespaces for as long as the mount exists, and it exists while
 * a file on it is open. The table may be older than the last change for a moment, never after poll() has been asked:
 * the kernel flags a change as POLLPRI on the open mountinfo, once for each open file.
 */
#include "keeper/kernel/identity.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
	pthread_mutex_t mutex;
	FILE *table;
	struct procfs_mount *mounts;
	size_t count, room;
} ours = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void add(const struct procfs_mount *mount)
{
	if (ours.count == ours.room) {
		size_t room = ours.room ? 2 * ours.room : 64;
		struct procfs_mount *mounts = realloc(ours.mounts, room * sizeof(*mounts));

		if (!mounts)
			return; /* that mount is not known */
		ours.mounts = mounts;
		ours.room = room;
	}
	ours.mounts[ours.count++] = *mount;
}

static int by_id(const void *a, const void *b)
{
	const struct procfs_mount *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static void read_ours(void)
{
	struct procfs_mount mount;
	char *line = NULL;
	size_t size = 0;

	ours.count = 0;
	rewind(ours.table);
	while (getline(&line, &size, ours.table) > 0)
		if (procfs_mount_line(line, &mount))
			add(&mount);
	free(line);
	if (ours.count)
		qsort(ours.mounts, ours.count, sizeof(*ours.mounts), by_id);
}

static bool find_ours(int id, uint64_t *dev)
{
	struct pollfd changed = {.events = POLLPRI};
	const struct procfs_mount *found = NULL;
	bool fresh;

	pthread_mutex_lock(&ours.mutex);
	fresh = !ours.table;
	if (fresh)
		ours.table = fopen("/proc/self/mountinfo", "re");
	if (ours.table) {
		changed.fd = fileno(ours.table);
		if (fresh || poll(&changed, 1, 0) > 0)
			read_ours();
		if (ours.count)
			found = bsearch(&(struct procfs_mount){.id = id}, ours.mounts, ours.count, sizeof(*ours.mounts),
					by_id);
		if (found)
			*dev = found->dev;
	}
	pthread_mutex_unlock(&ours.mutex);
	return found != NULL;
}

/* The namespace of another process: rare, so its table is not kept. */
static bool find_theirs(pid_t pid, int id, uint64_t *dev)
{
	struct procfs_mount mount;
	char path[32], *line = NULL;
	bool found = false;
	size_t size = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	f = fopen(path, "re");
	while (f && !found && getline(&line, &size, f) > 0)
		found = procfs_mount_line(line, &mount) && mount.id == id;
	if (found)
		*dev = mount.dev;
	free(line);
	if (f)
		fclose(f);
	return found;
}

bool identity_mount_is_ours(int mount_id)
{
	uint64_t dev;

	return find_ours(mount_id, &dev);
}

struct identity identity_from(const struct procfs_fdinfo *info, pid_t pid, const struct stat *st)
{
	struct identity id = {.dev = st->st_dev, .ino = info->ino ? info->ino : st->st_ino};

	if (info->mount_id >= 0 && !find_ours(info->mount_id, &id.dev) && pid > 0)
		find_theirs(pid, info->mount_id, &id.dev);
	return id;
}

struct identity identity_of(int fd, pid_t pid, const struct stat *st)
{
	struct procfs_fdinfo info = {.mount_id = -1};
	struct procfs_text text = {0};
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (procfs_read(AT_FDCWD, path, &text) == 0)
		procfs_fdinfo(text.text, &info, NULL, NULL);
	free(text.text);
	return identity_from(&info, pid, st);
}
