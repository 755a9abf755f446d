/* See kernel.h. */
#include "keeper/kernel.h"

#include <string.h>
#include <sys/file.h>

#include "keeper/act.h"
#include "keeper/log.h"

#define RETRY_MS 1000 /* after the kernel refused to tell */

void lock_unprobe(struct lock *lock)
{
	if (!lock->probe_holds)
		return;
	flock(lock->file->fd, LOCK_UN);
	lock->probe_holds = false;
}

static void on_probe(void *arg, enum probe_answer answer, int error)
{
	struct lease *lease = arg;
	bool last = answer != PROBE_IN_USE || !lease->probe_waits;

	if (last)
		lease->probe = NULL;
	if (answer == PROBE_FREE || answer == PROBE_SHARED)
		lease->lock->probe_holds = true;
	if (last && lease->state == LEASE_UNSURE && lease->stands) {
		if (lease->lock->probe_holds)
			lease_raise(lease, LEASE_EV_FREE);
		return lease_raise(lease, LEASE_EV_STANDS);
	}
	switch (answer) {
	case PROBE_FREE:
		if (lease->state == LEASE_STOPPING && lease->recall < RECALL_WAIT) {
			/* Free, but a caller here needs it and nobody elsewhere does. */
			lock_unprobe(lease->lock);
			return lease_raise(lease, LEASE_EV_STOPPED);
		}
		return lease_raise(lease, LEASE_EV_FREE);
	case PROBE_SHARED:
		return lease_raise(lease, LEASE_EV_SHARED);
	case PROBE_STOPPED:
		if (error && lease->state == LEASE_PROBING) {
			log_error("%s: the kernel cannot tell whether it is in use: %s; trying again",
				  lease->lock->file->path, strerror(error));
			lease_start_timer(lease, RETRY_MS);
			return;
		}
		return lease_raise(lease, LEASE_EV_STOPPED);
	case PROBE_IN_USE:
		if (last && lease->state == LEASE_STOPPING)
			return lease_raise(lease, LEASE_EV_STOPPED);
		if (lease->recall != RECALL_WAIT)
			return lease_raise(lease, LEASE_EV_KEPT);
		/* A recall that came after a probe for a mere question was started: start one that waits. */
		return lease_raise(lease, last ? LEASE_EV_STOPPED : LEASE_EV_IN_USE);
	}
}

void lease_start_probe(struct lease *lease)
{
	bool shared_will_do = lease->range.mode == WIRE_EXCLUSIVE && lease->recall >= RECALL_ASK &&
			      lease->recall_mode == WIRE_SHARED;

	if (lease->probe) /* an earlier one is stopping: its last answer starts this one */
		return;
	lease->probe_waits = lease->recall == RECALL_WAIT;
	lease->probe = probe_start(lease_keeper(lease)->probes, lease->lock->file->fd, shared_will_do, lease->probe_waits,
				   on_probe, lease);
	if (!lease->probe) /* no thread to be had: again in a while */
		lease_start_timer(lease, 100);
}
