/*
 * See probe.h. The thread posts its answers to a list under a mutex and wakes the loop.
 *
 * Stopping: the loop sets `stop` and sends SIGUSR2, whose empty handler has no SA_RESTART, so that a
 * waiting flock() returns EINTR and the thread sees `stop`. A signal that arrives after the thread has
 * looked at `stop` and before it is inside flock() would be lost: so a timer sends it again until the
 * thread has posted its last answer.
 */
#include "keeper/probe.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <utlist.h>

#define RESIGNAL_MS  5
#define THREAD_STACK (128u << 10)

struct posted {
	struct probe *probe;
	enum probe_answer answer;
	int error;
	bool last;
	struct posted *prev, *next;
};

struct probes {
	uv_async_t wake;
	uv_timer_t resignal;
	pthread_mutex_t mutex;
	struct posted *posted;
	struct probe *stopping; /* told to stop, last answer not taken */
	unsigned running;
};

struct probe {
	struct probes *probes;
	pthread_t thread;
	int fd;
	bool shared_will_do, wait;
	bool stop; /* atomic */
	bool told; /* in probes->stopping */
	probe_cb *cb;
	void *arg;
	struct posted answers[2]; /* in use, and the last one */
	struct probe *prev, *next;
};

static void post(struct probe *probe, enum probe_answer answer, int error, bool last)
{
	struct posted *p = &probe->answers[last];

	*p = (struct posted){.probe = probe, .answer = answer, .error = error, .last = last};
	pthread_mutex_lock(&probe->probes->mutex);
	DL_APPEND(probe->probes->posted, p);
	/* Under the mutex: after it the loop may free the probe, and after the last one `probes`. */
	uv_async_send(&probe->probes->wake);
	pthread_mutex_unlock(&probe->probes->mutex);
}

/* What a lock taken with this operation shows. */
static enum probe_answer taken(int op)
{
	return (op & LOCK_EX) ? PROBE_FREE : PROBE_SHARED;
}

static void *probe_main(void *arg)
{
	struct probe *probe = arg;
	int op = LOCK_EX;
	int err = 0;

	if (flock(probe->fd, LOCK_EX | LOCK_NB) == 0) {
		post(probe, PROBE_FREE, 0, true);
		return NULL;
	}
	if (errno == EWOULDBLOCK && probe->shared_will_do) {
		op = LOCK_SH;
		if (flock(probe->fd, LOCK_SH | LOCK_NB) == 0) {
			post(probe, PROBE_SHARED, 0, true);
			return NULL;
		}
	}
	if (errno != EWOULDBLOCK)
		err = errno;
	if (err == EINTR) { /* on a network even this may wait, and only probe_stop() sends signals */
		post(probe, PROBE_STOPPED, 0, true);
		return NULL;
	}
	if (err || !probe->wait) {
		post(probe, err ? PROBE_STOPPED : PROBE_IN_USE, err, true);
		return NULL;
	}
	post(probe, PROBE_IN_USE, 0, false);
	while (!__atomic_load_n(&probe->stop, __ATOMIC_ACQUIRE)) {
		if (flock(probe->fd, op) == 0) {
			post(probe, taken(op), 0, true);
			return NULL;
		}
		if (errno != EINTR) {
			err = errno;
			break;
		}
	}
	post(probe, PROBE_STOPPED, err, true);
	return NULL;
}

static void forget(struct probes *probes, struct probe *probe)
{
	pthread_join(probe->thread, NULL); /* it has posted its last answer: no wait worth speaking of */
	if (probe->told)
		DL_DELETE(probes->stopping, probe);
	if (!probes->stopping)
		uv_timer_stop(&probes->resignal);
	if (--probes->running == 0)
		uv_unref((uv_handle_t *)&probes->wake);
	free(probe);
}

static void on_wake(uv_async_t *wake)
{
	struct probes *probes = wake->data;

	for (;;) {
		pthread_mutex_lock(&probes->mutex);
		struct posted *p = probes->posted;
		if (p)
			DL_DELETE(probes->posted, p);
		pthread_mutex_unlock(&probes->mutex);
		if (!p)
			return;
		struct posted posted = *p;
		probe_cb *cb = posted.probe->cb;
		void *arg = posted.probe->arg;

		if (posted.last)
			forget(probes, posted.probe);
		cb(arg, posted.answer, posted.error);
	}
}

static void on_resignal(uv_timer_t *timer)
{
	struct probes *probes = timer->data;
	struct probe *probe;

	DL_FOREACH (probes->stopping, probe)
		pthread_kill(probe->thread, SIGUSR2);
}

static void on_signal(int sig)
{
	(void)sig;
}

struct probes *probes_new(uv_loop_t *loop)
{
	struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: flock() must come back */
	struct probes *probes = calloc(1, sizeof(*probes));

	if (!probes)
		return NULL;
	sigaction(SIGUSR2, &action, NULL);
	pthread_mutex_init(&probes->mutex, NULL);
	uv_async_init(loop, &probes->wake, on_wake);
	uv_timer_init(loop, &probes->resignal);
	probes->wake.data = probes->resignal.data = probes;
	uv_unref((uv_handle_t *)&probes->wake);
	uv_unref((uv_handle_t *)&probes->resignal);
	return probes;
}

static void on_closed(uv_handle_t *handle)
{
	struct probes *probes = handle->data;

	pthread_mutex_destroy(&probes->mutex);
	free(probes);
}

void probes_free(struct probes *probes)
{
	if (!probes)
		return;
	uv_close((uv_handle_t *)&probes->resignal, NULL);
	uv_close((uv_handle_t *)&probes->wake, on_closed);
}

struct probe *probe_start(struct probes *probes, int fd, bool shared_will_do, bool wait, probe_cb *cb, void *arg)
{
	struct probe *probe = calloc(1, sizeof(*probe));
	pthread_attr_t attr;
	sigset_t all, old;
	int err;

	if (!probe)
		return NULL;
	*probe = (struct probe){
	    .probes = probes, .fd = fd, .shared_will_do = shared_will_do, .wait = wait, .cb = cb, .arg = arg};
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	sigfillset(&all);
	sigdelset(&all, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&probe->thread, &attr, probe_main, probe);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err) {
		free(probe);
		errno = err;
		return NULL;
	}
	if (probes->running++ == 0)
		uv_ref((uv_handle_t *)&probes->wake);
	return probe;
}

void probe_stop(struct probe *probe)
{
	struct probes *probes = probe->probes;

	if (probe->told)
		return;
	probe->told = true;
	__atomic_store_n(&probe->stop, true, __ATOMIC_RELEASE);
	DL_APPEND(probes->stopping, probe);
	pthread_kill(probe->thread, SIGUSR2);
	uv_timer_start(&probes->resignal, on_resignal, RESIGNAL_MS, RESIGNAL_MS);
}
