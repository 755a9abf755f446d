/* See hidden.h. */
#include "keeper/kernel/hidden.h"

#include <errno.h>
#include <stdlib.h>

/* Without memory, leaves the lock out: uthash's default would end the process, which may be the keeper's parent. */
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(item) ((item)->added = false)
#include <uthash.h>

/* The whole struct is the key: padding must not differ. */
struct lock_key {
	uint64_t dev, ino;
	int64_t from, to;
	int32_t space, owner, mode, locker;
};

struct lock_set {
	struct lock_key key;
	bool added;
	UT_hash_handle hh;
};

static struct lock_key hidden_key(const struct procfs_lock *l)
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

static bool hidden_has(struct lock_set *set, const struct procfs_lock *lock)
{
	struct lock_key key = hidden_key(lock);
	struct lock_set *found;

	HASH_FIND(hh, set, &key, sizeof(key), found);
	return found != NULL;
}

static int hidden_add(struct lock_set **set, const struct procfs_lock *lock)
{
	struct lock_set *item;

	if (hidden_has(*set, lock))
		return 0;
	item = calloc(1, sizeof(*item));
	if (!item)
		return -ENOMEM;
	item->key = hidden_key(lock);
	item->added = true;
	HASH_ADD(hh, *set, key, sizeof(item->key), item);
	if (item->added)
		return 0;
	free(item);
	return -ENOMEM;
}

static void hidden_empty(struct lock_set **set)
{
	struct lock_set *item, *next;

	HASH_ITER (hh, *set, item, next) {
		HASH_DEL(*set, item);
		free(item);
	}
}

int hidden_begin(struct hidden *hidden, const struct holders_file *files, size_t count)
{
	*hidden = (struct hidden){.files = files, .file_count = count};
	return file_index_build(&hidden->index, files, count);
}

int hidden_seen(struct hidden *hidden, const struct procfs_lock *lock)
{
	return hidden_add(&hidden->seen, lock);
}

static int hidden_on_listed(void *arg, const struct procfs_lock *lock)
{
	struct hidden *hidden = arg;

	if (file_index_find(&hidden->index, lock->dev, lock->ino, FILE_NONE) == FILE_NONE ||
	    hidden_has(hidden->seen, lock))
		return 0;
	return array_push(&hidden->locks, lock, sizeof(*lock));
}

int hidden_end(struct hidden *hidden)
{
	const bool again = hidden->before != NULL;
	size_t kept = 0;
	int ret;

	array_cut(&hidden->locks, 0);
	ret = procfs_locks(hidden_on_listed, hidden);
	hidden_empty(&hidden->seen);
	for (size_t i = 0; ret == 0 && i < hidden_count(hidden); i++) {
		const struct procfs_lock *lock = hidden_lock(hidden, i);

		if (!again)
			ret = hidden_add(&hidden->before, lock);
		else if (hidden_has(hidden->before, lock))
			*(struct procfs_lock *)array_at(&hidden->locks, kept++) = *lock;
	}
	if (again)
		array_cut(&hidden->locks, kept);
	return ret;
}

size_t hidden_count(const struct hidden *hidden)
{
	return utarray_len(&hidden->locks);
}

const struct procfs_lock *hidden_lock(const struct hidden *hidden, size_t i)
{
	return array_at(&hidden->locks, i);
}

void hidden_free(struct hidden *hidden)
{
	hidden_empty(&hidden->seen);
	hidden_empty(&hidden->before);
	file_index_free(&hidden->index);
	utarray_done(&hidden->locks);
	*hidden = (struct hidden){0};
}
