/*
 * See deadlock.h.
 *
 * Why no call fails that is in no cycle: every edge that a chase follows was true when it was followed (the kernel said
 * that the process holds a conflicting lock, or waits for one; the keeper saw it waiting), an edge of a process that waits stays true
 * until its wait ends, and the process that sent the chase still waits with the same token when it comes back. Only a
 * wait that ended while the chase was on its way can make the cycle false: by EDEADLK, a signal, or the end of a
 * process. Then a call fails with EDEADLK that was in a cycle a round trip ago. The kernel's own EDEADLK says no more
 * when its caller reads it.
 *
 * One search at a time, of a part of the processes. Only a process that waits itself can be in a cycle, and every call that waits is known
 * here: its session waits for the store; or a keeper has granted it, and it went on into the kernel (a pin, a call under way). So a search
 * looks at the descriptors of these processes alone, and where there are none, there is no search. Chases that come while a search runs are
 * followed by the next one, all together, unless what they were after has left this host by then. Nothing is lost by that: the answer is
 * later by one search, and the call that waits repeats its chase.
 */
#include "keeper/callers/deadlock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/array.h"
#include "keeper/leases/deadline.h"
#include "keeper/clock.h"
#include "keeper/kernel/claims.h"
#include "keeper/kernel/holders.h"
#include "keeper/kernel/workers.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "keeper/rules/chases.h"
#include "procfs/procfs.h"

#define DEADLOCK_AT_ONCE (CHASES_SEEN / 2) /* so many of the calls that wait send a chase each time */

/* A chase, and the file on which it is followed here. */
struct deadlock_followed {
	struct store_chase chase;
	struct file_key key;
};

struct deadlock {
	struct chases chases;
	UT_array next;     /* struct deadlock_followed: for the next search */
	uint64_t followed; /* how many chases were */
	bool searching;
};

/* A process that holds what a chase is after. */
struct deadlock_row {
	pid_t pid;
	uint64_t chase; /* its index */
};

/* A worker finds out which of the processes that wait hold what the chases are after, and what calls wait for in the kernel. */
struct deadlock_search {
	struct work work; /* the first member */
	struct keeper *keeper;
	UT_array chases; /* struct deadlock_followed; a claim's tag is the index of its chase */
	struct claims claims;
	UT_array pids;      /* pid_t */
	bool may_wait_here; /* some of them may wait in this kernel */
	UT_array rows;  /* struct deadlock_row: those of a process one after the other; at the end those of a chase */
	UT_array waits; /* struct procfs_lock */
};

int deadlock_init(struct keeper *k)
{
	k->deadlock = calloc(1, sizeof(*k->deadlock));
	return k->deadlock ? 0 : -ENOMEM;
}

void deadlock_free(struct keeper *k)
{
	if (k->deadlock)
		utarray_done(&k->deadlock->next);
	free(k->deadlock);
	k->deadlock = NULL;
}

bool deadlock_possible(const struct session *s)
{
	return s->request.op == WIRE_LOCK && s->request.space == WIRE_RECORD &&
	       s->request.owner == WIRE_OWNER_PROCESS && !(s->request.flags & WIRE_F_NONBLOCK);
}

static void deadlock_send_on(const struct lease *asking, const struct store_chase *chase)
{
	struct store_message m = {.kind = STORE_MSG_CHASE, .chase = *chase};

	snprintf(m.name, sizeof(m.name), "%s", asking->lock->file->name);
	m.chase.range = asking->range;
	for (size_t i = 0; i < asking->asking.blocker_count; i++)
		if (!asking->asking.blockers[i].waiter) /* this host's own: another file of the name, or at_least_ms */
			store_tell(lease_member(asking)->store, asking->asking.blockers[i].host, &m);
}

/* By chance: if a host got more chases than it follows at a time, it would drop those of the same calls each time. */
static bool deadlock_has_its_turn(const struct keeper *k)
{
	unsigned waiting = k->sessions->waiting[WIRE_RECORD];

	return waiting <= DEADLOCK_AT_ONCE || (unsigned long)random() % waiting < DEADLOCK_AT_ONCE;
}

