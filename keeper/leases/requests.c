/* See requests.h. An answer may come late: the lease's state says what it still means. */
#include "keeper/leases/requests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/answers.h"
#include "keeper/clock.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/awaited.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/room.h"
#include "keeper/leases/waiters.h"
#include "keeper/log.h"
#include "store/words.h"

#define PACE_LEAST_MS 50
#define TAKEN_MOST_MS (INT64_MAX / NS_PER_MS / 2) /* 146 years; clients choose it */
#define PACE_SAME_NS  (20 * NS_PER_MS)            /* answers take now this long, now that */

#define REASK_EACH_MS  20 /* of a host's requests that wait, one in this time */
#define LIMIT_RETRY_MS 25 /* the first time, while unused ranges go back */

static void keep_blockers(struct lease *lease, const struct store_reply *reply)
{
	free(lease->asking.blockers);
	lease->asking.blocker_count = 0;
	lease->asking.blockers = malloc(reply->blocker_count * sizeof(*lease->asking.blockers));
	if (!lease->asking.blockers)
		return;
	memcpy(lease->asking.blockers, reply->blockers, reply->blocker_count * sizeof(*lease->asking.blockers));
	lease->asking.blocker_count = reply->blocker_count;
}

/*
 * Only a lost message makes it necessary to ask again, or a host that is to be called dead, which is asked about in time in any case. The server
 * looks at all requests of the name each time. So a host asks no more than so often in all; and behind very many hosts, the first of which ask,
 * each asks less often.
 */
static int64_t reask_after_ms(const struct lease *lease)
{
	struct keeper *k = lease_keeper(lease);
	const struct lease_states *states = &lease_member(lease)->states;
	const int64_t ttl_ms = k->config->lease.ttl_ms;
	int64_t each_ms = (int64_t)REASK_EACH_MS *
			  (states->count[WIRE_FLOCK][LEASE_ASKING] + states->count[WIRE_RECORD][LEASE_ASKING]);
	int64_t ms = deadline_reask_ms(k);

	if (lease->asking.blocker_count == STORE_MAX_BLOCKERS &&
	    lease->asking.blockers[STORE_MAX_BLOCKERS - 1].waiter && ms < ttl_ms / 3)
		ms = ttl_ms / 3;
	if (each_ms > ttl_ms)
		each_ms = ttl_ms;
	return each_ms > ms ? each_ms : ms; /* mutant: reask-many */
}

/* When to ask again: at a bounded interval, as soon as a silent host in the way may be named dead, and when the rest, or the
 * time of a client's key, is over (over_ms; 0 or less: there is none). */
static void plan_reask(struct lease *lease, int64_t over_ms)
{
	struct keeper *k = lease_keeper(lease);
	int64_t now = clock_now_ns();
	int64_t reask_ms = reask_after_ms(lease);
	int64_t at = now + (over_ms > 0 && over_ms < reask_ms ? over_ms : reask_ms) * NS_PER_MS;

	for (size_t i = 0; i < lease->asking.blocker_count; i++) {
		int64_t dead = watch_dead_at(lease_member(lease)->watch, lease->asking.blockers[i].host,
					     lease->asking.blockers[i].beat);

		if (dead < at)
			at = dead;
	}
	if (lease->range.mode == WIRE_SHARED || lease->range.space == WIRE_RECORD) {
		int64_t fair = lease->since_ns + k->config->lease.fair_ms * NS_PER_MS;

		if (fair > now && fair < at)
			at = fair;
	}
	lease_start_timer(lease, (at - now) / NS_PER_MS + 1); /* mutant: ask-again */
}

void lease_granted(struct lease *lease, uint64_t fence, int64_t from, int64_t to)
{
	lease->asking.fence = fence;
	lease->asking.from = from;
	lease->asking.to = to;
	queue_raise(lease, LEASE_CUE_GRANTED);
}

