/* See past.h. */
#include "keeper/leases/past.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/touched.h"
#include "keeper/log.h"
#include "procfs/procfs.h"

#define SHARE         100 /* of the time: a look that took so long is followed by a pause of so many times that */
#define SURVEY_SHARE  20  /* ditto, a survey: until the next one */
#define SLICE_NS      (2 * NS_PER_MS)
#define SOUGHT_MAX    1024                 /* in one look */
#define SEEK_AGAIN_NS (600000 * NS_PER_MS) /* it may have been renamed */

/* A survey looks for a descriptor that shows the lock. */
struct past_wanted {
	struct past_known *known;
	struct procfs_lock lock;
	pid_t pid; /* 0: none is found */
	int fd;
	char command[COMMAND_BYTES];
	char *paths; /* mountmap_paths(); NULL: a keeper's, deleted, or a file that our mount namespace does not have */
	bool plain;
};

static void past_rest(struct keeper *k);

/* --- the list, in a worker --- */

static int past_on_listed(void *arg, const struct procfs_lock *lock)
{
	struct past *p = arg;

	return p->lines++ < PAST_LISTED ? array_push(&p->locks, lock, sizeof(*lock)) : 0;
}

static void past_work(uv_work_t *work)
{
	struct past *p = work->data;
	int64_t begun_ns = clock_thread_ns();

	array_cut(&p->locks, 0);
	p->lines = 0;
	p->error = procfs_locks(past_on_listed, p);
	p->error = p->error == -EAGAIN ? 0 : p->error; /* what is missing is in a later look */
	p->ran_ns = clock_thread_ns() - begun_ns;
}

/* --- the descriptors, in a survey's worker --- */

static int past_on_holder(struct survey *survey, const struct holder *h)
{
	const struct past *p = &survey->all->keeper->past;
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while (h->how == HOLDER_SHOWN && (claim = survey_claim(survey, h, &next))) {
		struct past_wanted *w = array_at(&p->wanted, claim->tag);

		if (h->locker != w->lock.locker || (w->pid && h->pid != h->locker))
			continue;
		w->pid = h->pid;
		w->fd = h->fd;
		snprintf(w->command, sizeof(w->command), "%s", h->command);
	}
	return 0;
}

/* A link of a process. False: it cannot be read as a whole. */
static bool past_read_link(pid_t pid, const char *which, char to[PATH_MAX])
{
	char name[64];
	ssize_t len;

	snprintf(name, sizeof(name), "/proc/%d/%s", (int)pid, which);
	len = readlink(name, to, PATH_MAX - 1);
	to[len > 0 ? len : 0] = '\0';
	return len > 0 && len < PATH_MAX - 1;
}

/* A keeper's own lock is a probe. */
static bool past_is_keeper(pid_t pid)
{
	static const char dflockd[] = "/dflockd";
	char exe[PATH_MAX];
	size_t len;

	if (!past_read_link(pid, "exe", exe))
		return false;
	procfs_is_deleted(exe, &len);
	return len >= strlen(dflockd) && strncmp(exe + len - strlen(dflockd), dflockd, strlen(dflockd)) == 0;
}

static void past_learn(struct mountmap *mounts, struct past_wanted *w)
{
	char which[32], path[PATH_MAX];
	int mount_id;
	size_t len;

	snprintf(which, sizeof(which), "fd/%d", w->fd);
	if (!suspects_are_shown(w->pid, w->fd, &w->known->key, &mount_id) || !past_read_link(w->pid, which, path)) {
		w->pid = 0;
		return;
	}
	/* No other process can open a deleted file by this name, so it excludes none. */
	if (*path == '/' && !past_is_keeper(w->pid) && !procfs_is_deleted(path, &len))
		mountmap_paths(mounts, w->pid, mount_id, path, &w->paths, &w->plain);
}

static int past_end(struct survey *survey)
{
	struct past *p = &survey->all->keeper->past;
	struct past_wanted *w = NULL;
	int ret = mountmap_refresh(&p->mounts);

	while (ret == 0 && (w = utarray_next(&p->wanted, w)))
		if (w->pid)
			past_learn(&p->mounts, w);
	return ret;
}

/* --- the comparison --- */

static struct past_known *past_know(struct past *p, const struct procfs_lock *lock)
{
	const struct past_key key = past_key_of(lock);
	struct past_known *known;

	HASH_FIND(hh, p->known, &key, sizeof(key), known);
	if (known)
		return known;
	known = HASH_COUNT(p->known) < PAST_LISTED ? calloc(1, sizeof(*known)) : NULL;
	if (!known)
		return NULL;
	known->key = key;
	known->before = !p->began; /* mutant: past-before */
	HASH_ADD(hh, p->known, key, sizeof(known->key), known);
	return known;
}

