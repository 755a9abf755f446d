/* See finding.h. */
#include "keeper/callers/finding.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/array.h"
#include "keeper/kernel/command.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/seeing.h"
#include "keeper/leases/survey.h"

struct finding_asker {
	finding_cb *cb;
	void *arg;
};

/* One search answers all that ask for the name before it begins: a host that asks again, since the answer was late, makes no
 * later ones. */
struct finding_search {
	struct survey survey; /* the first member; a claim's tag: since when there is the lease, Unix time */
	struct keeper *keeper;
	char name[LOCK_NAME_BYTES];
	UT_array askers; /* struct finding_asker */
	bool begun;
	struct finding_list calls; /* under way, that keep a lease which is wanted elsewhere */
	struct finding_list list;
	struct finding_search *prev, *next; /* k->findings */
};

static void finding_add(struct finding_list *list, const struct store_job *job, const struct store_range *range)
{
	if (list->shown < FINDING_MAX)
		list->items[list->shown++] = (struct finding){.job = *job, .range = *range};
	list->count++;
}

/* In a worker: only the search is touched. */
static int finding_on_holder(struct survey *survey, const struct holder *h)
{
	struct finding_search *search = (struct finding_search *)survey;
	const struct store_range range = {.space = h->space, .mode = h->mode, .from = h->from, .to = h->to};
	struct store_job job = {.pid = h->pid, .since = INT64_MAX};
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while ((claim = survey_claim(survey, h, &next)))
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

static int finding_end(struct survey *survey)
{
	struct finding_search *search = (struct finding_search *)survey;

	/* Else a call waits for a holder, or has ended. */
	if (!search->list.count) /* mutant: finding-calls */
		search->list = search->calls;
	return 0;
}

/* --- in the loop --- */

/* Nobody joins this search any more. */
static void finding_leave(struct finding_search *search)
{
	struct keeper *k = search->keeper;

	if (search->begun)
		return;
	search->begun = true;
	DL_DELETE(k->findings, search);
	k->finding_count -= utarray_len(&search->askers);
}

static void finding_done(struct survey *survey)
{
	struct finding_search *search = (struct finding_search *)survey;
	const struct finding_asker *asker = NULL;

	finding_leave(search);
	search->list.error = survey->error;
	while ((asker = utarray_next(&search->askers, asker)))
		asker->cb(asker->arg, &search->list);
	utarray_done(&search->askers);
	free(search);
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
static int finding_begin(struct survey *survey)
{
	struct finding_search *search = (struct finding_search *)survey;
	const struct lease *lease, *next;
	int ret = 0;

	finding_leave(search);
	HASH_ITER (hh, search->keeper->leases, lease, next) {
		struct holders_file file = file_searched(lease->lock->file);

		if (!lease_is_ours(lease->state) || strcmp(lease->lock->file->name, search->name) != 0)
			continue;
		ret = claims_add(&survey->claims, &file, lease->range.space, lease->range.from, lease->range.to,
				 (uint64_t)lease->held_at);
		if (ret)
			break;
		finding_add_calls(search, lease);
	}
	return ret;
}

static struct finding_search *finding_new(struct keeper *k, const char *name)
{
	struct finding_search *search = calloc(1, sizeof(*search));

	if (!search)
		return NULL;
	search->keeper = k;
	snprintf(search->name, sizeof(search->name), "%s", name);
	search->survey = (struct survey){
		.begin = finding_begin, .row = finding_on_holder, .end = finding_end, .done = finding_done};
	if (survey_ask(k, &search->survey) == 0) {
		DL_APPEND(k->findings, search);
		return search;
	}
	free(search);
	return NULL;
}

int finding_find(struct keeper *k, const char *name, finding_cb *cb, void *arg)
{
	const struct finding_asker asker = {.cb = cb, .arg = arg};
	struct finding_search *search;
	int ret;

	if (k->finding_count >= FINDING_QUEUE)
		return -EAGAIN;
	DL_FOREACH (k->findings, search)
		if (strcmp(search->name, name) == 0)
			break;
	if (!search)
		search = finding_new(k, name);
	ret = search ? array_push(&search->askers, &asker, sizeof(asker)) : -ENOMEM;
	if (ret == 0)
		k->finding_count++;
	return ret;
}