bool lease_take(struct lease *lease)
{
	struct member *m = lease_member(lease);
	const struct holders_file file = file_searched(lease->lock->file);

	/* The deadline may have passed since the last look. */
	deadline_sure_until(m);
	/* mutant: granted-late */
	if (m->deadline.expired) { /* granted while this host was silent: another host may have got it since */
		lease_acquire(lease, NULL, 0);
		return false;
	}
	lease->fence = lease->asking.fence;
	if (lease->asking.to) {
		lease->range.from = lease->asking.from;
		lease->range.to = lease->asking.to;
	}
	table_grant(m->keeper->table, lease->slot, lease->fence, &lease->range, &file); /* mutant: fence-recorded */
	if (lease->rest_ms || lease->key)
		lease_recall_by_rule(lease);
	return true;
}

int lease_begin(struct lock *lock, const struct store_range *range, uid_t uid, struct lease **out)
{
	struct lease *lease = lease_new(lock, range, uid);
	struct file *file = lock->file;
	const struct table_lease entry = {.token = lease ? lease->token : NULL,
					  .name = file->name,
					  .path = file->path,
					  .file = file_searched(file),
					  .range = *range,
					  .uid = uid,
					  .member = member_number(file->member),
					  .on_lost = config_rule_for(file->keeper->config, file->path).on_lost};
	int ret;

	if (!lease)
		return -ENOMEM;
	room_add(lease);
	ret = table_ask(file->keeper->table, &entry, &lease->slot);
	if (ret < 0)
		queue_raise(lease, LEASE_CUE_UNSENT);
	*out = ret < 0 ? NULL : lease;
	return ret;
}

static bool all_silent(const struct lease *lease, const struct store_reply *reply)
{
	for (size_t i = 0; i < reply->blocker_count; i++)
		if (reply->blockers[i].age_ms < lease_keeper(lease)->config->lease.dead_ms)
			return false;
	return true;
}

/* Notes what an answer showed of other hosts. */
static void see_hosts(struct member *m, const struct store_reply *reply)
{
	int64_t now = clock_now_ns();

	for (size_t i = 0; i < reply->blocker_count; i++)
		if (strcmp(reply->blockers[i].host, m->keeper->host) != 0)
			watch_see(m->watch, &reply->blockers[i], now);
}

/* The store refuses a part of a lease that is to be split. */
static void refuse_part(struct lease *part)
{
	log_about(LINE_STORE_REFUSED, &(struct log_about){.lock = part->lock->file->name},
		  "%s: the store refuses the parts of a lease: it is given back as a whole or not at all",
		  part->lock->file->name);
	queue_raise(part, LEASE_CUE_UNWANTED);
}

/* Unused ranges go back soon: this host's at once, those of other hosts after they have lingered. */
static void on_limit(struct lease *lease)
{
	const struct config_lease *config = &lease_keeper(lease)->config->lease;
	int64_t soon_ms = config->linger_ms < config->probe_ms ? config->linger_ms : config->probe_ms;
	int64_t patience_ms = waiters_block(lease) ? config->store_wait_ms : soon_ms;
	int64_t waited_ms = (clock_now_ns() - lease->since_ns) / NS_PER_MS;

	if (lease_is_part(lease))
		return refuse_part(lease);
	if (waited_ms < patience_ms) {
		room_make_in(lease->lock);
		lease_start_timer(lease, LIMIT_RETRY_MS + waited_ms / 2); /* mutant: limit-often */
		return;
	}
	waiters_refuse(lease, REFUSAL_ROOM,
		       "all hosts together hold or wait for 1,000 ranges of it, and there may be no more: lock "
		       "fewer or larger ranges");
}

/* Other hosts hold the lock, and the request only asked. */
static void on_busy(struct lease *lease, const struct store_reply *reply)
{
	/* Hosts that were silent for long may be dead: so the question must be put to them first, although others
	 * wait. */
	bool insist = !lease->asking.insist && all_silent(lease, reply);

	lease->asking.insist = lease->asking.insist || insist;
	if (insist || waiters_block(lease)) /* a caller that waits came while the question was under way */
		lease_acquire(lease, NULL, 0);
	else
		waiters_tell(lease, WAITER_IN_USE); /* these callers are its last: it will be unwanted */
}

