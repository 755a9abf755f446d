/*
 * See recall.h. What is asked of an open lease, from top to bottom: an inquiry of the kernel where it may have to ask a file server, the hosts
 * that ask, the parts of a lease that is split, and the recall itself.
 *
 * An inquiry. The lease may end while a worker asks the kernel: it is looked up again by its token. The worker's
 * answer is only a hint for a caller that does not wait: a lock that the worker saw was there during the question, and
 * if it saw none, the recall goes on as usual, with a probe. So an inquiry never decides which host has a lock.
 */
#include "keeper/leases/recall.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/fronts/away.h"
#include "keeper/kernel/getlk.h"
#include "keeper/kernel/workers.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/waiters.h"

/* --- inquiries --- */

struct inquiry {
	struct work work; /* the first member */
	struct keeper *keeper;
	char token[STORE_TOKEN_BYTES];
	struct asker asker;
	int fd;
	int found; /* as getlk_ask_again() */
	struct store_range in_use;
	struct inquiry *prev, *next; /* keeper->inquiries.all */
};

static void inquiry_run(struct work *work)
{
	struct inquiry *inquiry = (struct inquiry *)work;

	inquiry->found = getlk_ask_again(inquiry->fd, &inquiry->asker.range, &inquiry->in_use);
	close(inquiry->fd);
}

static void tell_asker(const struct lease *lease, const struct asker *asker, const struct store_range *in_use)
{
	struct store_message m = {.kind = STORE_MSG_IN_USE, .range = *in_use};

	snprintf(m.name, sizeof(m.name), "%s", lease->lock->file->name);
	memcpy(m.token, asker->token, sizeof(m.token));
	store_tell(lease_member(lease)->store, asker->host, &m);
}

static void recalled(struct lease *lease, const struct store_range *range, const struct asker *asker);

