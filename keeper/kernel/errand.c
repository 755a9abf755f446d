/* See errand.h. */
#include "keeper/kernel/errand.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "keeper/clock.h"

#define STACK_BYTES (128 * 1024)

struct errand {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	void (*run)(void *memory);
	void (*done)(void *memory);
	void *memory;
	bool ended;
	int users; /* the thread and the caller */
};

static int errands_under_way; /* threads that have not ended */
static pthread_once_t errand_watched_forks = PTHREAD_ONCE_INIT;

/* A forked child has none of its parent's threads. */
static void errand_after_fork(void)
{
	errands_under_way = 0;
}

static void errand_watch_forks(void)
{
	pthread_atfork(NULL, NULL, errand_after_fork);
}

static void errand_let_go(struct errand *e)
{
	bool last;

	pthread_mutex_lock(&e->mutex);
	last = --e->users == 0;
	pthread_mutex_unlock(&e->mutex);
	if (!last)
		return;
	e->done(e->memory);
	pthread_cond_destroy(&e->cond);
	pthread_mutex_destroy(&e->mutex);
	free(e);
}

static void *errand_main(void *arg)
{
	struct errand *e = arg;

	e->run(e->memory);
	pthread_mutex_lock(&e->mutex);
	e->ended = true;
	pthread_cond_signal(&e->cond);
	pthread_mutex_unlock(&e->mutex);
	errand_let_go(e);
	__atomic_sub_fetch(&errands_under_way, 1, __ATOMIC_RELAXED);
	return NULL;
}

int errand_thread(size_t stack_bytes, int but_signal, void *(*run)(void *arg), void *arg)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	sigfillset(&all);
	if (but_signal)
		sigdelset(&all, but_signal);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, stack_bytes);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

struct errand *errand_start(void (*work)(void *memory), void (*done)(void *memory), void *memory)
{
	struct errand *e = NULL;
	pthread_condattr_t attr;

	pthread_once(&errand_watched_forks, errand_watch_forks);
	if (__atomic_add_fetch(&errands_under_way, 1, __ATOMIC_RELAXED) <= ERRANDS_MAX)
		e = calloc(1, sizeof(*e));
	if (e) {
		*e = (struct errand){.run = work, .done = done, .memory = memory, .users = 2};
		pthread_mutex_init(&e->mutex, NULL);
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&e->cond, &attr);
		pthread_condattr_destroy(&attr);
		if (errand_thread(STACK_BYTES, 0, errand_main, e) == 0)
			return e;
		pthread_cond_destroy(&e->cond);
		pthread_mutex_destroy(&e->mutex);
	}
	__atomic_sub_fetch(&errands_under_way, 1, __ATOMIC_RELAXED);
	free(e);
	done(memory);
	return NULL;
}

bool errand_wait(struct errand *e, int ms)
{
	struct timespec until;
	bool ended;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * NS_PER_MS;
	if (until.tv_nsec >= 1000 * NS_PER_MS) {
		until.tv_nsec -= 1000 * NS_PER_MS;
		until.tv_sec++;
	}
	pthread_mutex_lock(&e->mutex);
	while (!e->ended && pthread_cond_timedwait(&e->cond, &e->mutex, &until) == 0)
		;
	ended = e->ended;
	pthread_mutex_unlock(&e->mutex);
	return ended;
}

void errand_leave(struct errand *e)
{
	errand_let_go(e);
}