void deadlock_chase(struct session *s)
{
	struct store_chase chase = {.pid = s->peer.pid, .youngest = s->waiter.arrival};

	/* mutant: chase */
	if (!s->waiter.lease || !s->waiter.arrival || !deadlock_possible(s) || !deadlock_has_its_turn(s->keeper))
		return;
	snprintf(chase.host, sizeof(chase.host), "%s", s->keeper->host);
	snprintf(chase.token, sizeof(chase.token), "%s", s->waiter.lease->token);
	deadlock_send_on(s->waiter.lease, &chase);
}

/* The chase has come back to its sender: does the call that sent it still wait? */
static void deadlock_came_around(struct keeper *k, const struct store_chase *chase)
{
	struct lease *lease = lease_find(k, chase->token);
	struct waiter *w;

	if (!lease || lease->state != LEASE_ASKING)
		return;
	DL_FOREACH (lease->lock->waiters, w) {
		struct session *s = session_of_waiter(w);

		/* The call that began to wait last closed the cycle. */
		if (w->lease != lease || s->peer.pid != chase->pid || w->arrival != chase->youngest ||
		    !deadlock_possible(s)) /* mutant: chase-youngest */
			continue;
		log_about(LINE_DEADLOCK, &(struct log_about){.lock = lease->lock->file->name, .pid = s->peer.pid},
			  "%s: pid %d waits for itself over other hosts: EDEADLK", lease->lock->file->name,
			  (int)s->peer.pid);
		session_reply(s, WIRE_DEADLOCK, NULL, -1);
		return;
	}
}

/* Does the call wait for another host, so that the chase can go on from its process? Only the youngest call's chase counts when it
 * comes around, so one that meets a younger call need not go on. */
static bool deadlock_goes_on(const struct session *s, uint64_t youngest)
{
	return s->state == SESSION_WAITING && deadlock_possible(s) && s->waiter.lease &&
	       s->waiter.arrival &&           /* else its own chase is about to be sent */
	       s->waiter.arrival <= youngest; /* mutant: chase-younger */
}

static void deadlock_search_for(struct keeper *k, const struct file *file, const struct store_range *range,
				const struct store_chase *chase);

static int deadlock_by_pid(const void *a, const void *b)
{
	pid_t x = ((const struct deadlock_row *)a)->pid, y = ((const struct deadlock_row *)b)->pid;

	return x < y ? -1 : x > y;
}

/* By chase, and then by process. */
static int deadlock_by_chase(const void *a, const void *b)
{
	uint64_t x = ((const struct deadlock_row *)a)->chase, y = ((const struct deadlock_row *)b)->chase;

	return x < y ? -1 : x > y ? 1 : deadlock_by_pid(a, b);
}

/* The processes that hold the range which the chase asks for, without the process that sent the chase. */
struct deadlock_holders {
	const struct deadlock_row *rows; /* by pid */
	size_t count;
	pid_t sender; /* 0: it is on another host */
};

static bool deadlock_holds(const struct deadlock_holders *h, pid_t pid)
{
	const struct deadlock_row row = {.pid = pid};

	return pid != h->sender && bsearch(&row, h->rows, h->count, sizeof(row), deadlock_by_pid);
}

/* Sends the chase on to the hosts for which these processes wait: once for all that wait for one lease. */
static void deadlock_follow_out(struct keeper *k, const struct deadlock_holders *h, const struct store_chase *chase)
{
	uint64_t number = ++k->deadlock->followed;
	struct session *s;

	DL_FOREACH (k->sessions->all, s) {
		if (!deadlock_goes_on(s, chase->youngest) || s->waiter.lease->asking.chased == number ||
		    !deadlock_holds(h, s->peer.pid)) /* mutant: chase-each */
			continue;
		s->waiter.lease->asking.chased = number;
		deadlock_send_on(s->waiter.lease, chase);
	}
}

/* ... and to the local processes for which they wait in the kernel. */
static void deadlock_follow_here(const struct deadlock_search *search, const struct deadlock_holders *h,
				 const struct store_chase *chase)
{
	const struct procfs_lock *waits = array_items(&search->waits);

	for (size_t i = 0; i < utarray_len(&search->waits); i++) {
		const struct procfs_lock *w = &waits[i];
		const struct store_range range = {.space = WIRE_RECORD, .mode = w->mode, .from = w->from, .to = w->to};
		const struct file *file =
			deadlock_holds(h, w->locker) ? file_find_by_id(search->keeper, w->dev, w->ino) : NULL;

		if (file)
			deadlock_search_for(search->keeper, file, &range, chase);
	}
}

