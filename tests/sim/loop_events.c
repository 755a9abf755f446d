/* What comes to a keeper's loop (loop.c) from outside: descriptors that are readable, workers that are done, signals. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <utlist.h>

#include "tests/sim/loop.h"

struct watched {
	uv_poll_t *handle;
	int fd;
	uv_poll_cb cb;
	struct watched *next;
};

struct job {
	uv_work_t *work;
	uv_work_cb run;
	uv_after_work_cb done;
	bool ran;
	struct job *next;
};

/* --- polls --- */

void loop_forget_poll(struct loop *l, const uv_poll_t *handle)
{
	struct watched *watched;

	LL_SEARCH_SCALAR(l->watched, watched, handle, handle);
	if (watched)
		LL_DELETE(l->watched, watched);
	free(watched);
}

int uv_poll_init(uv_loop_t *loop, uv_poll_t *handle, int fd)
{
	memset(handle, 0, sizeof(*handle));
	handle->loop = loop;
	handle->type = UV_POLL;
	handle->u.fd = fd;
	return 0;
}

int uv_poll_start(uv_poll_t *handle, int events, uv_poll_cb cb)
{
	struct loop *l = loop_of(handle->loop);
	struct watched *watched = sim_new(sizeof(*watched));

	(void)events; /* readable, always */
	loop_forget_poll(l, handle);
	*watched = (struct watched){.handle = handle, .fd = handle->u.fd, .cb = cb};
	LL_PREPEND(l->watched, watched);
	return 0;
}

int uv_poll_stop(uv_poll_t *handle)
{
	loop_forget_poll(loop_of(handle->loop), handle);
	return 0;
}

bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

static void poll_item(void *arg, uint64_t number)
{
	struct host *host = arg;
	struct loop *l = &loops[host->id];
	struct watched *due[8], *w;
	int count = 0;

	l->poll_posted = false;
	for (w = l->watched; w && count < 8; w = w->next)
		if (is_readable(w->fd))
			due[count++] = w;
	for (int i = 0; i < count; i++)
		due[i]->cb(due[i]->handle, 0, UV_READABLE);
	if (count) /* there may be more, and there will be an item until there is not */
		loop_poll(host);
}

void loop_poll(struct host *host)
{
	struct loop *l = &loops[host->id];

	if (!host->keeper || l->poll_posted || !l->watched)
		return;
	l->poll_posted = true;
	host_post(host, poll_item, host, 0);
}

int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);

/* What is readable already is reported, too. */
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	struct host *host = task_host(task_now);
	int ret = __real_epoll_ctl(epoll, op, fd, event);

	if (host && ret == 0)
		loop_poll(host);
	return ret;
}

/* --- workers --- */

static void work_done(void *arg, uint64_t number)
{
	struct job *job = arg;
	struct host *host = task_host(task_now);

	host->works--;
	job->done(job->work, 0);
	free(job);
}

static void work_run(void *arg, uint64_t life)
{
	struct host *host = arg;
	struct loop *l = &loops[host->id];
	struct job *job = l->jobs;

	if (!host_lives(host, (unsigned)life))
		return;
	LL_DELETE(l->jobs, job);
	job->run(job->work);
	host_post(host, work_done, job, 0);
}

int uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb run, uv_after_work_cb done)
{
	struct host *host = host_of(loop);
	struct loop *l = loop_of(loop);
	struct job *job;

	if (!done) /* it but starts libuv's threads */
		return 0;
	job = sim_new(sizeof(*job));
	work->loop = loop;
	*job = (struct job){.work = work, .run = run, .done = done};
	LL_APPEND(l->jobs, job);
	host->works++;
	sim_after(rng_delay(&host->rng, 50 * MS), work_run, host, host->life);
	return 0;
}

/* --- signals --- */

int uv_signal_init(uv_loop_t *loop, uv_signal_t *handle)
{
	memset(handle, 0, sizeof(*handle));
	handle->loop = loop;
	handle->type = UV_SIGNAL;
	return 0;
}

int uv_signal_start(uv_signal_t *handle, uv_signal_cb cb, int number)
{
	struct loop *l = loop_of(handle->loop);

	if (number != SIGTERM)
		return 0;
	l->signal = handle;
	l->signal_cb = cb;
	return 0;
}

static void signal_item(void *arg, uint64_t number)
{
	struct loop *l = arg;

	l->signal_cb(l->signal, (int)number);
}

void loop_signal(struct host *host, int number)
{
	if (host->keeper && loops[host->id].signal)
		host_post(host, signal_item, &loops[host->id], (uint64_t)number);
}
