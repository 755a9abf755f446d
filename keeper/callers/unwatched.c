/*
 * See unwatched.h. Epoll reports once what comes on a watched connection (EPOLLONESHOT); then it is unwatched again.
 *
 * Why nothing is missed. Epoll reports the present state of what it begins to watch (level-triggered), so whatever has come
 * meanwhile is reported then. Only a look can find out that a peer has hung up, so there is one before anything rests on that:
 * - before the loop sleeps, if a lease waits for the end of a pin, or a caller for room;
 * - before a connection is refused because there are too many, and when the leases have ceased to be sure (keeper.c);
 * - LOOK_MS after the first of them came, in any case. For so long a caller that was killed stands in a queue, or a pin outlives
 *   its caller, at most.
 * Only a connection that is still silent has to be watched at once, and one that will ask about the locks that its program has.
 */
#include "keeper/callers/unwatched.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <utlist.h>

#include "keeper/callers/dispatch.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"

#define LOOK_MS 10

struct unwatched {
	uv_timer_t timer;
	uv_prepare_t turn; /* active, as the timer, while there are such sessions */
};

static void on_unwatched_timer(uv_timer_t *timer);

static void unwatched_watch(struct session *s)
{
	if (session_watch(s) == 0)
		return;
	session_refuse_call(s, REFUSAL_ROOM, true, "the keeper has no memory left");
	dispatch_close(s);
}

unsigned unwatched_look(struct keeper *k)
{
	struct session *looked[SESSIONS_UNWATCHED], *s;
	struct pollfd ends[SESSIONS_UNWATCHED];
	unsigned closed = 0;
	nfds_t count = 0;

	DL_FOREACH2 (k->sessions->unwatched, s, unwatched_next) {
		if (count == SESSIONS_UNWATCHED)
			break; /* on_unwatched_timer() */
		looked[count] = s;
		ends[count++] = (struct pollfd){.fd = s->fd};
	}
	if (count)
		poll(ends, count, 0); /* if it fails, epoll tells */
	for (nfds_t i = 0; i < count; i++) {
		if (ends[i].revents & POLLHUP) { /* mutant: unwatched-gone */
			dispatch_close(looked[i]);
			closed++;
		} else {
			unwatched_watch(looked[i]);
		}
	}
	return closed;
}

/* Does anything wait for what only a look can find out? */
static bool unwatched_is_wanted(const struct keeper *k)
{
	for (int i = 0; i < WIRE_SPACES; i++) {
		const unsigned *count = k->lease_states.count[i];

		if (count[LEASE_DRAINING] || count[LEASE_BREAKING]) /* mutant: unwatched-pins */
			return true;
	}
	return k->room.roomless;
}

static bool unwatched_must_be_watched(const struct session *s)
{
	return !s->received_ns || before_count(&s->before);
}

/* Before the loop sleeps. */
static void on_unwatched_turn(uv_prepare_t *turn)
{
	struct keeper *k = turn->data;
	struct session *s, *next;

	if (unwatched_is_wanted(k))
		unwatched_look(k);
	else
		DL_FOREACH_SAFE2 (k->sessions->unwatched, s, next, unwatched_next)
			if (unwatched_must_be_watched(s)) /* mutant: unwatched-silent */
				unwatched_watch(s);
	if (!k->sessions->unwatched) {
		uv_prepare_stop(turn);
		uv_timer_stop(&k->unwatched->timer);
	}
	queue_settle(k);
}

void unwatched_came(struct keeper *k)
{
	if (!k->sessions->unwatched)
		return;
	if (!uv_is_active((uv_handle_t *)&k->unwatched->turn))
		uv_prepare_start(&k->unwatched->turn, on_unwatched_turn);
	if (!uv_is_active((uv_handle_t *)&k->unwatched->timer))
		uv_timer_start(&k->unwatched->timer, on_unwatched_timer, LOOK_MS, 0);
}

static void on_unwatched_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	unwatched_look(k);
	unwatched_came(k);
	queue_settle(k);
}

int unwatched_start(struct keeper *k)
{
	k->unwatched = calloc(1, sizeof(*k->unwatched));
	if (!k->unwatched)
		return -ENOMEM;
	uv_prepare_init(k->loop, &k->unwatched->turn);
	uv_timer_init(k->loop, &k->unwatched->timer);
	k->unwatched->timer.data = k->unwatched->turn.data = k;
	return 0;
}

void unwatched_free(struct keeper *k)
{
	free(k->unwatched);
	k->unwatched = NULL;
}
