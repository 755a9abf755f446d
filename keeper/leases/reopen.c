/*
 * See reopen.h. Three steps, each in a worker (refind.h), and after each the loop decides about the next:
 *
 *   PATH    opens what the path leads to, if it is the file
 *   SEARCH  for all files that could not be opened: looks for them in all processes, and reads the list of locks
 *   OPEN    opens what SEARCH has found
 *
 * Why "none is listed" may give the lease back (promise 2): the list is read after the lease was closed and its last pin
 * had ended (`since_ns` of PROBING is before `started_ns` of the job). A process that relies on a kernel lock had it
 * before its pin ended, or took it while the page showed the lease, which was closed before; so the list has it. A process
 * that takes the kernel lock later asks again. Unlike a probe, this holds nothing; see probing.c on records, where it is
 * the same.
 */
#include "keeper/leases/reopen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/clock.h"
#include "keeper/kernel/refind.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"
#include "keeper/kernel/workers.h"

#define UNUSED_MS    100 /* pause before a second look at a lease that seems unused */
#define PAUSE_MS     100 /* pause before a second look at a lease that another host waits for; doubles */
#define PAUSE_MAX_MS 5000
#define PAUSE_TIMES  10                 /* at least as long as the look took */
#define SLOW_NS      (1000 * NS_PER_MS) /* after this time without an answer a file system counts as hanging */

enum step { STEP_NONE, STEP_PATH, STEP_WAIT, STEP_SEARCH, STEP_OPEN };

struct reopen {
	struct work work; /* the first member */
	struct keeper *keeper;
	struct file *file; /* NULL: freed meanwhile; only the job refers to this now */
	enum step step;
	int64_t started_ns;  /* the first step */
	struct refind found; /* the worker's, during a step */
	bool local;
	char *path; /* STEP_PATH */
	bool said;
	char trouble[160];
	struct reopen *prev, *next; /* keeper->reopens.searched: STEP_WAIT, or of one search */
};

struct reopen_search {
	struct work work; /* the first member */
	struct keeper *keeper;
	struct reopen *wanted; /* a list */
	struct refind **files; /* of each of them */
	size_t count;
};

/* --- workers --- */

static void run_path(struct work *work)
{
	struct reopen *r = (struct reopen *)work;

	refind_by_path(&r->found, r->path);
}

static void run_open(struct work *work)
{
	refind_open(&((struct reopen *)work)->found);
}

static void run_search(struct work *work)
{
	struct reopen_search *search = (struct reopen_search *)work;

	refind_search(search->files, search->count);
}

/* --- the loop --- */

static void free_reopen(struct reopen *r)
{
	refind_end(&r->found);
	free(r->path);
	free(r);
}

static bool is_free(const struct reopen *r, enum wire_space space)
{
	return r->found.fd < 0 && r->found.listed[space] == LISTED_NONE;
}

static void note_trouble(struct reopen *r)
{
	static const char *const known[] = {[LISTED_UNKNOWN] = "; whether a process holds a lock on it cannot be known",
					    [LISTED_NONE] = "",
					    [LISTED_SOME] = "; a process holds a lock on it"};
	enum listed_answer worst = r->found.listed[0] == LISTED_NONE ? r->found.listed[1]
								     : r->found.listed[0]; /* unknown is so for both */

	if (r->found.error)
		snprintf(r->trouble, sizeof(r->trouble), "its file cannot be opened (%s)%s", strerror(r->found.error),
			 known[worst]);
	else
		snprintf(r->trouble, sizeof(r->trouble),
			 "no path leads to its file, nor does a process that the keeper may look into%s", known[worst]);
}

static void say_trouble(struct reopen *r)
{
	if (r->said)
		return;
	r->said = true;
	log_about(LINE_LEASE_KEPT, &(struct log_about){.lock = r->file->name},
		  "%s: its lease is kept: %s; tried again when the lease is wanted elsewhere or has been unused for a "
		  "while",
		  r->file->path, reopen_trouble(r->file));
}

/* The lease is being probed, and there is no description to probe it with. */
static void reopen_answer(struct reopen *r, struct lease *lease)
{
	int64_t took_ms = (clock_now_ns() - r->started_ns) / NS_PER_MS;

	if (r->started_ns <= lease->since_ns) { /* the list is from before the lease was closed: looks again */
		lease_start_timer(lease, 1);
	} else if (is_free(r, lease->lock->space)) {
		queue_raise(lease, LEASE_CUE_FREE);
	} else {
		say_trouble(r);
		lease->probed.pause_ms = lease->probed.pause_ms ? 2 * lease->probed.pause_ms : PAUSE_MS;
		if (lease->probed.pause_ms > PAUSE_MAX_MS)
			lease->probed.pause_ms = PAUSE_MAX_MS;
		if (lease->probed.pause_ms < took_ms * PAUSE_TIMES)
			lease->probed.pause_ms = took_ms * PAUSE_TIMES;
		queue_raise(lease, lease->recalled.level >= RECALL_RULE ? LEASE_CUE_IN_USE : LEASE_CUE_KEPT);
	}
}

static void tell_lease(struct reopen *r, struct lease *lease)
{
	if (lease_is_probed(lease) || !lease_is_ours(lease->state))
		return;
	if (lease->state == LEASE_PROBING) {
		reopen_answer(r, lease);
	} else if (is_free(r, lease->lock->space)) {
		/* The lease was not closed at the time of the search, but it will not be used for long. */
		lease->linger_ns = UNUSED_MS * NS_PER_MS;
		if (lease->state == LEASE_OPEN && lease->recalled.level < RECALL_RULE)
			lease_start_timer(lease, UNUSED_MS);
	} else {
		say_trouble(r);
	}
}

