/* See configwatch.h. One look at a time. While a worker looks, only the worker touches the fields that are marked as
 * its own. */
#include "keeper/callers/configwatch.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"
#include "keeper/kernel/workers.h"
#include "keeper/log.h"
#include "wire/msg.h"
#include "wire/place.h"

#define LOOK_MS 1000
#define SOON_MS 250 /* while contents are to be read a second time */

struct configwatch {
	struct keeper *k;
	uv_timer_t timer; /* the next look; while there is one: when the first of `waiting` has waited for too long */
	uv_signal_t hangup;
	unsigned handles; /* not closed yet */
	bool busy;
	uint64_t begun;                   /* looks */
	struct configwatch_wait hung_up;  /* SIGHUP */
	struct configwatch_wait *waiting; /* in the order of arrival, which is that of `look` and `until_ns`, too */
	/* the worker's, while busy */
	struct work work;
	char *path;
	struct wire_config_id known; /* a file in this state need not be read */
	bool read;                   /* ... but one of `waiting` wants it read */
	bool unchanged;
	int64_t begun_ns;
	struct configfile_look look;
};

static void configwatch_work(struct work *work)
{
	struct configwatch *w = (struct configwatch *)((char *)work - offsetof(struct configwatch, work));
	struct configfile_look *look = &w->look;

	if (!w->read) {
		look->error = -place_config_id(w->path, &look->id);
		w->unchanged = !look->error && memcmp(&look->id, &w->known, sizeof(w->known)) == 0;
	}
	if (!w->unchanged)
		configfile_look_now(w->path, look);
}

/* --- waiting for a look --- */

void configwatch_leave(struct configwatch_wait *wait)
{
	if (!wait->watch)
		return;
	DL_DELETE(wait->watch->waiting, wait);
	wait->watch = NULL;
}

/* Ends the wait of the first of `waiting`, and calls it back. */
static void configwatch_answer(struct configwatch *w, struct configfile_look *look)
{
	struct configwatch_wait *wait = w->waiting;

	configwatch_leave(wait);
	wait->cb(wait, look);
}

/* Does a caller wait for a look that has not begun? *contents: the look must read the file. */
static bool configwatch_is_wanted(const struct configwatch *w, bool *contents)
{
	const struct configwatch_wait *wait;
	bool wanted = false;

	*contents = false;
	DL_FOREACH (w->waiting, wait) {
		if (wait->look <= w->begun)
			continue;
		wanted = true;
		*contents |= wait->contents;
	}
	return wanted;
}

/* --- the looks --- */

static void on_configwatch_timer(uv_timer_t *timer);

static void configwatch_look_in(struct configwatch *w, uint64_t ms)
{
	if (w->k->configwatch == w)
		uv_timer_start(&w->timer, on_configwatch_timer, ms, 0);
}

static void configwatch_time_out(struct configwatch *w)
{
	int64_t now = clock_now_ns();

	while (w->waiting && w->waiting->until_ns <= now)
		configwatch_answer(w, NULL);
	if (w->waiting)
		configwatch_look_in(w, (uint64_t)((w->waiting->until_ns - now) / NS_PER_MS + 1));
	queue_settle(w->k);
}

static void configwatch_free_if_closed(struct configwatch *w)
{
	if (w->handles || w->busy)
		return;
	free(w->path);
	free(w);
}

static void configwatch_looked(struct work *work)
{
	struct configwatch *w = (struct configwatch *)((char *)work - offsetof(struct configwatch, work));
	struct keeper *k = w->k;
	bool contents;

	w->busy = false;
	if (k->configwatch == w && !k->leaving) {
		if (!w->unchanged)
			configfile_found(k, &w->look, w->begun_ns);
		while (w->waiting && w->waiting->look <= w->begun)
			configwatch_answer(w, &w->look);
		queue_settle(k);
		configwatch_look_in(w, configwatch_is_wanted(w, &contents)          ? 0
				       : k->configfile->state == CONFIGFILE_CHANGED ? SOON_MS
										    : LOOK_MS);
	}
	config_free(w->look.fresh);
	config_source_free(&w->look.source);
	configwatch_free_if_closed(w);
	queue_settle(k);
}