static void past_forget(struct past *p, struct past_known *known)
{
	HASH_DEL(p->known, known);
	free(known);
}

static struct past_link *past_link_of(const struct keeper *k, const struct past_key *key)
{
	const struct identity id = {.dev = key->dev, .ino = key->ino};
	struct past_link *link;

	HASH_FIND(hh, k->past.links, &id, sizeof(id), link);
	return link;
}

/* Most locks that are not covered have only just been dropped: the second look at one is worth a search. */
static bool past_is_wanted(const struct keeper *k, const struct past_known *known)
{
	const struct past_link *link = known->unused ? past_link_of(k, &known->key) : NULL;

	if (!known->sought_ns)
		return known->looks > 1;
	if (known->crowded && k->past.suspect_count < PAST_MAX)
		return true;
	return clock_now_ns() - known->sought_ns > SEEK_AGAIN_NS || (link && link->since_ns > known->sought_ns);
}

static void past_compare(struct keeper *k, const struct procfs_lock *lock)
{
	struct past *p = &k->past;
	struct past_known *known = past_know(p, lock);
	const struct past_wanted wanted = {.known = known, .lock = *lock};

	p->left_out += !known;
	if (!known)
		return;
	known->listed = p->look;
	if (past_is_covered(k, lock))
		return;
	if (known->suspect)
		suspects_see(known->suspect, lock);
	if (known->naked == p->look)
		return;
	known->looks = known->naked + 1 == p->look ? known->looks + 1 : 1;
	known->naked = p->look;
	if (past_is_wanted(k, known) && utarray_len(&p->wanted) < SOUGHT_MAX)
		(void)!array_push(&p->wanted, &wanted, sizeof(wanted)); /* without memory: in the next look */
}

static void past_forget_wanted(struct past *p)
{
	struct past_wanted *w = NULL;

	while ((w = utarray_next(&p->wanted, w)))
		free(w->paths);
	array_cut(&p->wanted, 0);
}

/* All is compared. */
static void past_judged(struct keeper *k)
{
	struct past *p = &k->past;
	struct past_known *known, *next;

	past_forget_wanted(p);
	suspects_forget(k);
	p->nowhere = 0;
	p->over = p->left_out;
	HASH_ITER (hh, p->known, known, next) {
		p->nowhere += known->nowhere;
		p->over += known->crowded && known->naked == p->look;
		if (known->listed != p->look)
			past_forget(p, known);
	}
	p->listed = p->lines;
	p->looks++;
	suspects_confirm(k, past_rest);
}

/* The protected path of a file, with its lock name: the first of its paths, or another link. */
static const char *past_protected(const struct keeper *k, const struct past_wanted *w, char name[LOCK_NAME_BYTES],
				  const char **linked)
{
	const struct past_link *link = w->paths ? past_link_of(k, &w->known->key) : NULL;

	*linked = NULL;
	for (const char *path = w->paths; path && *path; path += strlen(path) + 1)
		if (config_lock_name(k->config, path, name) == 0)
			return path;
	if (!link || config_lock_name(k->config, link->path, name) != 0)
		return NULL;
	*linked = link->path;
	return w->paths;
}

static void past_found(struct keeper *k, const struct past_wanted *w)
{
	struct suspect found = {.keeper = k, .known = w->known, .plain = w->plain, .pid = w->pid, .fd = w->fd};
	char name[LOCK_NAME_BYTES];
	const char *linked, *path = past_protected(k, w, name, &linked);

	if (w->known->suspect && !suspects_is(w->known->suspect, path ? name : NULL, path))
		suspects_gone(w->known->suspect);
	w->known->sought_ns = clock_now_ns();
	w->known->nowhere = !w->pid;
	w->known->unused = !path;
	w->known->crowded = false;
	if (!path)
		return;
	memcpy(found.command, w->command, sizeof(found.command));
	if (past_cover_of(k, &w->lock, name, w->plain) != PAST_COVERED)
		suspects_watch(&found, &w->lock, name, path, linked);
	else if (w->plain)
		w->known->sought_ns = 0; /* a lease has come meanwhile, and may go again */
}

static void past_searched(struct survey *survey)
{
	struct keeper *k = survey->all->keeper;
	struct past *p = &k->past;
	const struct past_wanted *w = NULL;

	p->not_before_ns = clock_now_ns() + SURVEY_SHARE * survey->ran_ns;
	if (!p->on || survey->error) {
		past_rest(k);
		return;
	}
	while ((w = utarray_next(&p->wanted, w)))
		past_found(k, w);
	past_judged(k);
}

