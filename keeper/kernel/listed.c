/* See listed.h. */
#include "keeper/kernel/listed.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "keeper/array.h"
#include "keeper/kernel/mountmap.h"
#include "procfs/procfs.h"

#define FIRST_PID_NAMESPACE 0xeffffffcu /* inode number in nsfs of the first pid namespace: the same on every machine */

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
	l->known = listed_is_first_namespace() && mountmap_refresh(&l->mounts) >= 0;
	listed_read_again(l);
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