/* The rows of one chase. */
static void deadlock_follow(const struct deadlock_search *search, const struct deadlock_row *rows, size_t count)
{
	struct store_chase next = ((const struct deadlock_followed *)array_at(&search->chases, rows->chase))->chase;
	struct keeper *k = search->keeper;
	struct deadlock_holders h = {.rows = rows, .count = count};

	if (strcmp(next.host, k->host) == 0 && deadlock_holds(&h, next.pid)) {
		h.sender = next.pid;
		deadlock_came_around(k, &next);
	}
	if (++next.hops >= DEADLOCK_HOPS)
		return;
	deadlock_follow_out(k, &h, &next);
	deadlock_follow_here(search, &h, &next);
}

/* --- the search --- */

static bool deadlock_has_row(const struct deadlock_search *search, const struct deadlock_row *row)
{
	const struct deadlock_row *rows = array_items(&search->rows);

	for (size_t i = utarray_len(&search->rows); i > 0 && rows[i - 1].pid == row->pid; i--)
		if (rows[i - 1].chase == row->chase)
			return true;
	return false;
}

static int deadlock_on_holder(void *arg, const struct holder *h)
{
	struct deadlock_search *search = arg;
	const struct claim *claim;
	size_t next = SIZE_MAX;
	int ret = 0;

	if (h->owner != WIRE_OWNER_PROCESS)
		return 0;
	while (!ret && (claim = claims_next(&search->claims, h->file, h->space, h->from, h->to, &next))) {
		const struct deadlock_followed *f = array_at(&search->chases, claim->tag);
		const struct deadlock_row row = {.pid = h->pid, .chase = claim->tag};

		if ((h->mode == WIRE_EXCLUSIVE || f->chase.range.mode == WIRE_EXCLUSIVE) &&
		    !deadlock_has_row(search, &row))
			ret = array_push(&search->rows, &row, sizeof(row));
	}
	return ret;
}

static int deadlock_on_wait(void *arg, const struct procfs_lock *wait)
{
	struct deadlock_search *search = arg;

	return wait->owner == WIRE_OWNER_PROCESS ? array_push(&search->waits, wait, sizeof(*wait)) : 0;
}

/* The list of locks is not read without need (procfs.h). */
static void deadlock_search_work(struct work *work)
{
	struct deadlock_search *search = (struct deadlock_search *)work;

	if (claims_build(&search->claims) < 0)
		return;
	holders_search(&(struct holders_search){.files = search->claims.files,
						.count = search->claims.file_count,
						.pids = array_items(&search->pids),
						.pid_count = utarray_len(&search->pids),
						.cb = deadlock_on_holder,
						.arg = search});
	if (search->may_wait_here && utarray_len(&search->rows))
		procfs_waits(deadlock_on_wait, search);
}

static void deadlock_search_free(struct deadlock_search *search)
{
	utarray_done(&search->chases);
	claims_free(&search->claims);
	utarray_done(&search->pids);
	utarray_done(&search->rows);
	utarray_done(&search->waits);
	free(search);
}

static void deadlock_search_next(struct keeper *k);

static void deadlock_searched(struct work *work)
{
	struct deadlock_search *search = (struct deadlock_search *)work;
	struct keeper *k = search->keeper;

	const struct deadlock_row *rows = array_items(&search->rows);
	size_t count = utarray_len(&search->rows), first = 0;

	if (count)
		qsort(array_items(&search->rows), count, sizeof(*rows), deadlock_by_chase);
	for (size_t i = 1; i <= count; i++) {
		if (i < count && rows[i].chase == rows[first].chase)
			continue;
		deadlock_follow(search, &rows[first], i - first);
		first = i;
	}
	deadlock_search_free(search);
	k->deadlock->searching = false;
	deadlock_search_next(k);
	queue_settle(k);
}

static int deadlock_add_pid(struct deadlock_search *search, pid_t pid)
{
	const pid_t *pids = array_items(&search->pids);

	for (size_t i = 0; i < utarray_len(&search->pids); i++)
		if (pids[i] == pid)
			return 0;
	return array_push(&search->pids, &pid, sizeof(pid));
}

