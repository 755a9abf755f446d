/* Does a process hold the lock shared? A worker or a front tries to take it. The part of lookup.h that serve.c
 * calls. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "keeper/callers/session.h"
#include "keeper/fronts/away.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"

static void shared_tested(struct session *s, bool shared)
{
	uv_timer_stop(&s->timer);
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
	if (s->state == SESSION_INSPECTING)
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