static void past_search(struct keeper *k)
{
	struct past *p = &k->past;
	int ret = 0;

	p->survey = (struct survey){
		.lazy = true, .commands = true, .row = past_on_holder, .end = past_end, .done = past_searched};
	for (size_t i = 0; ret == 0 && i < utarray_len(&p->wanted); i++) {
		const struct procfs_lock *lock = &((const struct past_wanted *)array_at(&p->wanted, i))->lock;
		const struct holders_file file = {.dev = lock->dev, .ino = lock->ino, .by_number = true};

		ret = claims_add(&p->survey.claims, &file, lock->space, lock->from, lock->to, i);
	}
	if (ret == 0)
		ret = survey_ask(k, &p->survey);
	if (ret == 0)
		return;
	claims_free(&p->survey.claims);
	past_rest(k);
}

/* A part of the comparison: nobody waits for it. */
static void past_compare_slice(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct past *p = &k->past;
	int64_t begun_ns = clock_now_ns(), now_ns = begun_ns;

	while (p->next < utarray_len(&p->locks) && now_ns - begun_ns < SLICE_NS) {
		past_compare(k, array_at(&p->locks, p->next++));
		now_ns = clock_now_ns();
	}
	p->ran_ns += now_ns - begun_ns;
	if (p->next < utarray_len(&p->locks)) {
		uv_timer_start(timer, past_compare_slice, 1, 0);
		return;
	}
	p->began = p->began || !p->left_out;
	if (utarray_len(&p->wanted) && begun_ns >= p->not_before_ns)
		past_search(k);
	else
		past_judged(k);
}

static void on_past_listed(uv_work_t *work, int status)
{
	struct past *p = work->data;
	struct keeper *k = p->timer.data;

	(void)status;
	if (p->error < 0)
		log_debug("the locks of this machine cannot be looked at: %s", strerror(-p->error));
	if (!p->on || k->leaving || p->error < 0) {
		past_rest(k);
		return;
	}
	p->next = 0;
	p->left_out = p->lines > PAST_LISTED ? p->lines - PAST_LISTED : 0;
	past_compare_slice(&p->timer);
}

/* --- when --- */

/* Nothing is decided, and locks for which there was no use, or which are new in the next look, count as listed in the first look. */
static void past_begin_again(struct past *p)
{
	struct past_known *known, *next;

	HASH_ITER (hh, p->known, known, next) {
		known->before |= known->unused || (!known->sought_ns && known->naked == known->listed);
		known->sought_ns = 0;
		known->unused = known->nowhere = false;
	}
	p->began = false;
}

static void past_look(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct past *p = &k->past;

	if (p->rules_changed)
		past_begin_again(p);
	p->rules_changed = false;
	p->looking = true;
	p->look++;
	touched_set(&k->touched, true);
	if (uv_queue_work(k->loop, &p->work, past_work, on_past_listed) != 0)
		past_rest(k);
}

static void past_rest(struct keeper *k)
{
	struct past *p = &k->past;
	int64_t pause_ms = SHARE * p->ran_ns / NS_PER_MS, least_ms = k->config->lease.past_look_ms;

	past_forget_wanted(p);
	touched_set(&k->touched, false);
	p->took_ns = p->ran_ns;
	p->looking = false;
	if (p->on && !k->leaving && least_ms)
		uv_timer_start(&p->timer, past_look, (uint64_t)(pause_ms > least_ms ? pause_ms : least_ms), 0);
}

void past_start(struct keeper *k, bool (*is_asking)(const struct keeper *k, pid_t pid))
{
	k->past.on = true;
	k->past.is_asking = is_asking;
	k->past.work.data = &k->past;
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
	struct past_link *link = past_link_of(k, &(struct past_key){.dev = id->dev, .ino = id->ino});

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
	link->since_ns = clock_now_ns();
	HASH_ADD(hh, k->past.links, id, sizeof(link->id), link);
}

void past_rules_changed(struct keeper *k)
{
	k->past.rules_changed = true;
	if (k->past.on && !k->past.looking)
		past_rest(k);
}

void past_stop(struct keeper *k)
{
	if (!k->past.on)
		return;
	k->past.on = false;
	uv_close((uv_handle_t *)&k->past.timer, NULL);
}

void past_free(struct keeper *k)
{
	struct past *p = &k->past;

	while (p->links)
		past_forget_link(k, p->links);
	while (p->suspects)
		suspects_remove(p->suspects);
	while (p->known)
		past_forget(p, p->known);
	past_forget_wanted(p);
	utarray_done(&p->wanted);
	utarray_done(&p->locks);
	mountmap_free(&p->mounts);
}
