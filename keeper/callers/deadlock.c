/*
 * See deadlock.h.
 *
 * Why no call fails that is in no cycle: every edge that a chase follows was true when it was followed (the kernel said
 * that the process holds a conflicting lock; the keeper saw it waiting), an edge of a process that waits stays true
 * until its wait ends, and the process that sent the chase still waits with the same token when it comes back. Only a
 * wait that ended while the chase was on its way can make the cycle false: by EDEADLK, a signal, or the end of a
 * process. Then a call fails with EDEADLK that was in a cycle a round trip ago. The kernel's own EDEADLK says no more
 * when its caller reads it.
 */
#include "keeper/callers/deadlock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/array.h"
#include "keeper/leases/deadline.h"
#include "keeper/clock.h"
#include "keeper/kernel/holders.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "keeper/rules/chases.h"

struct deadlock {
	struct chases chases;
};

int deadlock_init(struct keeper *k)
{
	k->deadlock = calloc(1, sizeof(*k->deadlock));
	return k->deadlock ? 0 : -ENOMEM;
}

void deadlock_free(struct keeper *k)
{
	free(k->deadlock);
	k->deadlock = NULL;
}

/* One chase that was received: a worker finds the processes that hold what it is after. */
struct deadlock_search {
	uv_work_t work;
	struct keeper *keeper;
	struct store_chase chase;
	struct holders_file file;
	UT_array pids; /* pid_t */
};

bool deadlock_possible(const struct session *s)
{
	return s->request.op == WIRE_LOCK && s->request.space == WIRE_RECORD &&
	       s->request.owner == WIRE_OWNER_PROCESS && !(s->request.flags & WIRE_F_NONBLOCK);
}

static void deadlock_send_on(const struct lease *asking, struct store_chase *chase)
{
	struct keeper *k = asking->lock->file->keeper;

	snprintf(chase->name, sizeof(chase->name), "%s", asking->lock->file->name);
	chase->range = asking->range;
	for (size_t i = 0; i < asking->blocker_count; i++)
		if (!asking->blockers[i].waiter) /* this host's own: another file of the name, or at_least_ms */
			store_tell_chase(k->store, asking->blockers[i].host, chase);
}

void deadlock_chase(struct session *s)
{
	struct store_chase chase = {.pid = s->peer.pid, .youngest = s->waiter.arrival};

	if (!s->waiter.lease || !s->waiter.arrival || !deadlock_possible(s)) /* mutant: chase */
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

static void deadlock_search_start(struct keeper *k, const struct lock *lock, const struct store_range *range,
				  const struct store_chase *chase);

/* The process holds what the chase is after: sends the chase on to what the process itself waits for. */
static void deadlock_follow(struct keeper *k, pid_t pid, const struct store_chase *chase)
{
	struct session *s;

	if (pid == chase->pid && strcmp(chase->host, k->host) == 0) {
		deadlock_came_around(k, chase);
		return;
	}
	if (chase->hops + 1 >= DEADLOCK_HOPS)
		return;
	DL_FOREACH (k->sessions->all, s) {
		struct store_chase next = *chase;

		next.hops++;
		if (s->peer.pid != pid || !s->waiter.lock || !deadlock_possible(s))
			continue;
		if (s->state == SESSION_WAITING && s->waiter.lease &&
		    s->waiter.arrival) { /* else its own chase is about to be sent */
			if (s->waiter.arrival > next.youngest)
				next.youngest = s->waiter.arrival;
			deadlock_send_on(s->waiter.lease, &next);
		} else if (s->state == SESSION_PINNED && !session_has_hung_up(s)) {
			/* It may wait in the kernel for a local program. */
			deadlock_search_start(k, s->waiter.lock, &s->waiter.range, &next);
		}
	}
}

static int deadlock_on_holder(void *arg, const struct holder *h)
{
	struct deadlock_search *search = arg;
	const struct store_range *wanted = &search->chase.range;

	if (h->space != WIRE_RECORD || h->owner != WIRE_OWNER_PROCESS || h->from >= wanted->to ||
	    wanted->from >= h->to || (h->mode == WIRE_SHARED && wanted->mode == WIRE_SHARED))
		return 0;
	return array_push(&search->pids, &h->pid, sizeof(h->pid));
}

static void deadlock_search_work(uv_work_t *req)
{
	struct deadlock_search *search = req->data;

	holders_search(&(struct holders_search){
		.files = &search->file, .count = 1, .ignore_pid = getpid(), .cb = deadlock_on_holder, .arg = search});
}

static void deadlock_searched(uv_work_t *req, int status)
{
	struct deadlock_search *search = req->data;
	const pid_t *pids = array_items(&search->pids);

	(void)status;
	for (size_t i = 0; i < utarray_len(&search->pids); i++)
		if (i == 0 || pids[i] != pids[i - 1]) /* the locks of one process come one after the other */
			deadlock_follow(search->keeper, pids[i], &search->chase);
	queue_settle(search->keeper);
	utarray_done(&search->pids);
	free(search);
}

static void deadlock_search_start(struct keeper *k, const struct lock *lock, const struct store_range *range,
				  const struct store_chase *chase)
{
	struct deadlock_search *search;
	struct store_chase wanted = *chase;

	wanted.range = *range;
	if (!chases_follow(&k->deadlock->chases, &wanted, lock->file->key.dev, lock->file->key.ino, clock_now_ns(),
			   deadline_reask_ms(k) * NS_PER_MS / 2))
		return;
	search = calloc(1, sizeof(*search));
	if (!search)
		return; /* the chase is repeated, and may succeed then */
	search->work.data = search;
	search->keeper = k;
	search->chase = wanted;
	search->file = file_searched(lock->file);
	if (uv_queue_work(k->loop, &search->work, deadlock_search_work, deadlock_searched) != 0)
		free(search);
}

void deadlock_message(struct keeper *k, const struct store_message *m)
{
	struct file *file, *next;

	if (m->chase.range.space != WIRE_RECORD || m->chase.hops >= DEADLOCK_HOPS)
		return;
	HASH_ITER (hh, k->files, file, next)
		if (strcmp(file->name, m->name) == 0)
			deadlock_search_start(k, &file->locks[WIRE_RECORD], &m->chase.range, &m->chase);
}
