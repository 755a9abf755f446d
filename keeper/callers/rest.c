/* See rest.h. */
#include "keeper/callers/rest.h"

#include <errno.h>
#include <poll.h>
#include <utlist.h>

#include "keeper/callers/dispatch.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"

static void on_rest_over(uv_timer_t *timer)
{
	rest_look(timer->data);
}

void rest_start(struct keeper *k)
{
	uv_timer_init(k->loop, &k->sessions->rest);
	k->sessions->rest.data = k;
}

void rest_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->sessions->rest, NULL);
}

void rest_begin(struct session *s)
{
	struct sessions *sessions = s->keeper->sessions;

	if (s->waiter.rests && !uv_is_active((uv_handle_t *)&sessions->rest))
		uv_timer_start(&sessions->rest, on_rest_over, REST_MS, 0);
}

/* The first ones of the list; it changes meanwhile. */
static unsigned rest_collect(struct keeper *k, struct session *some[REST_MOST], struct pollfd polls[REST_MOST])
{
	struct session *s;
	unsigned count = 0;

	DL_FOREACH2 (k->sessions->resting, s, rest_next) {
		if (count == REST_MOST)
			break;
		some[count] = s;
		polls[count++] = (struct pollfd){.fd = s->fd};
	}
	return count;
}

void rest_look(struct keeper *k)
{
	struct session *some[REST_MOST];
	struct pollfd polls[REST_MOST];
	unsigned count = rest_collect(k, some, polls);
	int ret = poll(polls, count, 0);

	/* A session that was closed meanwhile is freed by the loop, later. One that poll() or epoll has no memory for rests on. */
	for (unsigned i = 0; i < count && ret >= 0; i++) {
		if (!some[i]->waiter.rests)
			continue;
		if (polls[i].revents & POLLHUP)
			dispatch_close(some[i]);
		else
			session_watch(some[i]);
		queue_settle(k);
	}
	if (k->sessions->resting)
		rest_begin(k->sessions->resting);
}
