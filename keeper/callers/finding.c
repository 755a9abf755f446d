/* See finding.h. */
#include "keeper/callers/finding.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>
#include <uv.h>

#include "keeper/clock.h"
#include "keeper/kernel/comm.h"
#include "keeper/kernel/census.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/seeing.h"

#define PAUSE 2 /* times as long as a search ran on a processor: until the next one */

struct finding_search {
	uv_work_t work;
	struct keeper *keeper;
	char name[LOCK_NAME_BYTES];
	finding_cb *cb;
	void *arg;
	pid_t self;
	int64_t ran_ns;            /* on a processor */
	struct claims claims;      /* tag: since when there is the lease, Unix time */
	struct finding_list calls; /* under way, that keep a lease which is wanted elsewhere */
	struct finding_list list;
	struct finding_search *also;        /* others that asked for the name before this search began */
	struct finding_search *prev, *next; /* findings.waiting, or `also` of another */
};

struct finding_searches {
	struct finding_search *waiting;
	unsigned count; /* of those */
	bool running, stopped;
	int64_t not_before_ns; /* the next search */
	uv_timer_t timer;
};

static void finding_run(struct finding_searches *h);

/* --- in a worker: only the search is touched --- */

static void finding_add(struct finding_list *list, const struct store_job *job, const struct store_range *range)
{
	if (list->shown < FINDING_MAX)
		list->items[list->shown++] = (struct finding){.job = *job, .range = *range};
	list->count++;
}

static int finding_on_holder(void *arg, const struct holder *h)
{
	struct finding_search *search = arg;
	const struct store_range range = {.space = h->space, .mode = h->mode, .from = h->from, .to = h->to};
	struct store_job job = {.pid = h->pid, .since = INT64_MAX};
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while ((claim = claims_next(&search->claims, h->file, h->space, h->from, h->to, &next)))
		if ((int64_t)claim->tag < job.since)
			job.since = (int64_t)claim->tag;
	if (job.since == INT64_MAX)
		return 0;            /* past dflock, or of another range */
	if (h->how == HOLDER_MAPPER) /* one of many, perhaps, that may have it */
		return 0;
	if (job.since < h->started)
		job.since = h->started;
	if (h->pid)
		comm_read(h->pid, job.command);
	finding_add(&search->list, &job, &range);
	return 0;
}

/* Waiting for a processor does not count: on a busy machine the pauses would grow with it. */
static int64_t finding_ran_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void finding_work(uv_work_t *req)
{
	struct finding_search *search = req->data;
	struct holders_search ask = {.ignore_pid = search->self, .cb = finding_on_holder, .arg = search};
	int64_t before = finding_ran_ns();
	int ret = claims_build(&search->claims);

	if (ret == 0)
		ret = census_take(&search->claims, &ask);
	/* Else a call waits for a holder, or has ended. */
	if (ret == 0 && !search->list.count) /* mutant: finding-calls */
		search->list = search->calls;
	search->list.error = ret;
	search->ran_ns = finding_ran_ns() - before;
}

/* --- in the loop --- */

static void finding_tell(struct finding_search *search)
{
	struct finding_search *other, *next;

	search->cb(search->arg, &search->list);
	DL_FOREACH_SAFE (search->also, other, next) {
		other->cb(other->arg, &search->list);
		free(other);
	}
	claims_free(&search->claims);
	free(search);
}

static void finding_done(uv_work_t *req, int status)
{
	struct finding_search *search = req->data;
	struct keeper *k = search->keeper;
	struct finding_searches *h = k->finding_searches;

	(void)status;
	h->running = false;
	h->not_before_ns = clock_now_ns() + PAUSE * search->ran_ns;
	finding_tell(search);
	finding_run(h);
	queue_settle(k);
}

