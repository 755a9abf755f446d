/* See lookup.h. */
#include "keeper/lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/act.h"
#include "keeper/front.h"
#include "keeper/fronts.h"
#include "keeper/inspect.h"
#include "keeper/locks.h"
#include "keeper/mounts.h"
#include "keeper/serve.h"
#include "keeper/sessions.h"

#define SLOW_MS 5000 /* a caller is told that its file's mount hangs */

void lookup_close(struct keeper *k, int fd)
{
	uint64_t dev, ino;
	bool local = inspect_ground(k->mounts, fd, &dev, &ino) == INSPECT_LOCAL;

	file_close(k, dev, fd, local);
}

/* kept: the description that a front has in r->fd's place, or NULL. */
static void look_up(struct session *s, struct inspect_result *r, struct kept *kept)
{
	struct keeper *k = s->keeper;
	char name[LOCK_NAME_BYTES];
	struct file *file;
	int ret;

	if (*r->refused) {
		session_refuse(s, "%s%s%s", r->path, *r->path ? ": " : "", r->refused);
		return;
	}
	ret = config_lock_name(k->config, r->path, name);
	if (ret < 0) {
		file_close(k, r->st.st_dev, r->fd, s->local);
		if (kept)
			kept_forget(kept);
		before_free(&r->before);
		if (ret == -ENOENT)
			session_reply(s, WIRE_NOT_PROTECTED, NULL, -1);
		else
			session_refuse(s, "%s: its lock name is longer than %d bytes", r->path, LOCK_NAME_BYTES - 1);
		return;
	}
	before_free(&s->before);
	s->before = r->before;
	keeper_enter(k);
	ret = file_get(k, &r->st, s->local, r->path, name, r->fd, &file);
	if (kept && (ret < 0 || file->kept || file->fd >= 0)) {
		kept_forget(kept);
	} else if (kept) {
		file->kept = kept;
		kept_owned(kept, &file->kept);
	}
	if (ret == -EEXIST)
		session_refuse(s,
			       "%s: this file is in use as lock \"%s\" already and cannot be lock \"%s\" too: "
			       "give both paths the same name in %s",
			       r->path, file->name, name, k->config->path);
	else if (ret < 0)
		session_refuse(s, "the keeper has no memory left");
	else {
		s->holds = r->holds;
		s->shared_tested = s->shared_in_use = false;
		serve_begin(s, &file->locks[s->request.space]);
	}
	keeper_leave(k);
}

static void on_inspected(void *arg, struct inspect_result *r)
{
	struct session *s = arg;

	s->job = NULL;
	if (s->state != SESSION_INSPECTING) { /* closed, or answered meanwhile */
		file_close(s->keeper, r->st.st_dev, r->fd, s->local);
		before_free(&r->before);
		return session_unuse(s);
	}
	session_unuse(s);
	uv_timer_stop(&s->timer);
	look_up(s, r, NULL);
}

static void shared_tested(struct session *s, bool shared)
{
	uv_timer_stop(&s->timer);
	s->shared_tested = true;
	s->shared_in_use = shared;
	s->state = SESSION_WAITING;
	keeper_enter(s->keeper);
	serve_session(s);
	keeper_leave(s->keeper);
}

static void on_shared_tested(void *arg, struct inspect_result *r)
{
	struct session *s = arg;

	s->job = NULL;
	if (s->state != SESSION_INSPECTING)
		return session_unuse(s);
	session_unuse(s);
	shared_tested(s, r->shared_in_use);
}

/* The descriptor stays where it is: even close() may wait for the file system (FUSE). */
static void on_slow(uv_timer_t *timer)
{
	struct session *s = timer->data;

	if (s->state == SESSION_INSPECTING)
		session_slow(s, SLOW_MS);
}