static void inquiry_answer(struct lease *lease, const struct inquiry *inquiry)
{
	const struct asker *asker = &inquiry->asker;

	if (inquiry->found == 0 || inquiry->found == -EAGAIN)
		recalled(lease, &asker->range, asker);
	else
		tell_asker(lease, asker, inquiry->found > 0 ? &inquiry->in_use : &lease->range);
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

static void on_looked(void *arg, int found, const struct store_range *in_the_way)
{
	struct inquiry *inquiry = arg;

	inquiry->found = found;
	if (found > 0)
		inquiry->in_use = *in_the_way;
	inquiry_finish(inquiry);
}

/* Must the kernel be asked in a worker before this lease can say what is in the way? */
static bool inquiry_needed(const struct lease *lease)
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

/* True also if an inquiry of the same asker runs already. False: no memory, no descriptor, or too many run; then nothing was done. */
static bool inquiry_start(struct lease *lease, const struct asker *asker)
{
	struct keeper *k = lease_keeper(lease);
	const struct file *file = lease->lock->file;
	struct inquiry *inquiry;

	if (is_running(k, lease, asker))
		return true;
	inquiry = calloc(1, sizeof(*inquiry));
	if (!inquiry)
		return false;
	*inquiry = (struct inquiry){.work = {.run = inquiry_run, .done = inquiry_done}, .keeper = k, .asker = *asker};
	memcpy(inquiry->token, lease->token, sizeof(inquiry->token));
	if (file->away ? !away_look(file->away, &asker->range, on_looked, inquiry) : !start_worker(inquiry, file)) {
		free(inquiry);
		return false;
	}
	DL_APPEND(k->inquiries.all, inquiry);
	return true;
}

/* --- hosts that ask --- */

/* Notes an asker. If there are too many, or no memory, leaves it out: the asker's own limit ends its question. */
static void askers_add(struct lease *lease, const struct asker *asker)
{
	if (utarray_len(&lease->recalled.askers) < LEASE_MAX_ASKERS)
		array_push(&lease->recalled.askers, asker, sizeof(*asker));
}

void recall_tell_in_use(struct lease *lease)
{
	struct asker *askers = array_items(&lease->recalled.askers);
	unsigned kept = 0;

	for (unsigned i = 0; i < utarray_len(&lease->recalled.askers); i++) {
		const struct asker *asker = &askers[i];
		struct store_range in_use;

		if (inquiry_needed(lease) && inquiry_start(lease, asker))
			continue;
		/* None: it has just become free, and the probe has not said so yet. */
		if (lock_in_the_way(lease, &asker->range, &in_use) == 0)
			askers[kept++] = *asker;
		else
			tell_asker(lease, asker, &in_use);
	}
	array_cut(&lease->recalled.askers, kept);
	queue_tell_in_use(lease);
}

/* There is a shared lease now: the store has granted theirs. */
static void askers_forget_shared(struct lease *lease)
{
	struct asker *askers = array_items(&lease->recalled.askers);
	unsigned kept = 0;

	for (unsigned i = 0; i < utarray_len(&lease->recalled.askers); i++)
		if (askers[i].range.mode != WIRE_SHARED)
			askers[kept++] = askers[i];
	array_cut(&lease->recalled.askers, kept);
}

/* --- parts --- */

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static bool ask_for_piece(struct lease *whole, int64_t from, int64_t to)
{
	struct store_range range = whole->range;
	struct lease *piece;

	if (from >= to)
		return true;
	range.from = from;
	range.to = to;
	if (lease_begin(whole->lock, &range, whole->uid, &piece) < 0)
		return false;
	piece->split.whole = whole;
	piece->job = whole->job;
	lease_acquire(piece, NULL, 0);
	return true;
}

static void recall_as_a_whole(struct lease *whole)
{
	recall_split_done(whole);
	whole->recalled.level = RECALL_WAIT;
	whole->recalled.exclusive = true;
	queue_raise(whole, LEASE_CUE_RECALLED);
}

void recall_split_done(struct lease *whole)
{
	struct lease *piece;

	whole->split.running = false;
	DL_FOREACH (whole->lock->leases, piece) {
		if (piece->split.whole != whole)
			continue;
		piece->split.whole = NULL;
		if (piece->state == LEASE_ASKING && !waiters_exist(piece))
			queue_raise(piece, LEASE_CUE_UNWANTED);
		else if (lock_covered_without(piece))
			queue_raise(piece, LEASE_CUE_SUPERSEDED);
		else
			queue_obey(piece);
	}
}

void recall_piece_ended(struct lease *piece)
{
	struct lease *whole = piece->split.whole;

	piece->split.whole = NULL;
	recall_as_a_whole(whole);
}

/* As far as can be known at once, no local process uses any part of it: then all of it may go. */
static bool is_idle(const struct lease *lease)
{
	struct store_range all = lease->range, in_use;

	all.mode = WIRE_EXCLUSIVE;
	return lock_in_the_way(lease, &all, &in_use) == 0;
}

bool recall_split(struct lease *lease, const struct store_range *wanted, bool ask)
{
	int64_t from = later(lease->range.from, wanted->from), to = earlier(lease->range.to, wanted->to);
	struct store_range in_use;

	/* A lease for one lock, or with a key, excludes others of its own host: its parts would wait for it. */
	if (lease->rest_ms || lease->key)
		return false;
	/* mutant: split */
	if (lease->range.space != WIRE_RECORD || from >= to || (from == lease->range.from && to == lease->range.to))
		return false;
	/* Not now: the parts need the same mode as the lease, which may soon be shared, or gone. Tried again if the
	 * lease opens again. */
	if (lease->state == LEASE_SHRINKING || lease_is_unsure(lease->state))
		return false;
	if (ask && lock_in_the_way(lease, wanted, &in_use) > 0) {
		recall_tell_in_use(lease);
		return true;
	}
	/* A pin under the lease is pending, and its caller may want more than one of the parts. The split is tried
	 * again later. */
	if (waiters_need_pin(lease->lock, &lease->range))
		return false;
	if (is_idle(lease))
		return false;
	utarray_clear(&lease->recalled.askers); /* the store asks for the parts */
	if (lease->split.running)
		return true;
	lease->split.running = true;
	if (!ask_for_piece(lease, from, to) || !ask_for_piece(lease, lease->range.from, from) ||
	    !ask_for_piece(lease, to, lease->range.to))
		recall_as_a_whole(lease);
	return true;
}

/* --- the recall --- */

/* Where the keeper notes that a lease of this lock was given back. Locks may share a place: the earlier one is forgotten. */
static struct given_back *place_of(const struct lease *lease)
{
	const struct file_key *key = &lease->lock->file->key;
	struct keeper *k = lease_keeper(lease);

	return &k->given_back[(key->dev + key->ino * WIRE_SPACES + lease->lock->space) % GIVEN_BACK];
}

void recall_given_back(const struct lease *lease)
{
	if (lease->recalled.level == RECALL_WAIT)
		*place_of(lease) = (struct given_back){lease->lock->file->key, lease->since_ns};
}

void recall_granted(struct lease *lease)
{
	const struct given_back *last = place_of(lease);
	const struct file_key *key = &lease->lock->file->key;
	int64_t hold_ns = lease_keeper(lease)->config->lease.min_hold_ms * NS_PER_MS;

	if (last->file.dev == key->dev && last->file.ino == key->ino && lease->since_ns - last->since_ns < hold_ns)
		lease->recalled.keep_until_ns = clock_now_ns() + hold_ns;
}

static bool is_young(const struct lease *lease)
{
	return lease->state == LEASE_OPEN && clock_now_ns() < lease->recalled.keep_until_ns;
}

/* Too young to be given back to somebody who waits: the timer obeys. */
static bool is_kept(struct lease *lease)
{
	if (lease->recalled.level != RECALL_WAIT || !is_young(lease))
		return false;
	lease_start_timer(lease, (lease->recalled.keep_until_ns - clock_now_ns()) / NS_PER_MS + 1);
	return true;
}

void recall_obey(struct lease *lease)
{
	bool ask = lease->recalled.level == RECALL_ASK;

	if (lease->state != LEASE_OPEN || lease->recalled.level < RECALL_ASK || lease_is_part(lease) || is_kept(lease))
		return;
	if (!recall_split(lease, &lease->recalled.range, ask))
		queue_raise(lease, ask ? LEASE_CUE_ASKED : LEASE_CUE_RECALLED);
	else if (!lease->split.running) /* it was but a question, and is answered */
		lease->recalled.level = RECALL_NONE;
}

/* asker: only asks; NULL: another host waits for the range. */
static void recalled(struct lease *lease, const struct store_range *range, const struct asker *asker)
{
	enum recall_level level = asker ? RECALL_ASK : RECALL_WAIT;

	/* Asking: the store has granted it, but the answer comes through the other connection. */
	if (lease_is_ours(lease->state) || lease->state == LEASE_ASKING) {
		if (range->mode == WIRE_SHARED && lease->range.mode == WIRE_SHARED)
			return; /* late: it was shrunk meanwhile */
		if (asker)
			askers_add(lease, asker);
		if (lease_is_ours(lease->state) && !is_young(lease) && recall_split(lease, range, asker != NULL))
			return;
		if (!lease->recalled.since_ns)
			lease->recalled.since_ns = clock_now_ns();
		if (lease->recalled.level < RECALL_ASK) /* that of the others comes again, for the parts */
			lease->recalled.range = *range;
		if (lease->recalled.level < RECALL_ASK)
			lease->recalled.shared = lease->recalled.exclusive = false;
		*(range->mode == WIRE_SHARED ? &lease->recalled.shared : &lease->recalled.exclusive) = true;
		if (level > lease->recalled.level)
			lease->recalled.level = level;
		if (lease_is_part(lease))
			return; /* recall_split_done() obeys */
	}
	if (is_kept(lease))
		return;
	/* The probe that waits may be about to say that the lock has ended, before this was asked: a new one looks. Record locks can be
	 * looked at beside it. */
	if (lease->state == LEASE_WAITING && asker && lease_is_probed(lease) &&
	    (lease->recalled.level == RECALL_RULE || lease->range.space == WIRE_FLOCK)) /* mutant: asked-anew */
		return queue_raise(lease, LEASE_CUE_NEEDED);
	if (lease->state == LEASE_WAITING && probe_waits_for_more(lease))
		return queue_raise(lease, LEASE_CUE_NEEDED);
	queue_raise(lease, asker ? LEASE_CUE_ASKED : LEASE_CUE_RECALLED);
}

void lease_recall(struct lease *lease, const struct store_message *m)
{
	struct asker asker = {.range = m->range};

	memcpy(asker.host, m->asker, sizeof(asker.host));
	memcpy(asker.token, m->asker_token, sizeof(asker.token));
	if (m->ask)
		deadline_asked(lease_member(lease));
	/* Where nothing is in the way, recalled() follows. */
	if (m->ask && lease_is_ours(lease->state) && inquiry_needed(lease) && inquiry_start(lease, &asker))
		return;
	recalled(lease, &m->range, m->ask ? &asker : NULL);
}

static bool recall_is_served(const struct lease *lease, enum lease_cue event)
{
	if (event == LEASE_CUE_SHRUNK)
		return lease->recalled.level < RECALL_ASK || !lease->recalled.exclusive;
	return event == LEASE_CUE_KEPT &&
	       !utarray_len(&lease->recalled.askers); /* else it came before the lease was open */
}

void recall_opened(struct lease *lease, enum lease_cue event)
{
	if (event == LEASE_CUE_SHRUNK) { /* mutant: asked-shared */
		askers_forget_shared(lease);
		lease->recalled.shared = false;
	}
	if (!recall_is_served(lease, event))
		return;
	lease->recalled.level = RECALL_NONE;
	lease->recalled.since_ns = 0;
	utarray_clear(&lease->recalled.askers);
}
