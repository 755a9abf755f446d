/* See listed.h. */
#include "keeper/kernel/listed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "keeper/array.h"
#include "procfs/procfs.h"

#define FIRST_PID_NAMESPACE 0xeffffffcu /* inode number in nsfs of the first pid namespace: the same on every machine */

/* A lock, or a device: then ino is 0. */
struct listed_entry {
	uint64_t ino, dev;
	enum wire_space space;
};

struct listed {
	bool known;       /* the list can be trusted at all */
	UT_array locks;   /* sorted */
	UT_array devices; /* file systems for which the list can be trusted; sorted */
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

static bool listed_has(const UT_array *entries, const struct listed_entry *entry)
{
	return array_search(entries, entry, listed_compare) != NULL;
}

static int listed_on_lock(void *arg, const struct procfs_lock *lock)
{
	const struct listed_entry entry = {.dev = lock->dev, .ino = lock->ino, .space = lock->space};
	struct listed *l = arg;

	return array_push(&l->locks, &entry, sizeof(entry));
}

bool listed_is_trusted_type(const char *type)
{
	static const char *const types[] = {"ext2", "ext3", "ext4", "xfs", "tmpfs", "ramfs", "f2fs", "jfs"};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

static int listed_on_mount(void *arg, const struct procfs_mount *mount)
{
	const struct listed_entry entry = {.dev = mount->dev};
	struct listed *l = arg;

	return listed_is_trusted_type(mount->type) ? array_push(&l->devices, &entry, sizeof(entry)) : 0;
}

static bool listed_read_mounts(struct listed *l)
{
	FILE *table = procfs_mounts_open(0);
	bool ok = table && procfs_mounts(table, listed_on_mount, l) == 0;

	if (table)
		fclose(table);
	return ok;
}

static bool listed_is_first_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == FIRST_PID_NAMESPACE;
}

void listed_read_again(struct listed *l)
{
	l->known = l->known && procfs_locks(listed_on_lock, l) == 0;
	array_sort(&l->locks, listed_compare);
}

struct listed *listed_read(void)
{
	struct listed *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->known = listed_is_first_namespace() && listed_read_mounts(l);
	array_sort(&l->devices, listed_compare);
	listed_read_again(l);
	return l;
}

void listed_free(struct listed *l)
{
	if (!l)
		return;
	utarray_done(&l->locks);
	utarray_done(&l->devices);
	free(l);
}

enum listed_answer listed_ask(const struct listed *l, uint64_t dev, uint64_t ino, enum wire_space space)
{
	if (!l || !l->known || !listed_has(&l->devices, &(struct listed_entry){.dev = dev}))
		return LISTED_UNKNOWN;
	return listed_has(&l->locks, &(struct listed_entry){.ino = ino, .dev = dev, .space = space}) ? LISTED_SOME
												     : LISTED_NONE;
}
