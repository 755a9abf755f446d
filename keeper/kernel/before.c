/* See before.h. */
#include "keeper/kernel/before.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "keeper/kernel/holders.h"
#include "keeper/kernel/identity.h"

struct reading {
	struct before *before;
	enum wire_owner owner;
};

static int add(struct before *b, const struct holder *h)
{
	if (b->count == BEFORE_MAX)
		return -E2BIG;
	if (b->count == b->room) {
		size_t room = b->room ? 2 * b->room : 8;
		struct held *locks = realloc(b->locks, room * sizeof(*locks));

		if (!locks)
			return -ENOMEM;
		b->locks = locks;
		b->room = room;
	}
	b->locks[b->count++] = (struct held){.from = h->from, .to = h->to, .mode = h->mode};
	return 0;
}

static int on_holder(void *arg, const struct holder *h)
{
	struct reading *reading = arg;

	if (h->space != WIRE_RECORD || h->owner != reading->owner)
		return 0;
	return add(reading->before, h);
}

static int on_own_lock(void *arg, const struct procfs_lock *lock)
{
	const struct holder h = {.from = lock->from, .to = lock->to, .mode = lock->mode};

	if (lock->space != WIRE_RECORD || lock->owner != WIRE_OWNER_DESCRIPTION)
		return 0;
	return add(arg, &h);
}

static int read_description(struct before *before, int fd)
{
	struct procfs_text text = {0};
	char path[64];
	int ret;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	ret = procfs_read(AT_FDCWD, path, &text);
	if (ret == 0)
		ret = procfs_fdinfo(text.text, NULL, on_own_lock, before);
	free(text.text);
	return ret;
}

static int by_start(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

int before_read(struct before *before, int fd, pid_t pid, enum wire_owner owner, const struct stat *st)
{
	struct reading reading = {.before = before, .owner = owner};
	int ret;

	*before = (struct before){0};
	if (owner == WIRE_OWNER_DESCRIPTION) {
		ret = read_description(before, fd);
	} else {
		struct identity id = identity_of(fd, pid, st);
		struct holders_file file = {
			.dev = st->st_dev, .ino = st->st_ino, .kernel_dev = id.dev, .kernel_ino = id.ino};

		ret = holders_of_process(pid, &file, on_holder, &reading);
	}
	if (before->count)
		qsort(before->locks, before->count, sizeof(*before->locks), by_start);
	return ret;
}

void before_free(struct before *before)
{
	free(before->locks);
	*before = (struct before){0};
}

const struct held *before_after(const struct before *before, int64_t from)
{
	for (size_t i = 0; i < before->count; i++)
		if (before->locks[i].to > from)
			return &before->locks[i];
	return NULL;
}
