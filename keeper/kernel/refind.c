/* See refind.h. */
#include "keeper/kernel/refind.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "keeper/array.h"
#include "keeper/kernel/mountmap.h"
#include "procfs/procfs.h"

#define CACHED_TRIES 3 /* a mount or a rename elsewhere makes one fail */

void refind_init(struct refind *r, uint64_t dev, uint64_t ino)
{
	*r = (struct refind){.dev = dev, .ino = ino, .path_fd = -1, .fd = -1};
}

void refind_end(struct refind *r)
{
	if (r->path_fd >= 0)
		close(r->path_fd);
	r->path_fd = -1;
}

void refind_begin(struct refind *r)
{
	refind_end(r);
	r->fd = -1;
	r->error = 0;
	for (int i = 0; i < WIRE_SPACES; i++)
		r->listed[i] = LISTED_UNKNOWN;
}

/* --- opening --- */

/* From the kernel's memory: no file server is asked. */
static bool refind_is_file(int fd, uint64_t dev, uint64_t ino)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st) == 0 && st.stx_ino == ino &&
	       makedev(st.stx_dev_major, st.stx_dev_minor) == dev;
}

int refind_description(int any_fd)
{
	const int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	char link[32];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", any_fd);
	fd = open(link, O_RDONLY | flags);
	if (fd < 0 && errno == EACCES)
		fd = open(link, O_WRONLY | flags);
	return fd < 0 ? -errno : fd;
}

int refind_at_once(uint64_t dev, uint64_t ino, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
	int path_fd = -1, fd = -1;

	for (int i = 0; i < CACHED_TRIES && path_fd < 0; i++) {
		path_fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
		if (path_fd < 0 && errno != EAGAIN)
			return -1;
	}
	if (path_fd < 0)
		return -1;
	if (refind_is_file(path_fd, dev, ino))
		fd = refind_description(path_fd);
	close(path_fd);
	return fd < 0 ? -1 : fd;
}

void refind_open(struct refind *r)
{
	int ret = refind_description(r->path_fd);

	refind_end(r);
	r->fd = ret < 0 ? -1 : ret;
	r->error = ret < 0 ? -ret : 0;
	r->forbidden |= ret < 0;
}

void refind_by_path(struct refind *r, const char *path)
{
	r->path_fd = open(path, O_PATH | O_CLOEXEC);
	if (r->path_fd < 0)
		return;
	if (refind_is_file(r->path_fd, r->dev, r->ino))
		refind_open(r);
	else
		refind_end(r);
}

/* --- the kernel's list --- */

struct listed_entry {
	uint64_t ino, dev;
	enum wire_space space;
};

struct listed {
	bool known;     /* the list can be trusted at all */
	UT_array locks; /* sorted */
	struct mountmap mounts;
};

static int listed_compare(const void *a, const void *b)
{
	const struct listed_entry *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (int)x->space - (int)y->space;
}

static int listed_on_lock(void *arg, const struct procfs_lock *lock)
{
	const struct listed_entry entry = {.dev = lock->dev, .ino = lock->ino, .space = lock->space};
	struct listed *l = arg;

	return array_push(&l->locks, &entry, sizeof(entry));
}

struct listed *listed_read(void)
{
	struct listed *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->known = procfs_is_in_first_namespace() && mountmap_refresh(&l->mounts) >= 0 &&
		   procfs_locks(listed_on_lock, l) == 0;
	array_sort(&l->locks, listed_compare);
	return l;
}

void listed_free(struct listed *l)
{
	if (!l)
		return;
	utarray_done(&l->locks);
	mountmap_free(&l->mounts);
	free(l);
}

static bool listed_is_trusted(const struct listed *l, uint64_t dev)
{
	const struct mountmap_mount *mount = NULL;

	while ((mount = utarray_next(&l->mounts.ours, mount)))
		if (mount->dev == dev && mount->plain)
			return true;
	return false;
}

enum listed_answer listed_ask(const struct listed *l, uint64_t dev, uint64_t ino, enum wire_space space)
{
	const struct listed_entry entry = {.ino = ino, .dev = dev, .space = space};

	if (!l || !l->known || !listed_is_trusted(l, dev))
		return LISTED_UNKNOWN;
	return array_search(&l->locks, &entry, listed_compare) ? LISTED_SOME : LISTED_NONE;
}

/* --- the search --- */

struct refind_wanted {
	struct refind **files; /* sorted */
	size_t count;
};

static int refind_compare(const void *a, const void *b)
{
	const struct refind *x = *(struct refind *const *)a, *y = *(struct refind *const *)b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->dev < y->dev ? -1 : x->dev > y->dev;
}

static struct refind *find_wanted(const struct refind_wanted *wanted, const struct statx *st)
{
	struct refind key = {.dev = makedev(st->stx_dev_major, st->stx_dev_minor), .ino = st->stx_ino};
	struct refind *at = &key, **found;

	found = bsearch(&at, wanted->files, wanted->count, sizeof(*wanted->files), refind_compare);
	return found ? *found : NULL;
}

static void refind_look_at_descriptor(const struct refind_wanted *wanted, int dir, int number)
{
	struct refind *r;
	struct statx st;
	char name[16];

	snprintf(name, sizeof(name), "%d", number);
	if (statx(dir, name, AT_STATX_DONT_SYNC, STATX_INO, &st) != 0)
		return;
	r = find_wanted(wanted, &st);
	if (!r || r->error || r->path_fd >= 0)
		return;
	r->path_fd = openat(dir, name, O_PATH | O_CLOEXEC);
	if (r->path_fd >= 0 && !refind_is_file(r->path_fd, r->dev, r->ino)) /* another one has the number by now */
		refind_end(r);
}

static void refind_look_at_process(const struct refind_wanted *wanted, pid_t pid)
{
	struct procfs_walk fds;
	char path[32];
	int number;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	if (procfs_walk(&fds, AT_FDCWD, path) == 0)
		while ((number = procfs_next(&fds)) >= 0)
			if (procfs_kind(procfs_walk_fd(&fds), number) == PROCFS_FILE) /* most are of no file */
				refind_look_at_descriptor(wanted, procfs_walk_fd(&fds), number);
	procfs_walk_end(&fds);
}

static void refind_look_at_processes(const struct refind_wanted *wanted)
{
	struct procfs_walk walk;
	pid_t pid;

	if (procfs_walk(&walk, AT_FDCWD, "/proc") == 0)
		while ((pid = procfs_next(&walk)) >= 0)
			refind_look_at_process(wanted, pid);
	procfs_walk_end(&walk);
}

static void ask_list(const struct refind_wanted *wanted)
{
	struct listed *listed = listed_read();

	for (size_t f = 0; f < wanted->count; f++)
		for (int i = 0; i < WIRE_SPACES; i++) {
			struct refind *r = wanted->files[f];

			r->listed[i] = listed_ask(listed, r->dev, r->ino, i);
		}
	listed_free(listed);
}

void refind_search(struct refind **files, size_t count)
{
	const struct refind_wanted wanted = {.files = files, .count = count};
	bool search = false, read_list = false;

	for (size_t i = 0; i < count; i++)
		search |= !files[i]->error; /* else it was found, and only the list is of use */
	if (search) {
		qsort(files, count, sizeof(*files), refind_compare);
		refind_look_at_processes(&wanted);
	}
	for (size_t i = 0; i < count; i++)
		read_list |= files[i]->path_fd < 0 || files[i]->forbidden;
	if (read_list)
		ask_list(&wanted);
}
