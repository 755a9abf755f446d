/* See past.h. */
#include "keeper/leases/past.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/past_cover.h"
#include "keeper/leases/past_suspects.h"
#include "keeper/leases/touched.h"
#include "keeper/log.h"

#define SHARE        100 /* of the time: a look that took so long is followed by a pause of so many times that */
#define SLICE_NS     (2 * NS_PER_MS)
#define COMMANDS_MAX 16 /* read in one look: each may take COMMAND_WAIT_MS */

struct past_job {
	uv_work_t work;
	struct keeper *keeper;
	int error;
	int64_t took_ns;
	size_t next; /* to be judged */
	struct past_command {
		pid_t pid;
		char text[COMMAND_BYTES];
	} commands[COMMANDS_MAX];
	size_t command_count;
};

static int64_t past_thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* --- in a worker --- */

static void past_read_command(struct past_command *command)
{
	char name[32];
	int procfd;

	snprintf(name, sizeof(name), "/proc/%d", (int)command->pid);
	procfd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (procfd < 0)
		return;
	command_read(procfd, command->text);
	close(procfd);
}

static void past_work(uv_work_t *work)
{
	struct past_job *job = work->data;
	int64_t begun_ns = past_thread_ns();

	job->error = openers_look(&job->keeper->past.openers);
	for (size_t i = 0; i < job->command_count; i++)
		past_read_command(&job->commands[i]);
	job->took_ns = past_thread_ns() - begun_ns;
}

/* --- the judgement --- */

static void past_rest(struct keeper *k);

/* The first of the opener's paths that is protected, with its lock name. */
static const char *past_protected(const struct keeper *k, const struct opener *opener, char name[LOCK_NAME_BYTES])
{
	const char *path = opener->state == OPENER_FOUND ? opener->paths : NULL;

	for (; path && *path; path += strlen(path) + 1)
		if (config_lock_name(k->config, path, name) == 0)
			return path;
	return NULL;
}

/* Another link of the file is known, and protected. */
static const char *past_link_of(const struct keeper *k, const struct opener *opener, char name[LOCK_NAME_BYTES])
{
	const struct identity id = {.dev = opener->key.dev, .ino = opener->key.ino};
	const struct past_link *link = NULL;

	if (opener->state == OPENER_FOUND)
		HASH_FIND(hh, k->past.links, &id, sizeof(id), link);
	return link && config_lock_name(k->config, link->path, name) == 0 ? link->path : NULL;
}

static void past_judge(struct keeper *k, const struct openers_lock *lock)
{
	struct opener *opener = lock->opener;
	char name[LOCK_NAME_BYTES];
	const char *path = NULL, *linked = NULL;
	enum past_cover cover;

	if (opener->state == OPENER_NEW || opener->unused || (opener->checked && past_is_covered(k, lock)))
		return;
	if (!opener->checked || !opener->alien)
		path = past_protected(k, opener, name);
	if (!path)
		linked = past_link_of(k, opener, name);
	opener->alien = !path && !linked;
	opener->checked = true;
	opener->unused = !path && (opener->state != OPENER_FOUND || !page_covers(k->page, opener->key.dev));
	if (opener->alien)
		return;
	cover = past_cover_of(k, lock, name);
	if (cover != PAST_COVERED)
		suspects_found(k, lock, name, path ? path : opener->paths, linked, cover == PAST_NAKED);
}

static void on_past_confirmed(struct keeper *k)
{
	if (!k->past.confirming && !k->past.judging)
		past_rest(k);
}

static void past_take_commands(struct keeper *k, const struct past_job *job)
{
	struct suspect *s;

	for (size_t i = 0; i < job->command_count; i++)
		DL_FOREACH (k->past.suspects, s)
			if (s->pid == job->commands[i].pid && !*s->command)
				memcpy(s->command, job->commands[i].text, sizeof(s->command));
}

static void past_judged(struct keeper *k, struct past_job *job)
{
	past_take_commands(k, job);
	k->past.looks++;
	k->past.took_ns = job->took_ns;
	free(job);
	suspects_judged(k, on_past_confirmed);
	k->past.judging = false;
	on_past_confirmed(k);
}

