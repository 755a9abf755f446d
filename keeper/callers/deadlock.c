/*
 * See deadlock.h.
 *
 * Why no call fails that is in no cycle: every edge that a chase follows was true when it was followed (the kernel said
 * that the process holds a conflicting lock, or waits for one; the keeper saw it waiting), an edge of a process that waits stays true
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
#include "procfs/procfs_locks.h"

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

/* One chase that was received: a worker finds the processes that hold what it is after, and what calls wait for in the kernel. */
struct deadlock_search {
	uv_work_t work;
	struct keeper *keeper;
	struct store_chase chase;
	struct holders_file file;
	bool may_wait_here; /* calls may wait in this kernel */
	UT_array pids;      /* pid_t */
	UT_array waits;     /* struct procfs_lock */
};

bool deadlock_possible(const struct session *s)
{
	return s->request.op == WIRE_LOCK && s->request.space == WIRE_RECORD &&
	       s->request.owner == WIRE_OWNER_PROCESS && !(s->request.flags & WIRE_F_NONBLOCK);
}

static void deadlock_send_on(const struct lease *asking, const struct store_chase *chase)
{
	struct keeper *k = asking->lock->file->keeper;
	struct store_message m = {.kind = STORE_MSG_CHASE, .chase = *chase};

	snprintf(m.name, sizeof(m.name), "%s", asking->lock->file->name);
	m.chase.range = asking->range;
	for (size_t i = 0; i < asking->blocker_count; i++)
		if (!asking->blockers[i].waiter) /* this host's own: another file of the name, or at_least_ms */
			store_tell(k->store, asking->blockers[i].host, &m);
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

/* The process holds what the chase is after: sends the chase on to the hosts for which the process itself waits. */
static void deadlock_follow_out(struct keeper *k, pid_t pid, const struct store_chase *chase)
{
	struct session *s;

	DL_FOREACH (k->sessions->all, s) {
		struct store_chase next = *chase;

		if (s->peer.pid != pid || s->state != SESSION_WAITING || !deadlock_possible(s) || !s->waiter.lease ||
		    !s->waiter.arrival) /* its own chase is about to be sent */
			continue;
		if (s->waiter.arrival > next.youngest)
			next.youngest = s->waiter.arrival;
		deadlock_send_on(s->waiter.lease, &next);
	}
}

/* ... and to the local processes for which it waits in the kernel. */
static void deadlock_follow_here(const struct deadlock_search *search, pid_t pid, const struct store_chase *chase)
{
	const struct procfs_lock *waits = array_items(&search->waits);

	for (size_t i = 0; i < utarray_len(&search->waits); i++) {
		const struct procfs_lock *w = &waits[i];
		const struct store_range range = {.space = WIRE_RECORD, .mode = w->mode, .from = w->from, .to = w->to};
		const struct file *file = w->locker == pid ? file_find_by_id(search->keeper, w->dev, w->ino) : NULL;

		if (file)
			deadlock_search_start(search->keeper, &file->locks[WIRE_RECORD], &range, chase);
	}
}

static void deadlock_follow(const struct deadlock_search *search, pid_t pid)
{
	struct store_chase next = search->chase;
	struct keeper *k = search->keeper;

	if (pid == next.pid && strcmp(next.host, k->host) == 0) {
		deadlock_came_around(k, &next);
		return;
	}
	if (++next.hops >= DEADLOCK_HOPS)
		return;
	deadlock_follow_out(k, pid, &next);
	deadlock_follow_here(search, pid, &next);
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

static int deadlock_on_wait(void *arg, const struct procfs_lock *wait)
{
	struct deadlock_search *search = arg;

	return wait->owner == WIRE_OWNER_PROCESS ? array_push(&search->waits, wait, sizeof(*wait)) : 0;
}

/* The list of locks is not read without need (procfs_locks.h). */
static void deadlock_search_work(uv_work_t *req)
{
	struct deadlock_search *search = req->data;

	holders_search(&(struct holders_search){
		.files = &search->file, .count = 1, .ignore_pid = getpid(), .cb = deadlock_on_holder, .arg = search});
	if (search->may_wait_here && utarray_len(&search->pids))
		procfs_waits(deadlock_on_wait, search);
}

static void deadlock_searched(uv_work_t *req, int status)
{
	struct deadlock_search *search = req->data;
	const pid_t *pids = array_items(&search->pids);

	(void)status;
	for (size_t i = 0; i < utarray_len(&search->pids); i++)
		if (i == 0 || pids[i] != pids[i - 1]) /* the locks of one process come one after the other */
			deadlock_follow(search, pids[i]);
	queue_settle(search->keeper);
	utarray_done(&search->pids);
	utarray_done(&search->waits);
	free(search);
}

/* Only a call that a keeper has granted goes on to the kernel, and can wait there. */
static bool deadlock_calls_go_on(const struct keeper *k)
{
	const struct session *s;

	if (underway_any(&k->table->underway)) /* mutant: chase-net */
		return true;
	DL_FOREACH (k->sessions->all, s)
		if (s->state == SESSION_PINNED && deadlock_possible(s))
			return true;
	return false;
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
	search->may_wait_here = deadlock_calls_go_on(k);
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
