/*
 * See inquiry.h. The lease may end while a worker asks the kernel: it is looked up again by its token. What the worker
 * says is no more than a hint for who does not wait: a lock that it saw has been there during the question, and where
 * it saw none, the recall takes its ordinary way, with a probe. So nothing of this decides who has a lock.
 */
#include "keeper/inquiry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/act.h"
#include "keeper/kernel.h"
#include "keeper/locks.h"
#include "keeper/workers.h"

#define PROBE_TRIES 20 /* a probe that waited has the lock for a moment (probe.c) */

struct inquiry {
	struct work work; /* the first member */
	struct keeper *keeper;
	char token[STORE_TOKEN_BYTES];
	struct asker asker;
	int fd;
	int found; /* as kernel_lock_in_the_way() */
	struct store_range in_use;
	struct inquiry *prev, *next; /* keeper->inquiries */
};

static void run(struct work *work)
{
	static const struct timespec pause = {.tv_nsec = 1000000};
	struct inquiry *inquiry = (struct inquiry *)work;

	for (int tries = 0; tries < PROBE_TRIES; tries++) {
		inquiry->found = kernel_lock_in_the_way(inquiry->fd, &inquiry->asker.range, &inquiry->in_use);
		if (inquiry->found != -EAGAIN)
			break;
		nanosleep(&pause, NULL);
	}
	close(inquiry->fd);
}

static void answer(struct lease *lease, const struct inquiry *inquiry)
{
	const struct asker *asker = &inquiry->asker;

	if (inquiry->found == 0 || inquiry->found == -EAGAIN)
		lease_recalled(lease, asker);
	else
		store_tell_in_use(inquiry->keeper->store, asker->host, lease->lock->file->name, asker->token,
				  inquiry->found > 0 ? &inquiry->in_use : &lease->range);
}

static void done(struct work *work)
{
	struct inquiry *inquiry = (struct inquiry *)work;
	struct keeper *k = inquiry->keeper;
	struct lease *lease = lease_find(k, inquiry->token);

	DL_DELETE(k->inquiries, inquiry);
	k->inquiry_count--;
	/* Given back meanwhile: then the store grants the asker what it wants. Leaving: there is no store any more. */
	if (!k->leaving && lease && lease_is_ours(lease->state)) {
		keeper_enter(k);
		answer(lease, inquiry);
		keeper_leave(k);
	}
	free(inquiry);
}

bool inquiry_needed(const struct lease *lease)
{
	const struct file *file = lease->lock->file;

	return lease->range.space == WIRE_RECORD && !file->local && file->fd >= 0;
}

/* One that asks again, since it has had no answer yet. */
static bool is_running(const struct keeper *k, const struct lease *lease, const struct asker *asker)
{
	const struct inquiry *inquiry;

	DL_FOREACH (k->inquiries, inquiry)
		if (strcmp(inquiry->token, lease->token) == 0 && strcmp(inquiry->asker.token, asker->token) == 0)
			return true;
	return false;
}

bool inquiry_start(struct lease *lease, const struct asker *asker)
{
	struct keeper *k = lease_keeper(lease);
	struct inquiry *inquiry;

	if (is_running(k, lease, asker))
		return true;
	inquiry = k->inquiry_count < INQUIRIES_MAX ? calloc(1, sizeof(*inquiry)) : NULL;
	if (!inquiry)
		return false;
	*inquiry = (struct inquiry){.work = {.run = run, .done = done}, .keeper = k, .asker = *asker};
	memcpy(inquiry->token, lease->token, sizeof(inquiry->token));
	inquiry->fd = fcntl(lease->lock->file->fd, F_DUPFD_CLOEXEC, 3);
	if (inquiry->fd < 0) {
		free(inquiry);
		return false;
	}
	DL_APPEND(k->inquiries, inquiry);
	k->inquiry_count++;
	if (workers_start(k->workers, lease->lock->file->key.dev, &inquiry->work) == 0)
		return true;
	DL_DELETE(k->inquiries, inquiry);
	k->inquiry_count--;
	close(inquiry->fd);
	free(inquiry);
	return false;
}
