/* See probing.h. */
#include "keeper/leases/probing.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/fronts/away.h"
#include "keeper/kernel/getlk.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"

#define PAUSE_MS     100 /* pause after the kernel refused to tell, or to wait; doubles */
#define PAUSE_MAX_MS 5000

/* Is it enough that no process has the lock exclusively? Then the lease becomes shared, whatever else is wanted of it
 * later. */
static bool shared_will_do(const struct lease *lease)
{
	/* mutant: shared-will-do */
	return lease->range.mode == WIRE_EXCLUSIVE && lease->recalled.level >= RECALL_ASK && lease->recalled.shared &&
	       !lease->key; /* a key has no shared locks */
}

bool probe_waits_for_more(const struct lease *lease)
{
	return lease_is_probed(lease) && !lease->probed.want.shared_will_do && shared_will_do(lease);
}

/* The kernel will most likely refuse again what it refused once. */
static void ask_again_later(struct lease *lease, int error)
{
	lease->probed.pause_ms = lease->probed.pause_ms ? 2 * lease->probed.pause_ms : PAUSE_MS;
	if (lease->probed.pause_ms > PAUSE_MAX_MS)
		lease->probed.pause_ms = PAUSE_MAX_MS;
	log_about(LINE_PROBE_FAILED, &(struct log_about){.lock = lease->lock->file->name},
		  "%s: the kernel cannot tell whether it is in use: %s; trying again in %lld ms",
		  lease->lock->file->path, strerror(error), (long long)lease->probed.pause_ms);
	lease_start_timer(lease, lease->probed.pause_ms);
}

static void probe_said(struct lease *lease, enum probe_answer answer, int error, bool last)
{
	if (last) {
		lease->probed.probe = NULL;
		lease->probed.away = NULL;
	}
	if (answer == PROBE_FREE || answer == PROBE_SHARED)
		lease->probed.pause_ms = 0;
	if (last && lease->state == LEASE_STANDING)
		return queue_raise(lease, LEASE_CUE_STOPPED);
	switch (answer) {
	case PROBE_FREE:
		/* The lock is free, but a local caller needs the lease and no other host waits for it. */
		if (lease->state == LEASE_STOPPING && lease->recalled.level < RECALL_WAIT)
			return queue_raise(lease, LEASE_CUE_STOPPED);
		return queue_raise(lease, LEASE_CUE_FREE);
	case PROBE_SHARED:
		return queue_raise(lease, LEASE_CUE_SHARED);
	case PROBE_STOPPED:
		if (error && (lease->state == LEASE_PROBING || lease->state == LEASE_WAITING))
			return ask_again_later(lease, error);
		return queue_raise(lease, LEASE_CUE_STOPPED);
	case PROBE_IN_USE:
		if (last && lease->state == LEASE_STOPPING)
			return queue_raise(lease, LEASE_CUE_STOPPED);
		if (shared_will_do(lease) &&
		    !lease->probed.want.shared_will_do) /* the recall came after the probe was started */
			return queue_raise(lease, last ? LEASE_CUE_STOPPED : LEASE_CUE_NEEDED);
		if (lease->recalled.level < RECALL_RULE)
			return queue_raise(lease, LEASE_CUE_KEPT);
		/* The recall came after a probe for a mere question was started: starts a probe that waits. */
		return queue_raise(lease, last ? LEASE_CUE_STOPPED : LEASE_CUE_IN_USE);
	}
}

static void on_probe(void *arg, enum probe_answer answer, int error)
{
	struct lease *lease = arg;
	struct keeper *k = lease_keeper(lease);
	bool last = answer != PROBE_IN_USE || !lease->probed.want.wait;

	probe_said(lease, answer, error, last);
	if (last)
		waiters_serve(lease->lock); /* callers that waited for probes to stop (lock_stop_probes()) */
	queue_settle(k);
}

void lease_stop_probe(struct lease *lease)
{
	if (lease->probed.probe)
		probe_stop(lease->probed.probe);
	if (lease->probed.away)
		away_probe_stop(lease->probed.away);
}

bool lock_stop_probes(struct lock *lock, const struct store_range *range)
{
	struct lease *lease;
	bool ended = true;

	DL_FOREACH (lock->leases, lease) {
		if (!lease_is_probed(lease) || !range_overlaps(&lease->range, range))
			continue;
		queue_raise(lease, LEASE_CUE_NEEDED);
		ended = false;
	}
	return ended;
}

void lease_start_probe(struct lease *lease)
{
	const struct probe_want want = {.space = lease->range.space,
					.from = lease->range.from,
					.to = lease->range.to,
					.shared_will_do = shared_will_do(lease),
					.wait = lease->recalled.level >= RECALL_RULE,
					.local = lease->lock->file->local};

	if (lease_is_probed(lease)) /* an earlier one is stopping: its last answer starts this one */
		return;
	if (!file_is_open(lease->lock->file)) {
		reopen_to_probe(lease);
		return;
	}
	lease->probed.want = want;
	if (lease->lock->file->away)
		lease->probed.away = away_probe_start(lease->lock->file->away, &want, on_probe, lease);
	else
		lease->probed.probe =
			probe_start(lease_keeper(lease)->probes, lease->lock->file->fd, &want, on_probe, lease);
	if (!lease_is_probed(lease)) /* no thread could be started: tries again later */
		lease_start_timer(lease, 100);
}

int lock_in_the_way(const struct lease *lease, const struct store_range *wanted, struct store_range *in_use)
{
	const struct file *file = lease->lock->file;
	int found;

	*in_use = lease->range;
	if (lease->range.space != WIRE_RECORD || !file->local)
		return -1;
	found = getlk_ask(file->fd, wanted, in_use);
	return found == -EAGAIN ? 0 : found < 0 ? -1 : found;
}

/* A probe may have the lock on the same description at this moment: an attempt here would change that lock. */
static bool is_free_of_probes(const struct lock *lock)
{
	const struct lease *lease;

	DL_FOREACH (lock->leases, lease)
		if (lease_is_probed(lease))
			return false;
	return true;
}

bool lease_is_in_use(const struct lease *lease)
{
	const struct file *file = lease->lock->file;
	struct store_range all = lease->range, in_use;

	all.mode = WIRE_EXCLUSIVE;
	if (lease->range.space == WIRE_RECORD)
		return lock_in_the_way(lease, &all, &in_use) > 0;
	if (!file->local || file->fd < 0 || !is_free_of_probes(lease->lock))
		return false;
	/* A program that the kernel refuses because of this attempt asks the keeper, and gets the right answer. */
	if (flock(file->fd, LOCK_EX | LOCK_NB) != 0)
		return errno == EWOULDBLOCK;
	flock(file->fd, LOCK_UN);
	return false;
}