/* Each caller that may wait in a circle asks the store anew: not at each answer do all others send their chases again. */
static bool tells_all(struct lease *lease)
{
	int64_t now = clock_now_ns();

	if (now - lease->asking.told_ns <
	    deadline_reask_ms(lease_keeper(lease)) * NS_PER_MS / 2) /* mutant: chase-all */
		return false;
	lease->asking.told_ns = now;
	return true;
}

/* The store has it in its queue. */
static void on_queued(struct lease *lease, const struct store_reply *reply, int64_t sent_ns)
{
	lease->asking.queued = true;
	keep_blockers(lease, reply);
	plan_reask(lease, !lease->asking.taken                                              ? reply->rest_ms
			  : reply->taken_ms >= 0 && reply->taken_ms < lease->asking.pace_ms ? reply->taken_ms + 1
											    : lease->asking.pace_ms);
	waiters_queued(lease, sent_ns, reply->arrival, tells_all(lease));
	answers_look(lease);
}

/* Nobody is asked for the lock, since no host has it: it rests, or a Redis client has its key. */
static void on_not_now(struct lease *lease, const struct store_reply *reply, int64_t sent_ns)
{
	if (reply->arrival)
		return on_queued(lease, reply, sent_ns);
	if (waiters_block(lease)) /* one that waits came while the question was under way */
		lease_acquire(lease, NULL, 0);
	else
		waiters_tell(lease, WAITER_RESTING); /* those are its last: it will be unwanted */
}

static void on_rest(struct lease *lease, const struct store_reply *reply, int64_t sent_ns)
{
	if (lease_is_part(lease))
		return refuse_part(lease);
	lease->asking.resting = true;
	on_not_now(lease, reply, sent_ns);
}

/* Clients that lock one after the other leave the key free for moments, of which no message tells where the server has no key
 * events. So a key that changed hands since the question before is asked for sooner the next time, and one that did not later:
 * a host asks about as often as clients lock, and no oftener. */
static void pace_question(struct lease *lease, const struct store_reply *reply, int64_t until_ns)
{
	int64_t most = deadline_reask_ms(lease_keeper(lease));
	bool same = strcmp(lease->asking.client, reply->client) == 0 &&
		    until_ns <= lease->asking.taken_until_ns + PACE_SAME_NS;

	if (!lease->asking.pace_ms)
		lease->asking.pace_ms = most;
	if (!*reply->client) /* nobody had it */
		return;
	lease->asking.pace_ms = same ? lease->asking.pace_ms * 2 : lease->asking.pace_ms / 2;
	if (lease->asking.pace_ms > most)
		lease->asking.pace_ms = most;
	if (lease->asking.pace_ms < PACE_LEAST_MS)
		lease->asking.pace_ms = PACE_LEAST_MS;
}

static void on_taken(struct lease *lease, const struct store_reply *reply, int64_t sent_ns)
{
	bool for_ever = reply->taken_ms < 0 || reply->taken_ms > TAKEN_MOST_MS;
	int64_t until_ns = for_ever ? 0 : clock_now_ns() + reply->taken_ms * NS_PER_MS;

	lease->asking.taken = true;
	pace_question(lease, reply, until_ns);
	lease->asking.taken_until_ns = until_ns;
	memcpy(lease->asking.client, reply->client, sizeof(lease->asking.client));
	if (reply->arrival && *reply->client) /* mutant: key-watch */
		store_watch_key(lease_member(lease)->store, lease->key);
	on_not_now(lease, reply, sent_ns);
}

