/*
 * See inquiry.h. The lease may end while a worker asks the kernel: it is looked up again by its token. The worker's
 * answer is only a hint for a caller that does not wait: a lock that the worker saw was there during the question, and
 * if it saw none, the recall goes on as usual, with a probe. So this file never decides which host has a lock.
 */
#include "keeper/leases/inquiry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/fronts/away.h"
#include "keeper/kernel/getlk.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/kernel/workers.h"

struct inquiry {
	struct work work; /* the first member */
	struct keeper *keeper;
	char token[STORE_TOKEN_BYTES];
	struct asker asker;
	int fd;
	int found; /* as kernel_lock_in_the_way() */
	struct store_range in_use;
	struct inquiry *prev, *next; /* keeper->inquiries.all */
};

static struct store_range as_range(const struct getlk *lock)
{
	return (struct store_range){.space = WIRE_RECORD, .mode = lock->mode, .from = lock->from, .to = lock->to};
}

static struct getlk as_getlk(const struct store_range *range)
{
	return (struct getlk){.mode = range->mode, .from = range->from, .to = range->to};
}

static int inquiry_look(int fd, const struct store_range *wanted, struct store_range *in_use)
{
	const struct getlk ask = as_getlk(wanted);
	struct getlk found;
	int ret = getlk_ask_again(fd, &ask, &found);

	if (ret == 1)
		*in_use = as_range(&found);
	return ret;
}

static void inquiry_run(struct work *work)
{
	struct inquiry *inquiry = (struct inquiry *)work;

	inquiry->found = inquiry_look(inquiry->fd, &inquiry->asker.range, &inquiry->in_use);
	close(inquiry->fd);
}

void inquiry_tell_in_use(const struct lease *lease, const struct asker *asker, const struct store_range *in_use)
{
	struct store_message m = {.kind = STORE_MSG_IN_USE, .range = *in_use};

	snprintf(m.name, sizeof(m.name), "%s", lease->lock->file->name);
	memcpy(m.token, asker->token, sizeof(m.token));
	store_tell(lease_keeper(lease)->store, asker->host, &m);
}

static void inquiry_answer(struct lease *lease, const struct inquiry *inquiry)
{
	const struct asker *asker = &inquiry->asker;

	if (inquiry->found == 0 || inquiry->found == -EAGAIN)
		inquiry->keeper->queue.work->asked(lease, asker);
	else
		inquiry_tell_in_use(lease, asker, inquiry->found > 0 ? &inquiry->in_use : &lease->range);
}

static void inquiry_finish(struct inquiry *inquiry)
{
	struct keeper *k = inquiry->keeper;
	struct lease *lease = k->leaving ? NULL : lease_find(k, inquiry->token);

	DL_DELETE(k->inquiries.all, inquiry);
	/* If the lease was given back meanwhile, the store grants the asker what it wants. If the keeper is leaving,
	 * there is no store any more. */
	if (lease && lease_is_ours(lease->state))
		inquiry_answer(lease, inquiry);
	free(inquiry);
	queue_settle(k);
}

static void inquiry_done(struct work *work)
{
	struct inquiry *inquiry = (struct inquiry *)work;

	inquiry->keeper->inquiries.count--;
	inquiry_finish(inquiry);
}

static void on_looked(void *arg, int found, const struct getlk *in_the_way)
{
	struct inquiry *inquiry = arg;

	inquiry->found = found;
	if (found > 0)
		inquiry->in_use = as_range(in_the_way);
	inquiry_finish(inquiry);
}

bool inquiry_needed(const struct lease *lease)
{
	const struct file *file = lease->lock->file;

	return lease->range.space == WIRE_RECORD && !file->local && file_is_open(file);
}

/* The same asker asks again, since it has had no answer so far. */
static bool is_running(const struct keeper *k, const struct lease *lease, const struct asker *asker)
{
	const struct inquiry *inquiry;

	DL_FOREACH (k->inquiries.all, inquiry)
		if (strcmp(inquiry->token, lease->token) == 0 && strcmp(inquiry->asker.token, asker->token) == 0)
			return true;
	return false;
}

static bool start_worker(struct inquiry *inquiry, const struct file *file)
{
	struct keeper *k = inquiry->keeper;

	inquiry->fd = k->inquiries.count < INQUIRIES_MAX ? fcntl(file->fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (inquiry->fd < 0)
		return false;
	if (workers_start(k->workers, file->key.dev, &inquiry->work) < 0) {
		close(inquiry->fd);
		return false;
	}
	k->inquiries.count++;
	return true;
}

bool inquiry_start(struct lease *lease, const struct asker *asker)
{
	struct keeper *k = lease_keeper(lease);
	const struct file *file = lease->lock->file;
	struct inquiry *inquiry;
	struct getlk wanted;

	if (is_running(k, lease, asker))
		return true;
	inquiry = calloc(1, sizeof(*inquiry));
	if (!inquiry)
		return false;
	*inquiry = (struct inquiry){.work = {.run = inquiry_run, .done = inquiry_done}, .keeper = k, .asker = *asker};
	memcpy(inquiry->token, lease->token, sizeof(inquiry->token));
	wanted = as_getlk(&asker->range);
	if (file->away ? !away_look(file->away, &wanted, on_looked, inquiry) : !start_worker(inquiry, file)) {
		free(inquiry);
		return false;
	}
	DL_APPEND(k->inquiries.all, inquiry);
	return true;
}