static void finding_add_calls(struct finding_search *search, const struct lease *lease)
{
	struct underway_call call;

	for (size_t next = 0; seeing_next_keeping(lease, &next, &call);) {
		const struct store_range range = {
			.space = lease->range.space, .mode = lease->range.mode, .from = call.from, .to = call.to};
		struct store_job job = {.pid = call.pid, .since = lease->held_at};

		comm_read(call.pid, job.command);
		finding_add(&search->calls, &job, &range);
	}
}

/* A lease that is asked for, or on its way back, has no holder. */
static void finding_add_claims(struct finding_search *search)
{
	const struct keeper *k = search->keeper;
	const struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next) {
		struct holders_file file = file_searched(lease->lock->file);

		if (!lease_is_ours(lease->state) || strcmp(lease->lock->file->name, search->name) != 0)
			continue;
		if (claims_add(&search->claims, &file, lease->range.space, lease->range.from, lease->range.to,
			       (uint64_t)lease->held_at) < 0)
			search->list.error = -ENOMEM;
		finding_add_calls(search, lease);
	}
}

/* One search answers all that wait for the name: a host that asks again, since the answer was late, makes no later ones. */
static struct finding_search *finding_take(struct finding_searches *h)
{
	struct finding_search *search = h->waiting, *other, *next;

	DL_DELETE(h->waiting, search);
	h->count--;
	DL_FOREACH_SAFE (h->waiting, other, next) {
		if (strcmp(other->name, search->name) != 0)
			continue;
		DL_DELETE(h->waiting, other);
		h->count--;
		DL_APPEND(search->also, other);
	}
	return search;
}

static void finding_begin(struct finding_searches *h)
{
	struct finding_search *search = finding_take(h);

	search->work.data = search;
	finding_add_claims(search);
	if (!search->list.error)
		search->list.error =
			uv_queue_work(search->keeper->loop, &search->work, finding_work, finding_done) ? -ENOMEM : 0;
	if (search->list.error)
		finding_tell(search);
	else
		h->running = true;
}

static void on_finding_timer(uv_timer_t *timer)
{
	finding_run(timer->data);
}

/* Never begins a search from inside finding_find(), whose caller expects no answer then. */
static void finding_plan(struct finding_searches *h, int64_t now)
{
	int64_t ms = (h->not_before_ns - now) / NS_PER_MS + 1;

	if (!h->running && !h->stopped && h->waiting && !uv_is_active((uv_handle_t *)&h->timer))
		uv_timer_start(&h->timer, on_finding_timer, (uint64_t)(ms > 0 ? ms : 0), 0);
}

static void finding_run(struct finding_searches *h)
{
	int64_t now = clock_now_ns();

	while (h->waiting && !h->running && !h->stopped && h->not_before_ns <= now)
		finding_begin(h);
	finding_plan(h, now);
}

int finding_find(struct keeper *k, const char *name, finding_cb *cb, void *arg)
{
	struct finding_searches *h = k->finding_searches;
	struct finding_search *search;

	if (h->stopped || h->count == FINDING_QUEUE)
		return -EAGAIN;
	search = calloc(1, sizeof(*search));
	if (!search)
		return -ENOMEM;
	search->keeper = k;
	search->cb = cb;
	search->arg = arg;
	search->self = getpid();
	snprintf(search->name, sizeof(search->name), "%s", name);
	DL_APPEND(h->waiting, search);
	h->count++;
	finding_plan(h, clock_now_ns());
	return 0;
}

int finding_start(struct keeper *k)
{
	struct finding_searches *h = k->finding_searches = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	uv_timer_init(k->loop, &h->timer);
	h->timer.data = h;
	return 0;
}

void finding_stop(struct keeper *k)
{
	struct finding_searches *h = k->finding_searches;

	if (!h)
		return;
	h->stopped = true;
	uv_close((uv_handle_t *)&h->timer, NULL);
	while (h->waiting) {
		struct finding_search *search = h->waiting;

		DL_DELETE(h->waiting, search);
		search->list.error = -ECANCELED;
		finding_tell(search);
	}
	h->count = 0;
}

void finding_free(struct keeper *k)
{
	free(k->finding_searches);
	k->finding_searches = NULL;
}
