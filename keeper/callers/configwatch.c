/* See configwatch.h. One look at a time; the worker touches struct watch's `look` alone, the loop only when it has
 * ended. */
#include "keeper/callers/configwatch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/callers/configfile.h"
#include "keeper/callers/lookup.h"
#include "keeper/callers/sessions.h"
#include "keeper/kernel/workers.h"
#include "wire/place.h"

#define LOOK_MS 1000
#define SOON_MS 250  /* while contents are to be read a second time */
#define SLOW_MS 5000 /* who waits for a look is told that it does not come */

struct configwatch {
	struct keeper *k;
	uv_timer_t timer;
	bool closed, busy;
	uint64_t begun; /* looks */
	/* the worker's, while busy */
	struct work work;
	char *path;
	struct wire_config_id known; /* a file in this state need not be read */
	bool read;                   /* ... but it is to be */
	bool unchanged;
	int64_t begun_ns;
	struct configfile_look look;
};

static void run(struct work *work)
{
	struct configwatch *w = (struct configwatch *)((char *)work - offsetof(struct configwatch, work));
	struct configfile_look *look = &w->look;

	look->read = -ENOENT;
	look->error = -place_config_id(w->path, &look->id);
	w->unchanged = !w->read && !look->error && memcmp(&look->id, &w->known, sizeof(w->known)) == 0;
	if (w->unchanged)
		return;
	look->read = config_fetch(w->path, &look->source, look->why, sizeof(look->why));
	if (look->read < 0) /* missing now, or for good */
		return;
	look->error = 0;
	look->id = look->source.id;
	look->read = config_parse(&look->source, &look->fresh, look->why, sizeof(look->why));
}

/* --- who waits for a look --- */

static void answer_reload(struct session *s, struct configfile_look *look)
{
	char why[WIRE_REASON_BYTES];

	if (look->read == 0 && !look->fresh) { /* another session had it taken over */
		session_reply(s, WIRE_OK, NULL, -1);
		return;
	}
	if (configfile_reload(s->keeper, look, s->request.flags & WIRE_F_FORCE, why, sizeof(why)) == 0)
		session_reply(s, WIRE_OK, NULL, -1);
	else
		session_refuse(s, "%s", why);
}

static void refuse_stranger(struct session *s)
{
	session_refuse(
		s,
		"the keeper goes by another configuration than this program: by %s. Set DFLOCK_CONFIG to that, or "
		"DFLOCK_RUNTIME_DIR to a directory of its own for a keeper of its own%s",
		s->keeper->config->path,
		s->request.config_path == leases_hash(s->keeper->config->path)
			? " (under this path the program sees another file than the keeper: is it in a container?)"
			: "");
}

static void go_on(struct session *s)
{
	s->look = 0;
	uv_timer_stop(&s->timer);
	s->state = SESSION_READING;
	if (configfile_is_ours(s->keeper, &s->request.config, s->request.config_path)) {
		s->then(s);
		return;
	}
	lookup_leave(s);
	refuse_stranger(s);
}

static void serve_waiting(struct configwatch *w)
{
	struct session *s, *next;

	DL_FOREACH_SAFE (w->k->sessions, s, next) {
		if (!s->look || s->look > w->begun)
			continue;
		if (s->state == SESSION_RELOADING) {
			s->look = 0;
			uv_timer_stop(&s->timer);
			answer_reload(s, &w->look);
		} else if (s->state == SESSION_LOOKING) {
			go_on(s);
		}
	}
}

/* --- the looks --- */

static void on_timer(uv_timer_t *timer);

static void start_timer(struct configwatch *w, uint64_t ms)
{
	if (!w->closed)
		uv_timer_start(&w->timer, on_timer, ms, 0);
}

/* Is a session waiting for a look that has not begun? *full: its contents are wanted, too. */
static bool is_wanted(const struct configwatch *w, bool *full)
{
	const struct session *s;
	bool wanted = false;

	*full = false;
	DL_FOREACH (w->k->sessions, s) {
		if (s->look <= w->begun)
			continue;
		wanted = true;
		*full |= s->state == SESSION_RELOADING;
	}
	return wanted;
}

static void done(struct work *work)
{
	struct configwatch *w = (struct configwatch *)((char *)work - offsetof(struct configwatch, work));
	struct keeper *k = w->k;
	bool full;

	w->busy = false;
	if (!w->closed && !k->leaving) {
		if (!w->unchanged)
			configfile_found(k, &w->look, w->begun_ns);
		serve_waiting(w);
		start_timer(w, is_wanted(w, &full) ? 0 : k->configfile->state == CONFIGFILE_CHANGED ? SOON_MS : LOOK_MS);
	}
	config_free(w->look.fresh);
	config_source_free(&w->look.source);
	if (w->closed) {
		free(w->path);
		free(w);
	}
}

/* What was judged, or says what is in force, need not be read again until it changes. */
static bool is_known(const struct configfile *c)
{
	return c->state == CONFIGFILE_SAME || c->judged;
}

static void on_timer(uv_timer_t *timer)
{
	struct configwatch *w = timer->data;
	const struct configfile *c = w->k->configfile;
	bool full;

	if (w->busy)
		return;
	(void)is_wanted(w, &full);
	w->look = (struct configfile_look){.read = 0};
	w->known = c->seen;
	w->read = full || !is_known(c);
	w->unchanged = false;
	w->begun_ns = clock_now_ns();
	w->busy = true;
	w->begun++;
	if (workers_start(w->k->workers, c->seen.dev, &w->work) < 0) {
		w->busy = false;
		w->begun--;
		start_timer(w, LOOK_MS);
	}
}

static void on_slow(uv_timer_t *timer)
{
	struct session *s = timer->data;

	if (!s->look)
		return;
	lookup_leave(s);
	session_refuse(s, "%s: its file system has not answered the keeper for %d s", s->keeper->config->path,
		       SLOW_MS / 1000);
}

static void wait_for_look(struct session *s, enum session_state state)
{
	struct configwatch *w = s->keeper->configwatch;

	s->state = state;
	s->look = w->begun + 1;
	uv_timer_start(&s->timer, on_slow, SLOW_MS, 0);
	if (!w->busy)
		start_timer(w, 0);
}

void configwatch_reload(struct session *s)
{
	wait_for_look(s, SESSION_RELOADING);
}

void configwatch_question(struct session *s, void (*then)(struct session *s))
{
	s->then = then;
	wait_for_look(s, SESSION_LOOKING);
}

int configwatch_start(struct keeper *k)
{
	struct configwatch *w = calloc(1, sizeof(*w));

	if (w)
		w->path = strdup(k->config->path);
	if (!w || !w->path) {
		free(w);
		return -ENOMEM;
	}
	w->k = k;
	w->work.run = run;
	w->work.done = done;
	k->configwatch = w;
	uv_timer_init(k->loop, &w->timer);
	w->timer.data = w;
	start_timer(w, k->configfile->state == CONFIGFILE_SAME ? LOOK_MS : SOON_MS);
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct configwatch *w = handle->data;

	w->closed = true;
	if (w->busy)
		return;
	free(w->path);
	free(w);
}

void configwatch_close(struct keeper *k)
{
	if (!k->configwatch)
		return;
	uv_close((uv_handle_t *)&k->configwatch->timer, on_closed);
	k->configwatch = NULL;
}
