/* See longwait.h. */
#include "keeper/callers/longwait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "keeper/callers/callers.h"
#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/event.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keynote.h"
#include "keeper/leases/locks.h"

#define LONGWAIT_HOSTS 256 /* bytes */

struct longwait {
	uv_timer_t timer;
	uint64_t warned;
};

/* The hosts that have leases in the way, as the store said when it was asked last; "": not known. */
static void longwait_hosts(const struct lease *lease, char out[LONGWAIT_HOSTS])
{
	size_t used = 0;

	out[0] = '\0';
	for (size_t i = 0; lease && i < lease->asking.blocker_count && used < LONGWAIT_HOSTS; i++)
		if (!lease->asking.blockers[i].waiter)
			used += (size_t)snprintf(out + used, LONGWAIT_HOSTS - used, "%s%s", used ? ", " : "",
						 lease->asking.blockers[i].host);
}

/* Who has the lock, and why the caller waits, as far as is known. */
static void longwait_why(const struct session *s, char holder[LONGWAIT_HOSTS], char why[WIRE_REASON_BYTES])
{
	const struct lease *lease = s->waiter.lease;

	longwait_hosts(lease, holder);
	if (s->away_ns)
		deadline_trouble(s->keeper, why, WIRE_REASON_BYTES);
	else if (s->state == SESSION_PINNED)
		snprintf(why, WIRE_REASON_BYTES, "a process of this host has it");
	else if (s->waiter.roomless)
		snprintf(why, WIRE_REASON_BYTES, "this keeper holds as many leases as it can");
	else if (lease && lease->asking.taken)
		keynote_taken(lease, why, WIRE_REASON_BYTES);
	else if (lease && lease->asking.resting)
		snprintf(why, WIRE_REASON_BYTES, "its rest is not over (at_least_ms)");
	else if (*holder)
		snprintf(why, WIRE_REASON_BYTES, "host %.200s has it", holder);
	else
		snprintf(why, WIRE_REASON_BYTES, "it waits for its turn");
	if (!*holder && s->state == SESSION_PINNED)
		snprintf(holder, LONGWAIT_HOSTS, "%.200s", s->keeper->host);
}

static void longwait_say(struct session *s, int64_t ms)
{
	const struct file *file = s->waiter.lock->file;
	char holder[LONGWAIT_HOSTS], why[WIRE_REASON_BYTES];

	longwait_why(s, holder, why);
	s->warned = true;
	s->keeper->longwait->warned++;
	event_raise(s->keeper,
		    &(struct event){.kind = EVENT_WAITED_TOO_LONG,
				    .name = file->name,
				    .path = file->path,
				    .range = &s->waiter.range,
				    .pids = &s->peer.pid,
				    .pid_count = 1,
				    .holder = holder,
				    .reason = why,
				    .for_ms = ms},
		    "pid %d has waited for %s (%s) for %lld ms: %s; `dflock status` shows who has it", (int)s->peer.pid,
		    file->name, file->path, (long long)ms, why);
}

static void longwait_look_at(struct session *s, int64_t now_ns)
{
	int64_t limit_ms, ms;

	if (s->warned || !s->waiter.lock || (s->state != SESSION_WAITING && s->state != SESSION_PINNED) ||
	    caller_is_nonblocking(s))
		return;
	limit_ms = s->waiter.lock->file->wait_warn_ms;
	ms = (now_ns - s->received_ns) / NS_PER_MS;
	if (limit_ms && ms >= limit_ms)
		longwait_say(s, ms);
}

static void on_longwait_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	int64_t now_ns = clock_now_ns();
	struct session *s;

	DL_FOREACH (k->sessions->all, s)
		longwait_look_at(s, now_ns);
}

uint64_t longwait_count(const struct keeper *k)
{
	return k->longwait->warned;
}

int longwait_start(struct keeper *k)
{
	struct longwait *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	k->longwait = w;
	uv_timer_init(k->loop, &w->timer);
	w->timer.data = k;
	return uv_timer_start(&w->timer, on_longwait_timer, LONGWAIT_LOOK_MS, LONGWAIT_LOOK_MS);
}

void longwait_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->longwait->timer, NULL);
}

void longwait_free(struct keeper *k)
{
	free(k->longwait);
	k->longwait = NULL;
}
