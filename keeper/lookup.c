/* See lookup.h. */
#include "keeper/lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "keeper/act.h"
#include "keeper/before_job.h"
#include "keeper/inspect.h"
#include "keeper/locks.h"
#include "keeper/mounts.h"
#include "keeper/serve.h"
#include "keeper/sessions.h"
#include "keeper/unseen.h"

#define SLOW_MS 5000 /* a caller is told that its file's mount hangs */

/* Does the file's rule forbid a lock to a process that may not be looked into? Opens directories of /proc alone, which
 * waits for nobody (holders.c). */
static bool is_refused(const struct session *s, const char *path)
{
	enum unseen_state state;

	if (s->request.op != WIRE_LOCK || !config_rule(s->keeper->config, path)->refuse_unstoppable)
		return false;
	state = unseen_state(s->peer.pid);
	return state == UNSEEN_SIGNAL || state == UNSEEN_BEYOND;
}

static void look_up(struct session *s, struct inspect_result *r)
{
	struct keeper *k = s->keeper;
	char name[LOCK_NAME_BYTES];
	struct file *file;
	int ret;

	if (*r->refused) {
		session_refuse(s, "%s%s%s", r->path, *r->path ? ": " : "", r->refused);
		return;
	}
	ret = r->nameless ? -ENOENT : config_lock_name(k->config, r->path, name);
	if (ret == 0 && r->named_late) {
		if (r->fd >= 0)
			close(r->fd);
		before_free(&r->before);
		session_refuse(s,
			       "%s: it was made without a name (O_TMPFILE), and the keeper cannot see the one that it "
			       "has now: open it by that to lock it",
			       r->path);
		return;
	}
	if (ret < 0) {
		if (r->fd >= 0)
			close(r->fd);
		before_free(&r->before);
		if (ret == -ENOENT)
			session_reply(s, WIRE_NOT_PROTECTED, r->path, -1);
		else
			session_refuse(s, "%s: its lock name is longer than %d bytes", r->path, LOCK_NAME_BYTES - 1);
		return;
	}
	if (is_refused(s, r->path)) {
		file_close(k, r->st.st_dev, r->fd, s->local);
		before_free(&r->before);
		session_refuse(
			s,
			"%s: the keeper may not look into this process (pid %d), and so could not stop it if the "
			"lease ran out: unstoppable = \"refuse\" in %s",
			r->path, (int)s->peer.pid, k->config->path);
		return;
	}
	before_free(&s->before);
	s->before = r->before;
	keeper_enter(k);
	ret = file_get(k, &r->st, s->local, r->path, name, r->fd, &file);
	if (ret == -EEXIST)
		session_refuse(s,
			       "%s: this file is in use as lock \"%s\" already and cannot be lock \"%s\" too: "
			       "give both paths the same name in %s",
			       r->path, file->name, name, k->config->path);
	else if (ret < 0)
		session_refuse(s, "the keeper has no memory left");
	else {
		file_learnt(file, &r->id);
		s->holds = r->holds;
		s->shared_tested = s->shared_in_use = false;
		serve_begin(s, &file->locks[s->request.space]);
	}
	keeper_leave(k);
}

static void drop_inspected(struct session *s, struct inspect_result *r)
{
	file_close(s->keeper, r->st.st_dev, r->fd, s->local);
	before_free(&r->before);
}

/* ret: before_read()'s, of r->before. */
static void look_up_with(struct session *s, struct inspect_result *r, int ret)
{
	if (ret == 0)
		return look_up(s, r);
	drop_inspected(s, r);
	session_refuse(s, "%s: the keeper cannot see which locks the program has, so that it could undo: %s", r->path,
		       strerror(-ret));
}

static void on_before_read(void *arg, int ret, struct before *before)
{
	struct session *s = arg;
	struct inspect_result *r = s->inspected;

	s->inspected = NULL;
	r->before = *before;
	if (s->state == SESSION_INSPECTING)
		look_up_with(s, r, ret);
	else
		drop_inspected(s, r);
	free(r);
	session_unuse(s);
}

