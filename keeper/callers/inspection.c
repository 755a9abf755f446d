/* See inspection.h. */
#include "keeper/callers/inspection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "keeper/callers/session.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/reading.h"
#include "keeper/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"

void inspection_close(struct keeper *k, int fd)
{
	uint64_t dev, ino;
	bool local = inspect_ground(k->mounts, fd, &dev, &ino) == INSPECT_LOCAL;

	file_close(k, dev, fd, local);
}

void inspection_drop(struct session *s, struct inspect_result *r, struct away *away)
{
	file_close(s->keeper, r->st.st_dev, r->fd, s->inspection.local);
	if (away)
		away_forget(away);
	before_free(&r->before);
}

void inspection_leave(struct session *s)
{
	struct inspect_result *r = s->inspection.found;

	configwatch_leave(&s->look);
	if (s->inspection.held_fd >= 0)
		inspection_close(s->keeper, s->inspection.held_fd);
	s->inspection.held_fd = -1;
	s->inspection.found = NULL;
	if (!r)
		return;
	inspection_drop(s, r, NULL);
	free(r);
	reading_release(&s->reading);
}

void inspection_slow(struct session *s, int ms)
{
	if (s->foreign)
		reading_leave(&s->reading);
	inspection_leave(s);
	session_refuse(
		s, "its file system has not answered the keeper for %d s: is the server that it is mounted from away?",
		ms / 1000);
}

/* --- workers --- */

/* The descriptor stays where it is: even close() may wait for the file system (FUSE). */
static void on_inspection_slow(uv_timer_t *timer)
{
	struct session *s = timer->data;

	if (s->state == SESSION_INSPECTING)
		inspection_slow(s, INSPECTION_SLOW_MS);
	queue_settle(s->keeper);
}

void inspection_start(struct session *s, uint64_t dev, struct inspect_request *request, inspect_cb *cb)
{
	if (request->foreign && inspect_peer_groups(s->fd, request) < 0) {
		inspection_close(s->keeper, request->fd);
		free(request->groups);
		session_refuse(s, "the keeper cannot see the program's groups");
		return;
	}
	s->state = SESSION_INSPECTING;
	s->inspection.job = inspect_start(s->keeper->workers, dev, request, cb, s);
	if (!s->inspection.job) {
		inspection_close(s->keeper, request->fd);
		free(request->groups);
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	session_use(s);
	uv_timer_start(&s->timer, on_inspection_slow, INSPECTION_SLOW_MS, 0);
}

/* --- a shared lock --- */

static void shared_tested(struct session *s, bool shared)
{
	uv_timer_stop(&s->timer);
	s->shared_tested = true;
	s->shared_in_use = shared;
	s->state = SESSION_WAITING;
	s->inspection.then(s);
	queue_settle(s->keeper);
}

static void on_away_tested(struct front_connection *reading, bool shared)
{
	shared_tested(reading->owner, shared);
}

static void on_shared_tested(void *arg, struct inspect_result *r)
{
	struct session *s = arg;

	s->inspection.job = NULL;
	if (s->state == SESSION_INSPECTING)
		shared_tested(s, r->shared_in_use);
	session_unuse(s);
}

void inspection_test_shared(struct session *s, void (*then)(struct session *s))
{
	struct inspect_request request = {.peer = s->peer,
					  .known = true,
					  .test_shared = true,
					  .space = s->request.space,
					  .from = s->request.from,
					  .to = s->request.to};

	s->inspection.then = then;
	if (s->waiter.lock->file->away &&
	    away_test_shared(&s->reading, s->waiter.lock->file->away, s->request.space, s->request.from, s->request.to,
			     on_away_tested)) {
		s->state = SESSION_INSPECTING;
		uv_timer_start(&s->timer, on_inspection_slow, INSPECTION_SLOW_MS, 0);
		return;
	}
	request.fd = fcntl(s->waiter.lock->file->fd, F_DUPFD_CLOEXEC, 3);
	if (request.fd < 0)
		session_refuse(s, "the keeper has no descriptor left: %s", strerror(errno));
	else
		inspection_start(s, s->waiter.lock->file->key.dev, &request, on_shared_tested);
}
