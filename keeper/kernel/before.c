/* See before.h. */
#include "keeper/kernel/before.h"

#include <errno.h>
#include <stdlib.h>

#include "keeper/kernel/holders.h"
#include "keeper/kernel/identity.h"
#include "procfs/procfs.h"

struct before_reading {
	struct before *before;
	enum wire_owner owner;
};

static int before_add(struct before *b, int64_t from, int64_t to, enum wire_mode mode)
{
	const struct held held = {.from = from, .to = to, .mode = mode};

	return before_count(b) == BEFORE_MAX ? -E2BIG : array_push(&b->locks, &held, sizeof(held));
}

static int before_on_holder(void *arg, const struct holder *h)
{
	struct before_reading *reading = arg;

	if (h->space != WIRE_RECORD || h->owner != reading->owner)
		return 0;
	return before_add(reading->before, h->from, h->to, h->mode);
}

static int before_on_lock(void *arg, const struct procfs_lock *lock)
{
	if (lock->space != WIRE_RECORD || lock->owner != WIRE_OWNER_DESCRIPTION)
		return 0;
	return before_add(arg, lock->from, lock->to, lock->mode);
}

static int before_by_start(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

int before_read(struct before *before, int fd, pid_t pid, enum wire_owner owner, const struct stat *st)
{
	struct before_reading reading = {.before = before, .owner = owner};
	int ret;

	*before = (struct before){0};
	if (owner == WIRE_OWNER_DESCRIPTION) {
		ret = procfs_fdinfo_of(fd, NULL, before_on_lock, before);
	} else {
		struct identity id = identity_of(fd, pid, st);
		struct holders_file file = {
			.dev = st->st_dev, .ino = st->st_ino, .kernel_dev = id.dev, .kernel_ino = id.ino};

		ret = holders_of_process(pid, &file, before_on_holder, &reading);
	}
	array_sort(&before->locks, before_by_start);
	return ret;
}

void before_free(struct before *before)
{
	utarray_done(&before->locks);
	*before = (struct before){0};
}

int before_copy(struct before *before, const struct held *held, size_t count)
{
	int ret = 0;

	*before = (struct before){0};
	for (size_t i = 0; i < count && ret == 0; i++)
		ret = array_push(&before->locks, &held[i], sizeof(held[i]));
	return ret;
}

size_t before_count(const struct before *before)
{
	return utarray_len(&before->locks);
}

const struct held *before_locks(const struct before *before)
{
	return array_items(&before->locks);
}

const struct held *before_after(const struct before *before, int64_t from)
{
	const struct held *held = before_locks(before);

	for (size_t i = 0; i < before_count(before); i++)
		if (held[i].to > from)
			return &held[i];
	return NULL;
}

/* A "device" for workers_start(): no file system is asked, so the bound is per user. */
#define DEVICE_OF_USER(uid) (UINT64_C(1) << 63 | (uid))

struct before_job {
	struct work work; /* the first member */
	pid_t pid;
	struct stat st;
	before_cb *cb;
	void *arg;
	int ret;
	struct before before;
};

bool before_are_few(pid_t pid)
{
	return procfs_has_few(pid, BEFORE_FEW);
}

static void before_run(struct work *work)
{
	struct before_job *job = (struct before_job *)work;

	job->ret = before_read(&job->before, -1, job->pid, WIRE_OWNER_PROCESS, &job->st);
}

static void before_done(struct work *work)
{
	struct before_job *job = (struct before_job *)work;

	job->cb(job->arg, job->ret, &job->before);
	free(job);
}

int before_start(struct workers *workers, const struct ucred *peer, const struct stat *st, before_cb *cb, void *arg)
{
	struct before_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	*job = (struct before_job){
		.work = {.run = before_run, .done = before_done}, .pid = peer->pid, .st = *st, .cb = cb, .arg = arg};
	if (workers_start(workers, DEVICE_OF_USER(peer->uid), &job->work) == 0)
		return 0;
	free(job);
	return -ENOMEM;
}
