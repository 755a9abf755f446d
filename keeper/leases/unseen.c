/* See unseen.h. */
#include "keeper/leases/unseen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/kernel/census.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"

#define SOON_MS  100
#define LEAST_MS 1000 /* between two looks */
#define SHARE    20   /* after each look, a pause of so many times what the look took */
#define MOST     4096 /* leases in one look */

struct row {
	char token[STORE_TOKEN_BYTES];
	bool found;
	pid_t pid;
};

struct unseen_job {
	uv_work_t work;
	struct keeper *keeper;
	struct claims claims; /* tag: the row */
	struct row *rows;
	size_t count;
	pid_t self;
	int64_t begun_ns;
	int error;
};

static int unseen_on_holder(void *arg, const struct holder *h)
{
	struct unseen_job *job = arg;
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while (h->how != HOLDER_SHOWN && h->sight == SIGHT_BEYOND &&
	       (claim = claims_next(&job->claims, h->file, h->space, h->from, h->to, &next))) {
		struct row *row = &job->rows[claim->tag];

		row->pid = row->found ? row->pid : h->pid;
		row->found = true;
	}
	return 0;
}

static void unseen_work(uv_work_t *req)
{
	struct unseen_job *job = req->data;
	struct holders_search ask = {
		.ignore_pid = job->self, .how = HOLDERS_AT_ONCE, .cb = unseen_on_holder, .arg = job};

	job->error = claims_build(&job->claims);
	if (!job->error)
		job->error = census_take(&job->claims, &ask);
}

static void say(struct lease *lease, pid_t pid)
{
	const struct file *file = lease->lock->file;
	char who[64] = "a process that the keeper cannot find or may not look into";

	if (lease->unseen == UNSEEN_SAID)
		return;
	lease->unseen = UNSEEN_SAID;
	if (pid)
		snprintf(who, sizeof(who), "pid %d, which the keeper may not look into", (int)pid);
	log_about(LINE_NOT_STOPPABLE, &(struct log_about){.lock = file->name, .pid = pid},
		  "%s (%s): its lock is held by %s: it cannot be stopped if the store does not answer, and another "
		  "host may then get the lock; see \"unstoppable\" in dflock.conf(5)",
		  file->name, file->path, who);
}

static void unseen_look_in(struct keeper *k, int64_t ms);

static void unseen_looked(uv_work_t *req, int status)
{
	struct unseen_job *job = req->data;
	struct keeper *k = job->keeper;
	int64_t took = clock_now_ns() - job->begun_ns, pause = SHARE * took / NS_PER_MS;

	(void)status;
	for (size_t i = 0; !job->error && i < job->count; i++) {
		struct lease *lease = job->rows[i].found ? lease_find(k, job->rows[i].token) : NULL;

		if (lease)
			say(lease, job->rows[i].pid);
	}
	k->unseen.looking = false;
	k->unseen.not_before_ns = clock_now_ns() + (pause > LEAST_MS ? pause : LEAST_MS) * NS_PER_MS;
	if (k->unseen.due_count && !k->leaving)
		unseen_look_in(k, SOON_MS);
	claims_free(&job->claims);
	free(job->rows);
	free(job);
}

static void unseen_add(struct unseen_job *job, struct lease *lease)
{
	struct holders_file file = file_searched(lease->lock->file);

	if (claims_add(&job->claims, &file, lease->range.space, lease->range.from, lease->range.to, job->count) < 0)
		return;
	memcpy(job->rows[job->count++].token, lease->token, sizeof(lease->token));
}

static void unseen_look(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct unseen_job *job = calloc(1, sizeof(*job));
	struct lease *lease, *next;

	if (!job || !(job->rows = calloc(MOST, sizeof(*job->rows)))) {
		free(job);
		return;
	}
	*job = (struct unseen_job){.keeper = k, .rows = job->rows, .self = getpid(), .begun_ns = clock_now_ns()};
	job->work.data = job;
	k->unseen.due_count = 0;
	HASH_ITER (hh, k->leases, lease, next) {
		if (lease->unseen != UNSEEN_DUE)
			continue;
		if (job->count == MOST) {
			k->unseen.due_count++;
			continue;
		}
		lease->unseen = UNSEEN_LEFT_ALONE;
		unseen_add(job, lease);
	}
	if (job->count && uv_queue_work(k->loop, &job->work, unseen_work, unseen_looked) == 0) {
		k->unseen.looking = true;
		return;
	}
	claims_free(&job->claims);
	free(job->rows);
	free(job);
}

static void unseen_look_in(struct keeper *k, int64_t ms)
{
	int64_t left = (k->unseen.not_before_ns - clock_now_ns()) / NS_PER_MS + 1;

	uv_timer_start(&k->unseen.timer, unseen_look, (uint64_t)(left > ms ? left : ms), 0);
}

void unseen_due(struct lease *lease)
{
	struct keeper *k = lease->lock->file->keeper;

	if (lease->unseen != UNSEEN_LEFT_ALONE || k->leaving)
		return;
	lease->unseen = UNSEEN_DUE;
	k->unseen.due_count++;
	if (!k->unseen.looking && !uv_is_active((uv_handle_t *)&k->unseen.timer))
		unseen_look_in(k, SOON_MS);
}

void unseen_start(struct keeper *k)
{
	uv_timer_init(k->loop, &k->unseen.timer);
	k->unseen.timer.data = k;
}

void unseen_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->unseen.timer, NULL);
}