static void take_acquire(struct lease *lease, const struct store_reply *reply, int64_t sent_ns)
{
	struct keeper *k = lease_keeper(lease);
	char why[WIRE_REASON_BYTES];

	lease->asking.resting = lease->asking.taken = false;
	switch (reply->status) {
	case STORE_OK:
		return lease_granted(lease, reply->fence, reply->from, reply->to);
	case STORE_WAIT:
		return on_queued(lease, reply, sent_ns);
	case STORE_REST:
		return on_rest(lease, reply, sent_ns);
	case STORE_TAKEN:
		return on_taken(lease, reply, sent_ns);
	case STORE_BUSY:
		return on_busy(lease, reply);
	case STORE_GRACE:
		waiters_refuse_nonblocking(lease, REFUSAL_GRACE,
					   "the store is in grace: it lost its memory or is new, and waits until "
					   "every old lease has run out; see `dflock status`");
		return lease_start_timer(lease, deadline_reask_ms(k));
	case STORE_LIMIT:
		return on_limit(lease);
	case STORE_GIVEN_UP:
		return lease_start_timer(lease, DEADLINE_HEARD_MS);
	case STORE_ERROR:
	case STORE_GONE:
		log_about(LINE_STORE_REFUSED, &(struct log_about){.lock = lease->lock->file->name},
			  "%s: the store refused: %s; see `dflock doctor`", lease->lock->file->name,
			  reply->error ? reply->error : "");
		if (lease_is_part(lease))
			return refuse_part(lease);
		return waiters_refuse(lease, REFUSAL_STORE, reply->error ? reply->error : "the store refused");
	case STORE_UNREACHABLE: /* LEASE_CUE_UP comes later */
		deadline_trouble(lease_member(lease), why, sizeof(why));
		return waiters_refuse_nonblocking(lease, REFUSAL_STORE, why);
	case STORE_INCARNATION: /* LEASE_CUE_FORGOTTEN comes at once */
		return;
	}
}

static void on_acquire(void *arg, const struct store_reply *reply)
{
	struct awaited *request = arg;
	struct member *m = lease_member(request->lease);
	bool beat = request->beat;
	struct lease *lease;
	int64_t sent_ns;

	deadline_notice(m->keeper);
	lease = awaited_end(request, &sent_ns);
	see_hosts(m, reply);
	if (beat && (reply->status == STORE_OK || reply->status == STORE_WAIT || reply->status == STORE_REST ||
		     reply->status == STORE_TAKEN || reply->status == STORE_BUSY))
		deadline_renewed(m, sent_ns);
	if (reply->status == STORE_GIVEN_UP)
		deadline_given_up(m, reply->arrival);
	if (lease->state == LEASE_ASKING) { /* else it is too late */
		/* The answer was too late to renew anything, or there was none. */
		lease->asking.lapsed = lease->asking.lapsed || m->deadline.expired;
		take_acquire(lease, reply, sent_ns);
	}
	queue_settle(m->keeper);
}

/*
 * The hosts to name dead: those in `silent`, then dead hosts that are known to be in the way, then other dead hosts,
 * which may turn out to be in the way. There may be more dead hosts than there is room.
 */
static size_t find_dead(const struct lease *lease, const struct store_blocker *silent, size_t silent_count, int64_t now,
			struct store_blocker dead[STORE_MAX_BLOCKERS])
{
	const struct watch *watch = lease_member(lease)->watch;
	size_t count = 0;

	while (count < silent_count && count < STORE_MAX_BLOCKERS) {
		dead[count] = silent[count];
		count++;
	}
	for (size_t i = 0; i < lease->asking.blocker_count && count < STORE_MAX_BLOCKERS; i++)
		if (watch_is_dead(watch, lease->asking.blockers[i].host, lease->asking.blockers[i].beat, now))
			dead[count++] = lease->asking.blockers[i];
	return count + watch_dead(watch, dead + count, STORE_MAX_BLOCKERS - count);
}

