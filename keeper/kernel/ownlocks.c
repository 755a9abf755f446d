/* See ownlocks.h. */
#include "keeper/kernel/ownlocks.h"

#include <errno.h>
#include <stdlib.h>

#include "keeper/kernel/holders.h"
#include "procfs/procfs.h"

static int own_add(struct own_locks *b, int64_t from, int64_t to, enum wire_mode mode)
{
	const struct own_lock held = {.from = from, .to = to, .mode = mode};

	return own_count(b) == OWN_LOCKS_MAX ? -E2BIG : array_push(&b->locks, &held, sizeof(held));
}

static int own_on_holder(void *arg, const struct holder *h)
{
	if (h->space != WIRE_RECORD || h->owner != WIRE_OWNER_PROCESS)
		return 0;
	return own_add(arg, h->from, h->to, h->mode);
}

static int own_on_lock(void *arg, const struct procfs_lock *lock)
{
	if (lock->space != WIRE_RECORD || lock->owner != WIRE_OWNER_DESCRIPTION)
		return 0;
	return own_add(arg, lock->from, lock->to, lock->mode);
}

static int own_by_start(const void *a, const void *b)
{
	const struct own_lock *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

static int own_sort(struct own_locks *before, int ret)
{
	array_sort(&before->locks, own_by_start);
	return ret;
}

int own_of_description(struct own_locks *before, int fd)
{
	*before = (struct own_locks){0};
	return own_sort(before, procfs_fdinfo_of(fd, NULL, own_on_lock, before));
}

int own_of_process(struct own_locks *before, pid_t pid, const struct holders_file *file)
{
	*before = (struct own_locks){0};
	return own_sort(before, holders_of_process(pid, file, own_on_holder, before));
}

bool own_is_quick(pid_t pid, const struct holders_file *file)
{
	return file_index_is_plain(file) && procfs_has_few(pid);
}

void own_free(struct own_locks *before)
{
	utarray_done(&before->locks);
	*before = (struct own_locks){0};
}

int own_copy(struct own_locks *before, const struct own_lock *held, size_t count)
{
	int ret = 0;

	*before = (struct own_locks){0};
	for (size_t i = 0; i < count && ret == 0; i++)
		ret = array_push(&before->locks, &held[i], sizeof(held[i]));
	return ret;
}

size_t own_count(const struct own_locks *before)
{
	return utarray_len(&before->locks);
}

const struct own_lock *own_locks_all(const struct own_locks *before)
{
	return array_items(&before->locks);
}

const struct own_lock *own_after(const struct own_locks *before, int64_t from)
{
	const struct own_lock *held = own_locks_all(before);

	for (size_t i = 0; i < own_count(before); i++)
		if (held[i].to > from)
			return &held[i];
	return NULL;
}

/* A "device" for workers_start(): no file system is asked, so the bound is per user. */
#define DEVICE_OF_USER(uid) (UINT64_C(1) << 63 | (uid))

struct own_job {
	struct work work; /* the first member */
	pid_t pid;
	struct holders_file file;
	own_cb *cb;
	void *arg;
	int ret;
	struct own_locks before;
};

static void own_run(struct work *work)
{
	struct own_job *job = (struct own_job *)work;

	job->ret = own_of_process(&job->before, job->pid, &job->file);
}

static void own_done(struct work *work)
{
	struct own_job *job = (struct own_job *)work;

	job->cb(job->arg, job->ret, &job->before);
	free(job);
}

int own_start(struct workers *workers, const struct ucred *peer, const struct holders_file *file, own_cb *cb, void *arg)
{
	struct own_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	*job = (struct own_job){
		.work = {.run = own_run, .done = own_done}, .pid = peer->pid, .file = *file, .cb = cb, .arg = arg};
	if (workers_start(workers, DEVICE_OF_USER(peer->uid), &job->work) == 0)
		return 0;
	free(job);
	return -ENOMEM;
}