static void start_inspect(struct session *s, uint64_t dev, struct inspect_request *request, inspect_cb *cb)
{
	if (request->foreign && inspect_peer_groups(s->fd, request) < 0) {
		lookup_close(s->keeper, request->fd);
		free(request->groups);
		session_refuse(s, "the keeper cannot see the program's groups");
		return;
	}
	s->state = SESSION_INSPECTING;
	s->job = inspect_start(s->keeper->workers, dev, request, cb, s);
	if (!s->job) {
		lookup_close(s->keeper, request->fd);
		free(request->groups);
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	s->uses++;
	uv_timer_start(&s->timer, on_slow, SLOW_MS, 0);
}

void lookup_test_shared(struct session *s)
{
	struct inspect_request request = {.peer = s->peer,
					  .known = true,
					  .test_shared = true,
					  .space = s->request.space,
					  .from = s->request.from,
					  .to = s->request.to};

	if (s->lock->file->kept && fronts_test_shared(s, s->lock->file->kept, shared_tested)) {
		s->state = SESSION_INSPECTING;
		uv_timer_start(&s->timer, on_slow, SLOW_MS, 0);
		return;
	}
	request.fd = fcntl(s->lock->file->fd, F_DUPFD_CLOEXEC, 3);
	if (request.fd < 0)
		session_refuse(s, "the keeper has no descriptor left: %s", strerror(errno));
	else
		start_inspect(s, s->lock->file->key.dev, &request, on_shared_tested);
}

static void inspect(struct session *s, int fd)
{
	struct keeper *k = s->keeper;
	struct inspect_request request = {.fd = fd,
					  .peer = s->peer,
					  .foreign = s->peer.uid != geteuid(),
					  .space = s->request.space,
					  .owner = s->request.owner};
	struct inspect_result result;
	const struct file *file;
	uint64_t dev, ino;

	s->local = inspect_ground(k->mounts, fd, &dev, &ino) == INSPECT_LOCAL;
	if (s->local) {
		file = file_find(k, dev, ino);
		request.unused = !file;
		/* A worker opens it anew: it might be forgotten meanwhile. */
		request.known = !request.foreign && file && file->fd >= 0;
	}
	if (!s->local || request.foreign) {
		start_inspect(s, dev, &request, on_inspected);
		return;
	}
	inspect_now(&request, &result);
	look_up(s, &result, NULL);
}

static bool same_config(const struct wire_config_id *a, const struct wire_config_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

static bool refuse_config(struct session *s)
{
	if (same_config(&s->request.config, &s->keeper->config->id))
		return false;
	session_refuse(s,
		       "the configuration of this program is not the one that the keeper has read (%s), or it has "
		       "changed since: run `dflock reload`",
		       s->keeper->config->path);
	return true;
}

/* Takes over fd. */
void lookup_start(struct session *s, int fd)
{
	if (s->job)
		session_refuse(s, "the file system of the last question's file has not answered yet");
	else if (!refuse_config(s))
		return inspect(s, fd);
	lookup_close(s->keeper, fd);
}

/* --- what a front has looked at --- */

static void on_kept(struct session *s, struct kept *kept, const char *why)
{
	struct inspect_result *r = s->away;

	s->away = NULL;
	if (kept) {
		look_up(s, r, kept);
	} else {
		before_free(&r->before);
		session_refuse(s, "%s: %s", r->path, why);
	}
	free(r);
}

/* A front has the file's description. Should one of its user's fronts keep it? */
static void look_up_away(struct session *s, struct inspect_result *r, uint64_t dev)
{
	struct keeper *k = s->keeper;
	const struct file *file = file_find(k, r->st.st_dev, r->st.st_ino);
	char name[LOCK_NAME_BYTES];

	if (config_lock_name(k->config, r->path, name) < 0 || (file && (file->kept || file->fd >= 0)))
		return look_up(s, r, NULL);
	s->away = malloc(sizeof(*s->away));
	if (!s->away) {
		before_free(&r->before);
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	*s->away = *r;
	fronts_keep(s, dev, on_kept);
}

void lookup_received(struct session *s, const struct front_answer *a, const struct held *before, int fd)
{
	struct inspect_result r = {.st = a->st, .fd = fd, .holds = a->holds};

	if (refuse_config(s))
		return file_close(s->keeper, a->dev, fd, true);
	memcpy(r.refused, a->refused, sizeof(r.refused));
	memcpy(r.path, a->path, sizeof(r.path));
	r.before.count = r.before.room = a->before_count;
	r.before.locks = a->before_count ? malloc(a->before_count * sizeof(*before)) : NULL;
	if (a->before_count && !r.before.locks) {
		session_refuse(s, "the keeper has no memory left");
		return file_close(s->keeper, a->dev, fd, true);
	}
	if (a->before_count)
		memcpy(r.before.locks, before, a->before_count * sizeof(*before));
	s->local = a->local;
	if (a->away)
		look_up_away(s, &r, a->dev);
	else
		look_up(s, &r, NULL);
}

void lookup_leave(struct session *s)
{
	if (s->away)
		before_free(&s->away->before);
	free(s->away);
	s->away = NULL;
}