static void tell_leases(struct reopen *r)
{
	struct file *file = r->file;
	struct lease *lease;

	for (int i = 0; i < WIRE_SPACES; i++)
		DL_FOREACH (file->locks[i].leases, lease)
			tell_lease(r, lease);
}

static void reopen_finish(struct reopen *r)
{
	struct file *file = r->file;
	int fd = r->found.fd;

	r->step = STEP_NONE;
	if (!file || r->keeper->leaving || file_is_open(file)) { /* a caller has brought one meanwhile */
		if (fd >= 0)
			file_close(r->keeper, r->found.dev, fd, r->local);
		r->found.fd = -1;
		if (!file)
			free_reopen(r);
		return;
	}
	if (fd < 0) {
		note_trouble(r);
		tell_leases(r);
		return;
	}
	file->fd = fd;
	if (r->said)
		log_about(LINE_LEASE_NOT_KEPT, &(struct log_about){.lock = file->name}, "%s: can be opened again",
			  file->path);
	file_opened(file);
}

static void start_search(struct keeper *k);

static void on_done(struct work *work)
{
	struct reopen *r = (struct reopen *)work;
	struct keeper *k = r->keeper;

	if (!r->file || r->found.fd >= 0 || r->step != STEP_PATH) {
		reopen_finish(r);
	} else {
		r->step = STEP_WAIT;
		DL_APPEND(k->reopens.searched, r);
		start_search(k);
	}
	queue_settle(k);
}

static bool start_step(struct reopen *r, enum step step)
{
	r->step = step;
	r->work = (struct work){.run = step == STEP_PATH ? run_path : run_open, .done = on_done};
	return workers_start(r->keeper->workers, r->local ? WORKERS_PATHS : r->found.dev, &r->work) == 0;
}

static void on_searched(struct work *work)
{
	struct reopen_search *search = (struct reopen_search *)work;
	struct keeper *k = search->keeper;
	struct reopen *r, *next;

	k->reopens.searching = false;
	DL_FOREACH_SAFE (search->wanted, r, next) {
		DL_DELETE(search->wanted, r);
		if (!r->file || r->found.path_fd < 0)
			reopen_finish(r);
		else if (r->local) { /* does not block */
			refind_open(&r->found);
			reopen_finish(r);
		} else if (!start_step(r, STEP_OPEN))
			reopen_finish(r);
	}
	free(search->files);
	free(search);
	start_search(k);
	queue_settle(k);
}

/* One at a time, for all that wait for one. */
static void start_search(struct keeper *k)
{
	struct reopen_search *search;
	struct reopen *r;

	if (k->reopens.searching || !k->reopens.searched)
		return;
	search = calloc(1, sizeof(*search));
	if (search) {
		*search = (struct reopen_search){.work = {.run = run_search, .done = on_searched}, .keeper = k};
		DL_COUNT(k->reopens.searched, r, search->count);
		search->files = calloc(search->count, sizeof(struct refind *));
	}
	if (!search || !search->files)
		abort(); /* these leases could never be given back: a fresh keeper does better */
	search->count = 0;
	DL_FOREACH (k->reopens.searched, r) {
		r->step = STEP_SEARCH;
		search->files[search->count++] = &r->found;
	}
	search->wanted = k->reopens.searched;
	k->reopens.searched = NULL;
	k->reopens.searching = true;
	if (workers_start(k->workers, WORKERS_REFIND, &search->work) < 0)
		abort();
}

/* No memory: as if there were no job; the next caller that needs it tries again. */
static struct reopen *get_reopen(struct file *file)
{
	struct reopen *r = file->reopen ? file->reopen : calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	if (!file->reopen) {
		r->keeper = file->keeper;
		r->file = file;
		refind_init(&r->found, file->key.dev, file->key.ino);
		r->local = file->local;
	}
	file->reopen = r;
	return r;
}

void reopen_file(struct file *file)
{
	struct reopen *r = !file_is_open(file) ? get_reopen(file) : NULL;
	char *path;

	if (!r || r->step != STEP_NONE)
		return;
	path = strdup(file->path); /* it may have changed */
	if (!path)
		return;
	free(r->path);
	r->path = path;
	r->started_ns = clock_now_ns();
	refind_begin(&r->found);
	if (!start_step(r, STEP_PATH))
		r->step = STEP_NONE;
}

void reopen_to_probe(struct lease *lease)
{
	struct file *file = lease->lock->file;

	reopen_file(file);
	lease_start_timer(lease, PAUSE_MAX_MS); /* LEASE_CUE_STOPPED, and so here again, if no answer comes */
	if (file->reopen && reopen_trouble(file))
		say_trouble(file->reopen);
}

const char *reopen_trouble(const struct file *file)
{
	const struct reopen *r = file->reopen;

	if (file_is_open(file) || !r)
		return NULL;
	if (r->step != STEP_NONE && clock_now_ns() - r->started_ns > SLOW_NS)
		return "its file system has not answered the keeper";
	return *r->trouble ? r->trouble : NULL;
}

void reopen_forget(struct file *file)
{
	struct reopen *r = file->reopen;

	if (!r)
		return;
	file->reopen = NULL;
	r->file = NULL;
	if (r->step == STEP_NONE)
		free_reopen(r);
}