static void on_configwatch_timer(uv_timer_t *timer)
{
	struct configwatch *w = timer->data;
	const struct configfile *c = w->k->configfile;
	bool contents;

	if (w->busy) {
		configwatch_time_out(w);
		return;
	}
	(void)configwatch_is_wanted(w, &contents);
	w->look = (struct configfile_look){.read = 0};
	w->known = c->seen;
	w->read = contents || !configfile_is_known(c);
	w->unchanged = false;
	w->begun_ns = clock_now_ns();
	w->busy = true;
	w->begun++;
	if (workers_start(w->k->workers, c->seen.dev, &w->work) < 0) {
		w->busy = false;
		w->begun--;
		configwatch_time_out(w);
		configwatch_look_in(w, LOOK_MS);
		return;
	}
	configwatch_time_out(w);
}

void configwatch_wait(struct keeper *k, struct configwatch_wait *wait, bool contents, configwatch_cb *cb)
{
	struct configwatch *w = k->configwatch;

	*wait = (struct configwatch_wait){.watch = w,
					  .look = w->begun + 1,
					  .contents = contents,
					  .until_ns = clock_now_ns() + CONFIGWATCH_SLOW_MS * NS_PER_MS,
					  .cb = cb};
	DL_APPEND(w->waiting, wait);
	if (!w->busy)
		configwatch_look_in(w, 0);
	else if (w->waiting == wait)
		configwatch_look_in(w, CONFIGWATCH_SLOW_MS);
}

static void on_hangup_looked_at(struct configwatch_wait *wait, struct configfile_look *look)
{
	struct keeper *k = ((struct configwatch *)((char *)wait - offsetof(struct configwatch, hung_up)))->k;
	char why[WIRE_REASON_BYTES];

	if (!look)
		log_event(LINE_RELOAD_REFUSED, "SIGHUP: not reloaded: %s: its file system has not answered for %d s",
			  k->config->path, CONFIGWATCH_SLOW_MS / 1000);
	else if (look->read == 0 && !look->fresh)
		log_event(LINE_CONFIG_IN_FORCE_AGAIN, "SIGHUP: %s is in force already", k->config->path);
	else if (configfile_reload(k, look, false, why, sizeof(why)) < 0)
		log_event(LINE_RELOAD_REFUSED, "SIGHUP: not reloaded: %s", why);
}

static void on_hangup(uv_signal_t *signal, int number)
{
	struct configwatch *w = signal->data;

	(void)number;
	/* A look that has begun may have read the file before it was changed: another one. */
	configwatch_leave(&w->hung_up);
	configwatch_wait(w->k, &w->hung_up, true, on_hangup_looked_at);
}

int configwatch_start(struct keeper *k)
{
	struct configwatch *w = calloc(1, sizeof(*w));
	sigset_t handled;

	if (w)
		w->path = strdup(k->config->path);
	if (!w || !w->path) {
		free(w);
		return -ENOMEM;
	}
	w->k = k;
	w->work.run = configwatch_work;
	w->work.done = configwatch_looked;
	k->configwatch = w;
	uv_timer_init(k->loop, &w->timer);
	uv_signal_init(k->loop, &w->hangup);
	w->timer.data = w->hangup.data = w;
	w->handles = 2;
	uv_signal_start(&w->hangup, on_hangup, SIGHUP);
	sigemptyset(&handled);
	sigaddset(&handled, SIGHUP);
	pthread_sigmask(SIG_UNBLOCK, &handled, NULL);
	configwatch_look_in(w, k->configfile->state == CONFIGFILE_SAME ? LOOK_MS : SOON_MS);
	return 0;
}

static void on_configwatch_closed(uv_handle_t *handle)
{
	struct configwatch *w = handle->data;

	w->handles--;
	configwatch_free_if_closed(w);
}

void configwatch_close(struct keeper *k)
{
	struct configwatch *w = k->configwatch;

	if (!w)
		return;
	k->configwatch = NULL; /* no look begins any more */
	configwatch_leave(&w->hung_up);
	uv_close((uv_handle_t *)&w->hangup, on_configwatch_closed);
	uv_close((uv_handle_t *)&w->timer, on_configwatch_closed);
}
