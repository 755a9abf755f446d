/* A worker looks at a passed descriptor, or at the file of a lock: the part of lookup.h that need not know the lock. */
#include <stdlib.h>
#include <unistd.h>

#include "keeper/callers/configwatch.h"
#include "keeper/callers/session.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/reading.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"

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
	before_free(&r->before);
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
	reading_release(&s->reading);
}

void lookup_slow(struct session *s, int ms)
{
	if (s->foreign)
		reading_leave(&s->reading);
	lookup_leave(s);
	session_refuse_call(
		s, REFUSAL_FILE, false,
		"its file system has not answered the keeper for %d s: is the server that it is mounted from away?",
		ms / 1000);
}

/* The descriptor stays where it is: even close() may wait for the file system (FUSE). */
static void on_lookup_slow(uv_timer_t *timer)
{
	struct session *s = timer->data;

	if (s->state == SESSION_INSPECTING)
		lookup_slow(s, SLOW_MS);
	queue_settle(s->keeper);
}

void lookup_inspects(struct session *s)
{
	session_enter(s, SESSION_INSPECTING);
	uv_timer_start(&s->timer, on_lookup_slow, SLOW_MS, 0);
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
