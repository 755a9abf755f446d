/*
 * What the keeper uses of libuv, on the scheduler's time. A keeper's task waits in uv_run(); what is due comes as an
 * item of its host's inbox, one at a time, and after each the scheduler has its turn. Timers may be early by a
 * millisecond, since libuv's clock is read once per turn and in whole milliseconds.
 *
 * libuv itself is linked, too, for what has no clock and no loop (uv_strerror() and the like).
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "tests/sim/loop.h"

struct armed {
	uv_timer_t *timer;
	uint64_t id;
	int64_t due_ns; /* sim_now */
	struct armed *next;
};
struct closing {
	uv_handle_t *handle;
	uv_close_cb cb;
	struct closing *next;
};

struct loop loops[SIM_HOSTS];
static uint64_t ids;

/* --- the inbox --- */

static void wake(void *arg, uint64_t life)
{
	struct host *host = arg;

	if (!host_lives(host, (unsigned)life))
		return;
	host->kicked = false;
	if (!host->idle)
		return; /* suspended in the middle of something: the function that did that resumes it */
	if (sim_now < host->stopped_until) {
		host->kicked = true;
		sim_at(host->stopped_until, wake, host, life);
		return;
	}
	task_resume(host->keeper);
}

static void kick(struct host *host)
{
	if (host->kicked || !host->keeper)
		return;
	host->kicked = true;
	sim_after(rng_between(&host->rng, 5000, 50000), wake, host, host->life);
}

void host_post(struct host *host, sim_fn *fn, void *arg, uint64_t number)
{
	struct item *item = sim_new(sizeof(*item));

	*item = (struct item){.fn = fn, .arg = arg, .number = number};
	DL_APPEND(host->inbox, item);
	kick(host);
}

static bool run_item(struct host *host)
{
	struct item *item = host->inbox;

	if (!item)
		return false;
	DL_DELETE(host->inbox, item);
	item->fn(item->arg, item->number);
	free(item);
	return true;
}

/* --- handles --- */

int uv_loop_init(uv_loop_t *loop)
{
	struct host *host = task_host(task_now);

	memset(loop, 0, sizeof(*loop));
	loop->data = host;
	loops[host->id] = (struct loop){.uv = loop};
	return 0;
}

int uv_loop_close(uv_loop_t *loop) { return 0; }

void uv_walk(uv_loop_t *loop, uv_walk_cb cb, void *arg)
{
	(void)loop, (void)cb, (void)arg; /* what is not closed is dropped with the process */
}

static struct armed *find_timer(const struct loop *l, const uv_timer_t *timer)
{
	struct armed *armed;

	LL_SEARCH_SCALAR(l->armed, armed, timer, timer);
	return armed;
}

static void forget_timer(struct loop *l, const uv_timer_t *timer)
{
	struct armed *armed = find_timer(l, timer);

	if (armed)
		LL_DELETE(l->armed, armed);
	free(armed);
}

void uv_close(uv_handle_t *handle, uv_close_cb cb)
{
	struct loop *l = loop_of(handle->loop);
	struct closing *closing = sim_new(sizeof(*closing));

	if (handle->type == UV_TIMER)
		forget_timer(l, (uv_timer_t *)handle);
	if (handle->type == UV_POLL)
		loop_forget_poll(l, (uv_poll_t *)handle);
	*closing = (struct closing){.handle = handle, .cb = cb};
	LL_PREPEND(l->closing, closing);
}

int uv_is_closing(const uv_handle_t *handle) { return 0; /* only asked in uv_walk() */ }

int uv_is_active(const uv_handle_t *handle)
{
	return handle->type == UV_TIMER && find_timer(loop_of(handle->loop), (const uv_timer_t *)handle) != NULL;
}

void uv_ref(uv_handle_t *handle) {}
void uv_unref(uv_handle_t *handle) {}

static void run_closing(struct loop *l)
{
	while (l->closing) {
		struct closing *c = l->closing;

		l->closing = c->next;
		if (c->cb)
			c->cb(c->handle);
		free(c);
	}
}

/* --- timers --- */

static void fire_item(void *arg, uint64_t id)
{
	uv_timer_t *timer = arg;
	struct loop *l = &loops[task_host(task_now)->id];
	const struct armed *armed = find_timer(l, timer);

	if (!armed || armed->id != id)
		return; /* stopped meanwhile; it may not even be there any more */
	forget_timer(l, timer);
	if (timer->repeat)
		uv_timer_start(timer, timer->timer_cb, timer->repeat, timer->repeat);
	timer->timer_cb(timer);
}

struct due {
	struct host *host;
	unsigned life;
	uv_timer_t *timer;
};

static void fire(void *arg, uint64_t id)
{
	struct due *due = arg;

	if (host_lives(due->host, due->life)) {
		const struct armed *armed = find_timer(&loops[due->host->id], due->timer);

		if (armed && armed->id == id)
			host_post(due->host, fire_item, due->timer, id);
	}
	free(due);
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
	memset(timer, 0, sizeof(*timer));
	timer->loop = loop;
	timer->type = UV_TIMER;
	return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
	struct host *host = host_of(timer->loop);
	struct loop *l = loop_of(timer->loop);
	struct armed *armed;
	struct due *due;
	int64_t ns = (int64_t)timeout * MS;

	if (!cb)
		return UV_EINVAL;
	armed = sim_new(sizeof(*armed));
	due = sim_new(sizeof(*due));
	forget_timer(l, timer);
	timer->timer_cb = cb;
	timer->repeat = repeat;
	if (timeout)
		ns -= rng_between(&host->rng, 0, MS);
	*armed = (struct armed){.timer = timer, .id = ++ids, .due_ns = host_after(host, ns), .next = l->armed};
	l->armed = armed;
	*due = (struct due){.host = host, .life = host->life, .timer = timer};
	sim_at(armed->due_ns, fire, due, armed->id);
	return 0;
}

uint64_t uv_timer_get_due_in(const uv_timer_t *timer)
{
	const struct armed *armed = find_timer(loop_of(timer->loop), timer);

	return armed && armed->due_ns > sim_now ? (uint64_t)(armed->due_ns - sim_now) / MS : 0;
}

int uv_timer_stop(uv_timer_t *timer)
{
	forget_timer(loop_of(timer->loop), timer);
	return 0;
}

/* --- the loop --- */

void uv_stop(uv_loop_t *loop) { loop->stop_flag = 1; }

int uv_run(uv_loop_t *loop, uv_run_mode mode)
{
	struct host *host = host_of(loop);
	struct loop *l = loop_of(loop);

	for (;;) {
		run_closing(l);
		if (loop->stop_flag)
			break;
		/* The second time is for handles that are left to end. */
		if (host->ending && !host->works && !host->inbox)
			return 0;
		host->idle = true;
		if (host->inbox)
			kick(host);
		task_yield();
		host->idle = false;
		run_item(host);
		run_closing(l);
		programs_answered(host);
	}
	loop->stop_flag = 0;
	host->ending = true;
	return 0;
}

void loop_drop(struct host *host)
{
	struct loop *l = &loops[host->id];
	struct item *item, *next;

	DL_FOREACH_SAFE (host->inbox, item, next)
		free(item);
	host->inbox = NULL;
	host->works = 0;
	*l = (struct loop){0};
}