void lease_acquire(struct lease *lease, const struct store_blocker *silent, size_t silent_count)
{
	struct member *m = lease_member(lease);
	struct awaited *request;
	struct store_blocker dead[STORE_MAX_BLOCKERS];
	int64_t now = clock_now_ns();
	bool blocking = waiters_block(lease);
	/* In a kernel, a request that conflicts only with waiters passes: shared flocks, and any record lock. Not a request that
	 * begins a rest or has a key: such requests wait for a rest or a client, mostly longer than fair_ms, and get the lock in
	 * turn. */
	bool passes = !lease->rest_ms && !lease->key &&
		      (lease->range.mode == WIRE_SHARED || lease->range.space == WIRE_RECORD);
	char job[JOB_TEXT_BYTES];
	bool unfair = now - lease->since_ns >= m->keeper->config->lease.fair_ms * NS_PER_MS;
	struct store_acquire a = {
		.name = lease->lock->file->name,
		.file = lease->lock->file->inode,
		.token = lease->token,
		.job = job,
		.range = lease->range,
		.ask = !blocking,
		.insist = lease->asking.insist,
		.pass = !blocking || lease_is_part(lease) || waiters_may_pass(lease) ||
			(passes && unfair), /* mutant: pass */
		.grow = lease->range.space == WIRE_RECORD && !lease_is_part(lease),
		.rest_ms = lease->rest_ms,
		.key = lease->key,
		.dead = dead,
	};

	job_format(job, &lease->job);
	a.dead_count = find_dead(lease, silent, silent_count, now, dead);
	request = awaited_new(lease);
	request->beat = a.beat = !deadline_beats(m);
	store_acquire(m->store, &a, on_acquire, request);
}

void lease_ask_for_key(struct member *m, const char *key)
{
	struct lease *lease, *next;
	bool asked = false;

	HASH_ITER (hh, m->keeper->leases, lease, next)
		if (lease_member(lease) == m && lease->state == LEASE_ASKING && lease->asking.taken &&
		    lease->asking.queued && strcmp(lease->key, key) == 0) {
			lease_acquire(lease, NULL, 0);
			asked = true;
		}
	if (!asked)
		store_unwatch_key(m->store, key);
}

static void on_release(void *arg, const struct store_reply *reply)
{
	int64_t sent_ns;
	struct lease *lease = awaited_end(arg, &sent_ns);
	struct keeper *k = lease_keeper(lease);
	/* A lease without a fence, of which no caller was told, needs no release: the recall of an unknown token clears
	 * it. */
	bool done = reply->status == STORE_OK || (reply->status == STORE_ERROR && !lease->fence);

	if (lease->probed.early) { /* mutant: early-answer */
		lease->probed.early_refused = !done;
		queue_raise(lease, LEASE_CUE_FREE);
	}
	if (done)
		queue_raise(lease, LEASE_CUE_RELEASED);
	else if (reply->status == STORE_ERROR && !lease->probed.early)
		awaited_try_again(lease, "given back", reply);
	queue_settle(k);
}

static void on_shrink(void *arg, const struct store_reply *reply)
{
	int64_t sent_ns;
	struct lease *lease = awaited_end(arg, &sent_ns);
	struct keeper *k = lease_keeper(lease);

	if (reply->status == STORE_OK)
		queue_raise(lease, LEASE_CUE_SHRUNK);
	else if (reply->status == STORE_GONE)
		queue_raise(lease, LEASE_CUE_GONE);
	else if (reply->status == STORE_ERROR)
		awaited_try_again(lease, "shrunk to shared", reply);
	queue_settle(k);
}

void lease_send_release(struct lease *lease)
{
	store_release(lease_member(lease)->store, lease->lock->file->name, lease->token, !lease->spent, on_release,
		      awaited_new(lease));
}

struct store_shot *lease_prepare_release(struct lease *lease, struct awaited *awaited)
{
	return store_prepare_release(lease_member(lease)->store, lease->lock->file->name, lease->token, !lease->spent,
				     on_release, awaited);
}

void lease_send_shrink(struct lease *lease)
{
	store_shrink(lease_member(lease)->store, lease->lock->file->name, lease->token, on_shrink, awaited_new(lease));
}