/* The processes that wait, as far as one of the chases may go on from them. 0 or -ENOMEM. */
static int deadlock_find_waiting(struct deadlock_search *search)
{
	const struct deadlock_followed *f = NULL;
	const struct keeper *k = search->keeper;
	struct underway_call call;
	uint64_t youngest = 0;
	struct session *s;
	int ret = 0;

	while ((f = utarray_next(&search->chases, f)))
		youngest = f->chase.youngest > youngest ? f->chase.youngest : youngest;
	DL_FOREACH (k->sessions->all, s) {
		/* Only a call that a keeper has granted goes on to the kernel, and can wait there. */
		bool here = s->state == SESSION_PINNED && deadlock_possible(s) && !session_has_hung_up(s);

		search->may_wait_here |= here;
		if (here || deadlock_goes_on(s, youngest))
			ret = deadlock_add_pid(search, s->peer.pid);
		if (ret)
			return ret;
	}
	for (size_t next = 0; !ret && underway_next(&k->table->underway, &next, &call);)
		if (call.space != WIRE_FLOCK) { /* mutant: chase-net */
			search->may_wait_here = true;
			ret = deadlock_add_pid(search, call.pid);
		}
	return ret;
}

/* May a process here still hold what the chase is after? */
static bool deadlock_is_ours(const struct lock *lock, const struct store_range *range)
{
	const struct lease *lease;

	DL_FOREACH (lock->leases, lease)
		if (lease_is_ours(lease->state) && range_overlaps(&lease->range, range))
			return true;
	return false;
}

/* What the search is for. 0 or -ENOMEM. */
static int deadlock_claim(struct deadlock_search *search)
{
	struct keeper *k = search->keeper;
	int ret = 0;

	for (size_t i = 0; !ret && i < utarray_len(&search->chases); i++) {
		const struct deadlock_followed *f = array_at(&search->chases, i);
		const struct store_range *range = &f->chase.range;
		const struct file *file = file_find(k, f->key.dev, f->key.ino);
		struct holders_file searched;

		if (!file || !deadlock_is_ours(&file->locks[WIRE_RECORD], range) ||
		    !chases_follow(&k->deadlock->chases, &f->chase, f->key.dev, f->key.ino, clock_now_ns(),
				   deadline_reask_ms(k) * NS_PER_MS / 2)) /* mutant: chase-over */
			continue;
		searched = file_searched(file);
		ret = claims_add(&search->claims, &searched, WIRE_RECORD, range->from, range->to, i);
	}
	return ret;
}

/* Chases for which there is no memory, or no room, are dropped: they are repeated, and may succeed then. */
static void deadlock_search_next(struct keeper *k)
{
	struct deadlock *d = k->deadlock;
	struct deadlock_search *search;

	if (d->searching || !utarray_len(&d->next)) /* mutant: chase-one */
		return;
	search = calloc(1, sizeof(*search));
	if (!search) {
		utarray_clear(&d->next);
		return;
	}
	search->keeper = k;
	search->work.run = deadlock_search_work;
	search->work.done = deadlock_searched;
	search->chases = d->next;
	d->next = (UT_array){0};
	if (deadlock_find_waiting(search) == 0 && utarray_len(&search->pids) && deadlock_claim(search) == 0 &&
	    claims_count(&search->claims))
		d->searching = workers_start(k->workers, WORKERS_DEADLOCK, &search->work) == 0;
	if (!d->searching)
		deadlock_search_free(search);
}

static void deadlock_search_for(struct keeper *k, const struct file *file, const struct store_range *range,
				const struct store_chase *chase)
{
	struct deadlock_followed f = {.chase = *chase, .key = file->key};

	f.chase.range = *range;
	if (utarray_len(&k->deadlock->next) < CHASES_SEEN)
		array_push(&k->deadlock->next, &f, sizeof(f));
	deadlock_search_next(k);
}

void deadlock_message(struct keeper *k, const struct store_message *m)
{
	struct file *file, *next;

	if (m->chase.range.space != WIRE_RECORD || m->chase.hops >= DEADLOCK_HOPS)
		return;
	HASH_ITER (hh, k->files, file, next)
		if (strcmp(file->name, m->name) == 0)
			deadlock_search_for(k, file, &m->chase.range, &m->chase);
}