/* A part of the judgement: nobody waits for it. */
static void past_judge_slice(uv_timer_t *timer)
{
	struct past_job *job = timer->data;
	struct keeper *k = job->keeper;
	const UT_array *locks = &k->past.openers.locks;
	int64_t begun_ns = clock_now_ns(), now_ns = begun_ns;

	while (job->next < utarray_len(locks) && now_ns - begun_ns < SLICE_NS) {
		past_judge(k, array_at(locks, job->next++));
		now_ns = clock_now_ns();
	}
	job->took_ns += now_ns - begun_ns;
	if (job->next < utarray_len(locks))
		uv_timer_start(timer, past_judge_slice, 1, 0);
	else
		past_judged(k, job);
}

static void on_past_looked(uv_work_t *work, int status)
{
	struct past_job *job = work->data;
	struct keeper *k = job->keeper;

	(void)status;
	k->past.looking = false;
	if (!k->past.on || k->leaving || job->error < 0) {
		if (job->error < 0 && job->error != -ECANCELED)
			log_debug("the locks of this machine cannot be looked at: %s", strerror(-job->error));
		k->past.took_ns = job->took_ns;
		free(job);
		past_rest(k);
		return;
	}
	k->past.listed = k->past.openers.listed;
	k->past.nowhere = k->past.openers.nowhere;
	k->past.over = k->past.openers.over;
	k->past.judging = true;
	k->past.timer.data = job;
	past_judge_slice(&k->past.timer);
}

/* --- when --- */

/* Of those that will be reported soon. */
static void past_want_commands(const struct keeper *k, struct past_job *job)
{
	const struct suspect *s;

	DL_FOREACH (k->past.suspects, s)
		if (!*s->command && job->command_count < COMMANDS_MAX)
			job->commands[job->command_count++].pid = s->pid;
}

static void past_look(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct past_job *job = calloc(1, sizeof(*job));

	if (job) {
		job->keeper = k;
		job->work.data = job;
		past_want_commands(k, job);
	}
	if (k->past.rules_changed)
		openers_begin_again(&k->past.openers);
	k->past.rules_changed = false;
	touched_begin(k);
	k->past.looking = job && uv_queue_work(k->loop, &job->work, past_work, on_past_looked) == 0;
	if (k->past.looking)
		return;
	free(job);
	past_rest(k);
}

static void past_rest(struct keeper *k)
{
	int64_t pause_ms = SHARE * k->past.took_ns / NS_PER_MS, least_ms;

	touched_end(k);
	k->past.timer.data = k;
	if (!k->past.on || k->leaving)
		return;
	least_ms = k->config->lease.past_look_ms;
	if (!least_ms)
		return;
	uv_timer_start(&k->past.timer, past_look, (uint64_t)(pause_ms > least_ms ? pause_ms : least_ms), 0);
}

void past_start(struct keeper *k, bool (*is_asking)(const struct keeper *k, pid_t pid))
{
	k->past.on = true;
	k->past.is_asking = is_asking;
	k->past.openers.leave = &k->past.leave;
	uv_timer_init(k->loop, &k->past.timer);
	k->past.timer.data = k;
	/* What is listed now was there before. */
	if (k->config->lease.past_look_ms)
		past_look(&k->past.timer);
}

static void past_forget_link(struct keeper *k, struct past_link *link)
{
	HASH_DEL(k->past.links, link);
	free(link->path);
	free(link);
}

void past_linked(struct keeper *k, const struct identity *id, const char *path)
{
	struct past_link *link;

	HASH_FIND(hh, k->past.links, id, sizeof(*id), link);
	if (link && strcmp(link->path, path) == 0)
		return;
	if (link)
		past_forget_link(k, link);
	else if (HASH_COUNT(k->past.links) >= PAST_LINKS)
		past_forget_link(k, k->past.links); /* the oldest */
	link = calloc(1, sizeof(*link));
	if (!link || !(link->path = strdup(path))) {
		free(link);
		return; /* nothing is reported then */
	}
	link->id = *id;
	HASH_ADD(hh, k->past.links, id, sizeof(link->id), link);
}

void past_rules_changed(struct keeper *k)
{
	k->past.rules_changed = true;
	if (k->past.on && !k->past.looking && !k->past.judging && !k->past.confirming)
		past_rest(k);
}

void past_stop(struct keeper *k)
{
	if (!k->past.on)
		return;
	k->past.on = false;
	__atomic_store_n(&k->past.leave, true, __ATOMIC_RELAXED);
	if (k->past.judging)
		free(k->past.timer.data);
	uv_close((uv_handle_t *)&k->past.timer, NULL);
}

void past_free(struct keeper *k)
{
	while (k->past.links)
		past_forget_link(k, k->past.links);
	touched_end(k);
	suspects_free(k);
	openers_free(&k->past.openers);
}
