/* See listed.h. */
#include "keeper/kernel/listed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "keeper/kernel/procfs.h"

#define FIRST_PID_NAMESPACE 0xeffffffcu /* its inode number in nsfs: the same on every machine */

struct entry {
	uint64_t ino, dev; /* devices: ino is 0 */
	enum wire_space space;
};

struct entries {
	struct entry *at;
	size_t count, room;
};

struct listed {
	bool known;             /* the list can be trusted at all */
	struct entries locks;   /* sorted */
	struct entries devices; /* file systems for which it can be; sorted */
};

static int compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (int)x->space - (int)y->space;
}

static bool add(struct entries *e, const struct entry *entry)
{
	if (e->count == e->room) {
		size_t room = e->room ? 2 * e->room : 64;
		struct entry *at = realloc(e->at, room * sizeof(*at));

		if (!at)
			return false;
		e->at = at;
		e->room = room;
	}
	e->at[e->count++] = *entry;
	return true;
}

static bool has(const struct entries *e, const struct entry *entry)
{
	return e->count && bsearch(entry, e->at, e->count, sizeof(*entry), compare);
}

/* A line that is not understood is one about a lease, or a call that waits. */
static bool add_lock(struct listed *l, const char *line)
{
	struct procfs_lock lock;
	struct entry entry;

	if (!procfs_lock_line(line, &lock))
		return true;
	entry = (struct entry){.dev = lock.dev, .ino = lock.ino, .space = lock.space};
	return add(&l->locks, &entry);
}

static bool read_locks(struct listed *l)
{
	FILE *f = fopen("/proc/locks", "re");
	bool ok = f != NULL;
	char line[224];

	while (ok && fgets(line, sizeof(line), f))
		ok = add_lock(l, line);
	if (f)
		fclose(f);
	return ok;
}

static bool is_listed_type(const char *type)
{
	static const char *const types[] = {"ext2", "ext3", "ext4", "xfs", "tmpfs", "ramfs", "f2fs", "jfs"};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

/* "36 35 98:0 /root /mount options... - type source superoptions" */
static bool read_mounts(struct listed *l)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool ok = f != NULL;
	char *line = NULL;
	size_t size = 0;

	while (ok && getline(&line, &size, f) > 0) {
		const char *dash = strstr(line, " - ");
		unsigned major, minor;
		char type[32];

		if (dash && sscanf(line, "%*d %*d %u:%u ", &major, &minor) == 2 &&
		    sscanf(dash, " - %31s", type) == 1 && is_listed_type(type))
			ok = add(&l->devices, &(struct entry){.dev = makedev(major, minor)});
	}
	free(line);
	if (f)
		fclose(f);
	return ok;
}

static bool is_first_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == FIRST_PID_NAMESPACE;
}

void listed_read_again(struct listed *l)
{
	l->known = l->known && read_locks(l);
	if (l->locks.count)
		qsort(l->locks.at, l->locks.count, sizeof(*l->locks.at), compare);
}

struct listed *listed_read(void)
{
	struct listed *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->known = is_first_namespace() && read_mounts(l);
	if (l->devices.count)
		qsort(l->devices.at, l->devices.count, sizeof(*l->devices.at), compare);
	listed_read_again(l);
	return l;
}

void listed_free(struct listed *l)
{
	if (!l)
		return;
	free(l->locks.at);
	free(l->devices.at);
	free(l);
}

enum listed_answer listed_ask(const struct listed *l, uint64_t dev, uint64_t ino, enum wire_space space)
{
	if (!l || !l->known || !has(&l->devices, &(struct entry){.dev = dev}))
		return LISTED_UNKNOWN;
	return has(&l->locks, &(struct entry){.ino = ino, .dev = dev, .space = space}) ? LISTED_SOME : LISTED_NONE;
}
