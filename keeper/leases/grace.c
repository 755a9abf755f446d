/* See grace.h. */
#include "keeper/leases/grace.h"

#include <stdio.h>
#include <string.h>

#include "keeper/leases/keeper.h"
#include "keeper/clock.h"
#include "keeper/leases/deadline.h"
#include "keeper/guard/table.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/leases/queue.h"

#define RECONNECT_MS   2000 /* as often as the store tries again */
#define GRACE_AGAIN_MS 100  /* until the shards are read */
#define SHARD_ASK_NS   (1000 * NS_PER_MS)

static void on_grace_timer(uv_timer_t *timer);

static void on_open(void *arg, const struct store_reply *reply)
{
	struct member *m = arg;

	if (reply->status != STORE_OK) {
		if (reply->status == STORE_ERROR)
			log_event(
				LINE_STORE_REFUSED,
				"grace cannot be ended, and no new locks are granted: %s; tried again, see `dflock doctor`",
				reply->error);
		uv_timer_start(&m->grace.timer, on_grace_timer, deadline_reask_ms(m->keeper), 0);
		return;
	}
	log_about(LINE_GRACE_OVER, &(struct log_about){.store = member_store(m)},
		  "grace is over: the store grants leases");
	queue_raise_all(m, LEASE_CUE_UP);
	queue_settle(m->keeper);
}

bool grace_may_end(struct member *m, int64_t (*left_ms)(const struct member *m))
{
	bool all = true;

	if (m != m->first)
		return m->first->agreed && store_is_up(m->first->store) && !store_in_grace(m->first->store);
	for (struct member *s = m + 1; s < m + m->config->shards; s++) {
		bool read = s->agreed && s->read_ns >= m->grace.since_ns; /* mutant: shard-read */

		all = all && read && (!store_in_grace(s->store) || left_ms(s) == 0); /* mutant: shard-watched */
		/* Not again at once: a new question would take the place of the one that is under way. */
		if (read || clock_now_ns() - s->asked_ns < SHARD_ASK_NS)
			continue;
		s->asked_ns = clock_now_ns();
		member_want(s);
		store_reread_record(s->store);
	}
	return all;
}

static void on_grace_timer(uv_timer_t *timer)
{
	struct member *m = timer->data;
	int64_t left = grace_left_ms(m);
	bool may_end;

	if (!store_is_up(m->store) || !store_in_grace(m->store))
		return; /* grace_store_is_up() or grace_begin() starts it again */
	/* This also reads the other shards, so that they are watched while this one is. */
	may_end = grace_may_end(m, grace_left_ms);
	if (left > 0) {
		uv_timer_start(timer, on_grace_timer, left + 1, 0);
		return;
	}
	if (!may_end) {
		uv_timer_start(timer, on_grace_timer, GRACE_AGAIN_MS, 0);
		return;
	}
	store_open(m->store, STORE_OPEN_WATCHED, "", on_open, m);
}

int64_t grace_beat_left_ms(const struct member *m)
{
	int64_t ttl_ms = m->keeper->config->lease.ttl_ms, beat_ms = ttl_ms / 3 + RECONNECT_MS;
	int64_t left = m->grace.since_ns + (beat_ms < ttl_ms ? beat_ms : ttl_ms) * NS_PER_MS - clock_now_ns();

	return left < 0 ? 0 : left / NS_PER_MS + 1; /* mutant: grace-beat */
}

int64_t grace_left_ms(const struct member *m)
{
	int64_t left = m->grace.since_ns + deadline_ttl_ns(m->keeper) - clock_now_ns();

	return left < 0 ? 0 : left / NS_PER_MS; /* mutant: grace-left */
}

void grace_store_is_up(struct member *m)
{
	if (store_in_grace(m->store))
		on_grace_timer(&m->grace.timer);
}

static void grace_forget(struct member *m, const char *old, const char *now)
{
	m->grace.losses++;
	log_about(LINE_STORE_MEMORY_LOST, &(struct log_about){.store = member_store(m)},
		  "the store lost its memory (incarnation %s was %s): %s; nothing new is granted until all old leases "
		  "have run out",
		  now, old,
		  m->deadline.expired ? "the leases of this host had run out" : "the leases of this host are put back");
	queue_raise_all(m, LEASE_CUE_FORGOTTEN);
}

void grace_begin(struct member *m, const char *old, const char *now)
{
	m->grace.since_ns = clock_now_ns();
	/* Connections may have survived it: then grace_store_is_up() does not follow. */
	/* mutant: grace-timer */
	uv_timer_start(&m->grace.timer, on_grace_timer, 1, 0);
	watch_clear(m->watch);
	watch_clear(m->sweeping);
	if (!*old)
		old = m->grace.taken_incarnation;
	if (*old && strcmp(old, now) != 0) {
		snprintf(m->grace.earlier_incarnation, sizeof(m->grace.earlier_incarnation), "%s", old);
		grace_forget(m, old, now);
	}
	m->grace.taken_incarnation[0] = '\0';
	table_set_incarnation(m->keeper->table, member_number(m), now);
}
