/* A worker looks at a passed descriptor, or at the file of a lock: the part of lookup.h that need not know the lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/callers/configwatch.h"
#include "keeper/callers/session.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/fronts.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"

/* Does a process hold the lock shared? A worker or a front tries to take it. The part of lookup.h that serve.c
 * calls. The session may have been answered meanwhile: then it waits for nothing. */
static void shared_tested(struct session *s, bool shared)
{
	if (s->state != SESSION_INSPECTING)
		return;
	s->shared = shared ? SESSION_SHARED_IN_USE : SESSION_SHARED_FREE;
	session_enter(s, SESSION_WAITING);
	queue_tell(&s->waiter, WAITER_SERVE);
	queue_settle(s->keeper);
}

static void on_away_tested(struct front_connection *reading, bool shared)
{
	shared_tested(reading->owner, shared);
}

static void on_shared_tested(void *arg, struct inspect_result *r)
{
	struct session *s = arg;

	s->lookup.job = NULL;
	shared_tested(s, r->shared_in_use);
	session_unuse(s);
}

void lookup_test_shared(struct session *s)
{
	struct inspect_request request = {.peer = s->peer,
					  .known = true,
					  .test_shared = true,
					  .space = s->request.space,
					  .from = s->request.from,
					  .to = s->request.to};

	if (s->waiter.lock->file->away && away_test_shared(&s->reading, s->waiter.lock->file->away, s->request.space,
							   s->request.from, s->request.to, on_away_tested)) {
		lookup_inspects(s);
		return;
	}
	request.fd = fcntl(s->waiter.lock->file->fd, F_DUPFD_CLOEXEC, 3);
	if (request.fd < 0)
		session_refuse_call(s, REFUSAL_ROOM, true, "the keeper has no descriptor left: %s", strerror(errno));
	else
		lookup_inspect(s, s->waiter.lock->file->key.dev, &request, on_shared_tested);
}

#define SLOW_MS 5000 /* a caller is told that its file's mount hangs */

void lookup_close(struct keeper *k, int fd)
{
	struct inspect_seen seen;
	uint64_t dev;
	bool local = inspect_ground(k->mounts, fd, &dev, &seen) == INSPECT_LOCAL;

	file_close(k, dev, fd, local);
}

void lookup_drop(struct session *s, struct inspect_result *r, struct away *away)
{
	file_close(s->keeper, r->st.st_dev, r->fd, s->lookup.local);
	if (away)
		away_forget(away);
	own_free(&r->before);
}

void lookup_leave(struct session *s)
{
	struct inspect_result *r = s->lookup.found;

	configwatch_leave(&s->look);
	if (s->lookup.held_fd >= 0)
		lookup_close(s->keeper, s->lookup.held_fd);
	s->lookup.held_fd = -1;
	s->lookup.found = NULL;
	if (!r)
		return;
	lookup_drop(s, r, NULL);
	free(r);
	fronts_release(&s->reading);
}

void lookup_slow(struct session *s, int ms)
{
	if (s->foreign)
		fronts_leave(&s->reading);
	lookup_leave(s);
	session_refuse_call(
		s, REFUSAL_FILE, false,
		"its file system has not answered the keeper for %d s: is the server that it is mounted from away?",
		ms / 1000);
}

/* The descriptor stays where it is: even close() may wait for the file system (FUSE). */
static void on_lookup_slow(struct session *s)
{
	lookup_slow(s, SLOW_MS);
}

void lookup_inspects(struct session *s)
{
	session_enter(s, SESSION_INSPECTING);
	session_expect(s, SLOW_MS, on_lookup_slow);
}

void lookup_inspect(struct session *s, uint64_t dev, struct inspect_request *request, inspect_cb *cb)
{
	if (request->foreign && inspect_peer_groups(s->fd, request) < 0) {
		lookup_close(s->keeper, request->fd);
		free(request->groups);
		session_refuse_call(s, REFUSAL_PROGRAM, false, "the keeper cannot see the program's groups");
		return;
	}
	s->lookup.job = inspect_start(s->keeper->workers, dev, request, cb, s);
	if (!s->lookup.job) {
		lookup_close(s->keeper, request->fd);
		free(request->groups);
		session_refuse_call(s, REFUSAL_ROOM, true, "the keeper has no memory left");
		return;
	}
	session_use(s);
	lookup_inspects(s);
}
