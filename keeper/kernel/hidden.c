/* See hidden.h. The maps of the processes are in mappers.c. */
#include "keeper/kernel/hidden.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* All of it is the key: no padding may differ. */
struct lock_key {
	uint64_t dev, ino;
	int64_t from, to;
	int32_t space, owner, mode, locker;
};

struct lock_set {
	struct lock_key key;
	UT_hash_handle hh;
};

static struct lock_key key_of(const struct procfs_lock *l)
{
	return (struct lock_key){.dev = l->dev,
				 .ino = l->ino,
				 .from = l->from,
				 .to = l->to,
				 .space = (int32_t)l->space,
				 .owner = (int32_t)l->owner,
				 .mode = (int32_t)l->mode,
				 .locker = l->locker};
}

static bool has(struct lock_set *set, const struct procfs_lock *lock)
{
	struct lock_key key = key_of(lock);
	struct lock_set *found;

	HASH_FIND(hh, set, &key, sizeof(key), found);
	return found != NULL;
}

static int add(struct lock_set **set, const struct procfs_lock *lock)
{
	struct lock_set *item;

	if (has(*set, lock))
		return 0;
	item = calloc(1, sizeof(*item));
	if (!item)
		return -ENOMEM;
	item->key = key_of(lock);
	HASH_ADD(hh, *set, key, sizeof(item->key), item);
	return 0;
}

static void empty(struct lock_set **set)
{
	struct lock_set *item, *next;

	HASH_ITER (hh, *set, item, next) {
		HASH_DEL(*set, item);
		free(item);
	}
}

static int add_result(struct hidden *hidden, const struct procfs_lock *lock)
{
	if (hidden->count == hidden->room) {
		size_t room = hidden->room ? 2 * hidden->room : 16;
		struct procfs_lock *more = realloc(hidden->locks, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		hidden->locks = more;
		hidden->room = room;
	}
	hidden->locks[hidden->count++] = *lock;
	return 0;
}

int hidden_begin(struct hidden *hidden, const struct holders_file *files, size_t count)
{
	*hidden = (struct hidden){.files = files, .file_count = count};
	return file_index_build(&hidden->index, files, count);
}

int hidden_seen(struct hidden *hidden, const struct procfs_lock *lock)
{
	return add(&hidden->seen, lock);
}

static int read_locks(struct hidden *hidden)
{
	FILE *f = fopen("/proc/locks", "re");
	struct procfs_lock lock;
	char line[224];
	int ret = f ? 0 : -errno;

	while (ret == 0 && fgets(line, sizeof(line), f))
		if (procfs_lock_line(line, &lock) &&
		    file_index_find(&hidden->index, lock.dev, lock.ino, FILE_NONE) != FILE_NONE &&
		    !has(hidden->seen, &lock))
			ret = add_result(hidden, &lock);
	if (f)
		fclose(f);
	return ret;
}

int hidden_end(struct hidden *hidden)
{
	bool again = hidden->before != NULL;
	size_t kept = 0;
	int ret;

	hidden->count = 0;
	ret = read_locks(hidden);
	empty(&hidden->seen);
	for (size_t i = 0; ret == 0 && i < hidden->count; i++)
		if (!again)
			ret = add(&hidden->before, &hidden->locks[i]);
		else if (has(hidden->before, &hidden->locks[i]))
			hidden->locks[kept++] = hidden->locks[i];
	if (again)
		hidden->count = kept;
	return ret;
}

void hidden_free(struct hidden *hidden)
{
	empty(&hidden->seen);
	empty(&hidden->before);
	file_index_free(&hidden->index);
	free(hidden->locks);
	*hidden = (struct hidden){0};
}