/* POSIX locks belong to the process, which may have any number of descriptors. */
static void read_before(struct session *s, struct inspect_result *r)
{
	if (before_are_few(s->peer.pid)) {
		look_up_with(s, r, before_read(&r->before, -1, s->peer.pid, WIRE_OWNER_PROCESS, &r->st));
		return;
	}
	s->inspected = malloc(sizeof(*r));
	if (s->inspected)
		*s->inspected = *r;
	if (!s->inspected || before_start(s->keeper->workers, &s->peer, &r->st, on_before_read, s) < 0) {
		free(s->inspected);
		s->inspected = NULL;
		drop_inspected(s, r);
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	s->state = SESSION_INSPECTING;
	s->uses++;
}

static void looked_at(struct session *s, struct inspect_result *r)
{
	if (!*r->refused && s->request.space == WIRE_RECORD && s->request.owner == WIRE_OWNER_PROCESS)
		read_before(s, r);
	else
		look_up(s, r);
}

static void on_inspected(void *arg, struct inspect_result *r)
{
	struct session *s = arg;

	s->job = NULL;
	if (s->state != SESSION_INSPECTING) { /* closed, or answered meanwhile */
		if (r->fd >= 0)
			close(r->fd);
		before_free(&r->before);
		return session_unuse(s);
	}
	uv_timer_stop(&s->timer);
	looked_at(s, r);
	session_unuse(s);
}

static void on_shared_tested(void *arg, struct inspect_result *r)
{
	struct session *s = arg;

	s->job = NULL;
	if (s->state != SESSION_INSPECTING)
		return session_unuse(s);
	session_unuse(s);
	uv_timer_stop(&s->timer);
	s->shared_tested = true;
	s->shared_in_use = r->shared_in_use;
	s->state = SESSION_WAITING;
	keeper_enter(s->keeper);
	serve_session(s);
	keeper_leave(s->keeper);
}

/* The groups that count are those of the peer when it connected, as is its uid. */
static int peer_groups(int socket, struct inspect_request *request)
{
	socklen_t len = 0;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) == 0)
		return 0; /* none */
	request->groups = errno == ERANGE ? malloc(len) : NULL;
	if (!request->groups || getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, request->groups, &len) != 0)
		return -1;
	request->group_count = len / sizeof(gid_t);
	return 0;
}

/* The descriptor stays where it is: even close() may wait for the file system (FUSE). */
static void on_slow(uv_timer_t *timer)
{
	struct session *s = timer->data;

	if (s->state != SESSION_INSPECTING)
		return;
	session_refuse(
		s, "its file system has not answered the keeper for %d s: is the server that it is mounted from away?",
		SLOW_MS / 1000);
}

static void start_inspect(struct session *s, uint64_t dev, struct inspect_request *request, inspect_cb *cb)
{
	if (request->foreign && peer_groups(s->fd, request) < 0) {
		close(request->fd);
		free(request->groups);
		session_refuse(s, "the keeper cannot see the program's groups");
		return;
	}
	s->state = SESSION_INSPECTING;
	s->job = inspect_start(s->keeper->workers, dev, request, cb, s);
	if (!s->job) {
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

	request.fd = fcntl(s->lock->file->fd, F_DUPFD_CLOEXEC, 3);
	if (request.fd < 0)
		session_refuse(s, "the keeper has no descriptor left: %s", strerror(errno));
	else
		start_inspect(s, s->lock->file->key.dev, &request, on_shared_tested);
}

/* On a file system that is not known to be local not even statx() is called here: some ask their server, or a cluster's
 * lock, whatever the flags say (9p, gfs2). */
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
	struct statx stx;
	uint64_t dev;

	s->local = mounts_local(k->mounts, fd, &dev) &&
		   statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &stx) == 0;
	if (s->local) {
		dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
		file = file_find(k, dev, stx.stx_ino);
		request.unused = !file;
		/* A worker opens it anew: it might be forgotten meanwhile. */
		request.known = !request.foreign && file && file->fd >= 0;
	}
	if (!s->local || request.foreign) {
		start_inspect(s, dev, &request, on_inspected);
		return;
	}
	inspect_now(&request, &result);
	looked_at(s, &result);
}

static bool same_config(const struct wire_config_id *a, const struct wire_config_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

/* Takes over fd. */
void lookup_start(struct session *s, int fd)
{
	const struct wire_request *r = &s->request;

	if (s->job || s->inspected) {
		close(fd);
		session_refuse(s, s->job ? "the file system of the last question's file has not answered yet"
					: "what the last question needs is still being looked for");
		return;
	}
	if (!same_config(&r->config, &s->keeper->config->id)) {
		close(fd);
		session_refuse(
			s,
			"the configuration of this program is not the one that the keeper has read (%s), or it has "
			"changed since: run `dflock reload`",
			s->keeper->config->path);
		return;
	}
	inspect(s, fd);
}
