/*
 * See lookup.h: a file that a front has looked at, until its lock is known. The result waits in s->lookup.found
 *   - while a worker looks at the configuration file, if the program goes by another configuration than the keeper;
 *   - while the front that has the description passes it on.
 * While the result waits, the front has no other work, though its user has only a few fronts.
 */
#include <stdlib.h>
#include <string.h>

#include "keeper/callers/configfile.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/frontmsg.h"
#include "keeper/fronts/fronts.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/callers/lookup.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"

/* s->lookup.found is NULL then. */
static void take_found(struct session *s, struct inspect_result *r)
{
	*r = *s->lookup.found;
	free(s->lookup.found);
	s->lookup.found = NULL;
}

static void on_kept(struct front_connection *reading, struct away *away, const char *why)
{
	struct session *s = reading->owner;
	struct inspect_result r;

	take_found(s, &r);
	if (away) {
		lookup_found(s, &r, away);
	} else {
		own_free(&r.before);
		session_refuse_call(s, REFUSAL_FILE, false, "%s: %s", r.path, why);
	}
	queue_settle(s->keeper);
}

/* The session's front has the description. Should one of the user's fronts keep it? */
static bool is_to_be_kept(const struct session *s, const struct inspect_result *r)
{
	const struct file *file = file_find(s->keeper, r->st.st_dev, r->st.st_ino);
	char name[LOCK_NAME_BYTES];

	return !r->named_late && config_lock_name(s->keeper->config, r->path, name) == 0 &&
	       !(file && file_is_open(file));
}

/* Counted by the file system's number and not by the mount's: each service of one user may have mounts of its own. */
static void look_up(struct session *s)
{
	struct inspect_result r;

	if (s->reading.front && is_to_be_kept(s, s->lookup.found)) {
		away_keep(&s->reading, s->lookup.found->st.st_dev, on_kept);
	} else {
		take_found(s, &r);
		lookup_found(s, &r, NULL);
	}
	fronts_release(&s->reading); /* the front closes a description that is not to be kept */
}

static bool copy_answer(struct inspect_result *r, const struct front_answer *a, const struct own_lock *before, int fd)
{
	*r = a->file;
	r->fd = fd;
	if (own_copy(&r->before, before, a->before_count) == 0)
		return true;
	own_free(&r->before);
	return false;
}

void lookup_received(struct session *s, const struct front_answer *a, const struct own_lock *before, int fd)
{
	if (lookup_is_behind(s)) {
		file_close(s->keeper, a->dev, fd, true);
		return;
	}
	s->lookup.local = a->local;
	s->lookup.found = malloc(sizeof(*s->lookup.found));
	if (!s->lookup.found || !copy_answer(s->lookup.found, a, before, fd)) {
		free(s->lookup.found);
		s->lookup.found = NULL;
		file_close(s->keeper, a->dev, fd, true);
		session_refuse_call(s, REFUSAL_ROOM, true, "the keeper has no memory left");
		return;
	}
	if (s->reading.front)
		fronts_hold(&s->reading);
	if (configfile_is_ours(s->keeper, &s->request.config, s->request.config_path))
		look_up(s);
	else
		lookup_await_config(s, look_up);
}
