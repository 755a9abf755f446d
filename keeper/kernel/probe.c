/*
 * See probe.h. A thread posts its answers to a list under a mutex and wakes the loop. What is tested at once is posted by
 * the loop itself, which delivers it before it sleeps the next time (on_turn()).
 *
 * Threads: a probe that needs one is put into `jobs`. A parked thread takes it, or a new thread is started: there are never
 * more jobs than parked threads that have been woken for them. So no job waits for a thread that works for another probe,
 * which may take for ever. A thread that has finished takes the next job if there is one, parks if fewer than PARKED_MAX
 * threads are parked, and else ends. (To start a thread, or to end one, takes a good part of the time of a hand-over.)
 *
 * Stopping: the loop sets `stop` and sends SIGUSR2, whose empty handler has no SA_RESTART, so that a
 * waiting flock() returns EINTR and the thread sees `stop`. A signal that arrives after the thread has
 * looked at `stop` and before it is inside flock() would be lost: so a timer sends it again until the
 * thread has posted its last answer. A thread gets signals for a probe only while it works for it (`works`, under the mutex).
 */
#include "keeper/kernel/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/kernel/errand.h"
#include "keeper/kernel/getlk.h"

#define RESIGNAL_MS  5
#define THREAD_STACK (128u << 10)
#define PARKED_MAX   4

struct posted {
	struct probe *probe;
	enum probe_answer answer;
	int error;
	bool last;
	struct posted *prev, *next;
};

struct probes {
	int wake_fd; /* eventfd: a thread has put something into `posted` */
	uv_poll_t wake;
	uv_prepare_t turn; /* active while there are probes */
	uv_timer_t resignal;
	struct probe *stopping; /* told to stop, last answer not taken */
	unsigned running;

	pthread_mutex_t mutex; /* for all below */
	struct posted *posted;
	pthread_cond_t work; /* there is a job, or `ending` */
	struct probe *jobs;  /* probes that wait for a thread ... */
	unsigned job_count;  /* ... no more than `parked` */
	unsigned parked;     /* threads that wait for a job */
	unsigned users;      /* threads, and handles that are not closed: the last one frees this */
	bool ending;
};

struct probe {
	struct probes *probes;
	int fd;
	struct probe_want want;
	bool tested; /* by the loop: the thread has only to wait */
	bool stop;   /* atomic */
	bool told;   /* in probes->stopping */
	pthread_t thread;
	bool works;                        /* `thread` works for this probe */
	struct probe *job_prev, *job_next; /* probes->jobs */
	probe_fire_fn *fire;               /* under the mutex; NULL: not armed */
	void *fire_arg;
	probe_cb *cb;
	void *arg;
	struct posted answers[2]; /* in use, and the last one */
	struct probe *prev, *next;
};

/* Under the mutex. */
static void put(struct probe *probe, enum probe_answer answer, int error, bool last)
{
	struct posted *p = &probe->answers[last];

	*p = (struct posted){.probe = probe, .answer = answer, .error = error, .last = last};
	DL_APPEND(probe->probes->posted, p);
}

/* By the thread; the last answer is its last use of the probe. */
static void post(struct probe *probe, enum probe_answer answer, int error, bool last)
{
	struct probes *probes = probe->probes;
	bool fired = false;

	pthread_mutex_lock(&probes->mutex);
	if (answer == PROBE_FREE && probe->fire) /* mutant: fire-free */
		fired = probe->fire(probe->fire_arg);
	put(probe, answer, error, last);
	if (last)
		probe->works = false;
	if (!fired)
		eventfd_write(probes->wake_fd, 1);
	pthread_mutex_unlock(&probes->mutex);
}

static bool told_to_stop(const struct probe *probe)
{
	return __atomic_load_n(&probe->stop, __ATOMIC_ACQUIRE);
}

/* --- flock: to take the lock is the test --- */

/* 1: taken. 0: another process has it. -errno. */
static int try_flock(int fd, int op)
{
	if (flock(fd, op | LOCK_NB) == 0)
		return 1;
	return errno == EWOULDBLOCK ? 0 : -errno;
}

static int test_flock(const struct probe *probe, enum probe_answer *answer)
{
	int ret = try_flock(probe->fd, LOCK_EX);

	*answer = PROBE_FREE;
	if (ret == 0 && probe->want.shared_will_do) {
		ret = try_flock(probe->fd, LOCK_SH);
		*answer = PROBE_SHARED;
	}
	if (ret == 1)
		flock(probe->fd, LOCK_UN);
	return ret;
}

static int wait_flock(const struct probe *probe, enum probe_answer *answer)
{
	*answer = probe->want.shared_will_do ? PROBE_SHARED : PROBE_FREE;
	if (flock(probe->fd, probe->want.shared_will_do ? LOCK_SH : LOCK_EX) != 0)
		return -errno;
	flock(probe->fd, LOCK_UN);
	return 1;
}

/* --- records --- */

static struct flock record(const struct probe *probe, enum wire_mode mode)
{
	return getlk_flock(mode, probe->want.from, probe->want.to);
}

static int test_record(const struct probe *probe, int fd, enum probe_answer *answer)
{
	struct flock lock = record(probe, WIRE_EXCLUSIVE);

	*answer = PROBE_FREE;
	if (fcntl(fd, F_OFD_GETLK, &lock) != 0)
		return -errno;
	if (lock.l_type == F_UNLCK) /* mutant: record-free */
		return 1;
	if (!probe->want.shared_will_do)
		return 0;
	*answer = PROBE_SHARED;
	lock = record(probe, WIRE_SHARED);
	if (fcntl(fd, F_OFD_GETLK, &lock) != 0)
		return -errno;
	return lock.l_type == F_UNLCK;
}

/* For a file of which no description may take the lock: asks at growing intervals. A signal ends a pause early. */
static int poll_record(const struct probe *probe, int fd, enum probe_answer *answer)
{
	struct timespec pause = {.tv_nsec = 1000000};
	int ret;

	while ((ret = test_record(probe, fd, answer)) == 0 && !told_to_stop(probe)) {
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 64000000)
			pause.tv_nsec *= 2;
	}
	return ret ? ret : -EINTR;
}

/*
 * A thread that waits does so with a POSIX lock, and has a descriptor table of its own, since POSIX locks belong to the
 * table. An OFD lock will not do: Linux (6.18) looks for no deadlock among waiters behind a waiting OFD lock, so two
 * local programs that wait for each other's locks would both wait for ever. The table keeps only what post() needs.
 */
static int leave_table(const struct probe *probe)
{
	unsigned wake_fd = (unsigned)probe->probes->wake_fd;

	if (close_range(wake_fd + 1, ~0u, CLOSE_RANGE_UNSHARE) != 0)
		return -errno;
	close_range(3, wake_fd - 1, 0);
	return 0;
}

/* Opens the file by the first thread's descriptor of it. */
static int open_anew(const struct probe *probe, int mode)
{
	char link[64];

	snprintf(link, sizeof(link), "/proc/%d/task/%d/fd/%d", (int)getpid(), (int)getpid(), probe->fd);
	return open(link, mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static int wait_record(const struct probe *probe, enum probe_answer *answer)
{
	struct flock lock = record(probe, probe->want.shared_will_do ? WIRE_SHARED : WIRE_EXCLUSIVE);
	const short type = lock.l_type;
	int fd, ret;

	if (leave_table(probe) < 0)
		return poll_record(probe, probe->fd, answer);
	fd = open_anew(probe, type == F_WRLCK ? O_RDWR : O_RDONLY);
	if (fd < 0) {
		fd = open_anew(probe, O_RDONLY);
		ret = fd < 0 ? -errno : poll_record(probe, fd, answer);
		goto out;
	}
	do {
		lock.l_type = type;
		ret = fcntl(fd, F_SETLKW, &lock) == 0 ? 1 : -errno;
		lock.l_type = F_UNLCK;
		fcntl(fd, F_SETLK, &lock);
		/* The thread took the lock and let it go: a last look shows what another program took in between. */
		if (ret == 1)
			ret = test_record(probe, fd, answer);
	} while ((ret == 0 || ret == -EINTR) && !told_to_stop(probe));
out:
	if (fd >= 0)
		close(fd);
	return ret;
}

/* --- both --- */

static int test(const struct probe *probe, enum probe_answer *answer)
{
	return probe->want.space == WIRE_FLOCK ? test_flock(probe, answer) : test_record(probe, probe->fd, answer);
}

/* In a thread. False: it has left the descriptor table, and can work for no other probe. */
static bool probe_run(struct probe *probe)
{
	bool flocks = probe->want.space == WIRE_FLOCK, waits = probe->want.wait, waited = false;
	enum probe_answer answer;
	int ret = probe->tested ? 0 : test(probe, &answer);

	if (ret == 0 && !probe->tested)
		post(probe, PROBE_IN_USE, 0, !waits);
	if (ret == 0 && !waits)
		return true;
	while (ret == 0 && !told_to_stop(probe)) {
		waited = true;
		ret = flocks ? wait_flock(probe, &answer) : wait_record(probe, &answer);
		if (ret == -EINTR)
			ret = 0;
	}
	/* On a network even the test may wait: only probe_stop() sends signals. */
	if (ret == -EINTR)
		ret = 0;
	post(probe, ret > 0 ? answer : PROBE_STOPPED, -(ret < 0 ? ret : 0), true);
	return flocks || !waited; /* mutant: probe-left-table */
}

/* --- threads --- */

/* NULL: the thread ends. */
static struct probe *take_job(struct probes *probes)
{
	struct probe *probe;

	pthread_mutex_lock(&probes->mutex);
	if (!probes->jobs && probes->parked < PARKED_MAX && !probes->ending) { /* mutant: probe-parked */
		probes->parked++;
		while (!probes->jobs && !probes->ending)
			pthread_cond_wait(&probes->work, &probes->mutex);
		probes->parked--;
	}
	probe = probes->jobs;
	if (probe) {
		DL_DELETE2(probes->jobs, probe, job_prev, job_next);
		probes->job_count--;
		probe->thread = pthread_self();
		probe->works = true;
	}
	pthread_mutex_unlock(&probes->mutex);
	return probe;
}

static void drop_user(struct probes *probes)
{
	bool last;

	pthread_mutex_lock(&probes->mutex);
	last = --probes->users == 0;
	pthread_mutex_unlock(&probes->mutex);
	if (!last)
		return;
	pthread_cond_destroy(&probes->work);
	pthread_mutex_destroy(&probes->mutex);
	close(probes->wake_fd);
	free(probes);
}

static void *thread_main(void *arg)
{
	struct probes *probes = arg;
	struct probe *probe;

	while ((probe = take_job(probes)))
		if (!probe_run(probe))
			break;
	drop_user(probes);
	return NULL;
}

/* 0 or an errno: then no thread will come. */
static int add_job(struct probe *probe)
{
	struct probes *probes = probe->probes;
	bool needs_thread;
	int err = 0;

	pthread_mutex_lock(&probes->mutex);
	DL_APPEND2(probes->jobs, probe, job_prev, job_next);
	probes->job_count++;
	needs_thread = probes->job_count > probes->parked;
	if (needs_thread) {
		/* Under the mutex: no other thread takes the job meanwhile, so it can be taken back. */
		probes->users++;
		err = errand_thread(THREAD_STACK, SIGUSR2, thread_main, probes);
	}
	if (err) {
		DL_DELETE2(probes->jobs, probe, job_prev, job_next);
		probes->job_count--;
		probes->users--;
	}
	pthread_mutex_unlock(&probes->mutex);
	if (!needs_thread)
		pthread_cond_signal(&probes->work);
	return err;
}

/* --- the loop --- */

static void probe_forget(struct probes *probes, struct probe *probe)
{
	if (probe->told)
		DL_DELETE(probes->stopping, probe);
	if (!probes->stopping)
		uv_timer_stop(&probes->resignal);
	if (--probes->running == 0) {
		uv_unref((uv_handle_t *)&probes->wake);
		uv_prepare_stop(&probes->turn);
	}
	free(probe);
}

static struct posted *next_posted(struct probes *probes)
{
	struct posted *p;

	pthread_mutex_lock(&probes->mutex);
	p = probes->posted;
	if (p)
		DL_DELETE(probes->posted, p);
	pthread_mutex_unlock(&probes->mutex);
	return p;
}

static void deliver(struct probes *probes)
{
	struct posted *p;

	while ((p = next_posted(probes))) {
		struct posted posted = *p;

		posted.probe->cb(posted.probe->arg, posted.answer, posted.error);
		if (posted.last)
			probe_forget(probes, posted.probe);
	}
}

static void on_wake(uv_poll_t *wake, int status, int events)
{
	struct probes *probes = wake->data;
	eventfd_t count;

	(void)status, (void)events;
	eventfd_read(probes->wake_fd, &count);
	deliver(probes);
}

/* Before the loop sleeps. */
static void on_turn(uv_prepare_t *turn)
{
	deliver(turn->data);
}

static void signal_thread(struct probe *probe)
{
	pthread_mutex_lock(&probe->probes->mutex);
	if (probe->works)
		pthread_kill(probe->thread, SIGUSR2);
	pthread_mutex_unlock(&probe->probes->mutex);
}

static void on_resignal(uv_timer_t *timer)
{
	struct probes *probes = timer->data;
	struct probe *probe;

	DL_FOREACH (probes->stopping, probe)
		signal_thread(probe);
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
	probes->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (probes->wake_fd < 0 || uv_poll_init(loop, &probes->wake, probes->wake_fd) != 0) {
		if (probes->wake_fd >= 0)
			close(probes->wake_fd);
		free(probes);
		return NULL;
	}
	sigaction(SIGUSR2, &action, NULL);
	pthread_mutex_init(&probes->mutex, NULL);
	pthread_cond_init(&probes->work, NULL);
	uv_timer_init(loop, &probes->resignal);
	uv_prepare_init(loop, &probes->turn);
	probes->wake.data = probes->resignal.data = probes->turn.data = probes;
	uv_poll_start(&probes->wake, UV_READABLE, on_wake);
	uv_unref((uv_handle_t *)&probes->wake);
	uv_unref((uv_handle_t *)&probes->resignal);
	uv_unref((uv_handle_t *)&probes->turn);
	probes->users = 3;
	return probes;
}

static void on_closed(uv_handle_t *handle)
{
	drop_user(handle->data);
}

void probes_free(struct probes *probes)
{
	if (!probes)
		return;
	pthread_mutex_lock(&probes->mutex);
	probes->ending = true;
	pthread_cond_broadcast(&probes->work);
	pthread_mutex_unlock(&probes->mutex);
	uv_close((uv_handle_t *)&probes->resignal, on_closed);
	uv_close((uv_handle_t *)&probes->turn, on_closed);
	uv_close((uv_handle_t *)&probes->wake, on_closed);
}

/* Tests what needs no thread. False: the probe has still to be tested, or to wait. */
static bool test_at_once(struct probe *probe)
{
	bool waits = probe->want.wait;
	enum probe_answer answer;
	int ret;

	if (!probe->want.local) /* mutant: probe-at-once */
		return false;
	ret = test(probe, &answer);
	probe->tested = true;
	pthread_mutex_lock(&probe->probes->mutex);
	if (ret == 0)
		put(probe, PROBE_IN_USE, 0, !waits);
	else
		put(probe, ret > 0 ? answer : PROBE_STOPPED, -(ret < 0 ? ret : 0), true);
	pthread_mutex_unlock(&probe->probes->mutex);
	return ret != 0 || !waits;
}

/* No thread could be started. */
static void take_back(struct probe *probe)
{
	if (!probe->tested)
		return;
	pthread_mutex_lock(&probe->probes->mutex);
	DL_DELETE(probe->probes->posted, &probe->answers[false]);
	pthread_mutex_unlock(&probe->probes->mutex);
}

struct probe *probe_start(struct probes *probes, int fd, const struct probe_want *want, probe_cb *cb, void *arg)
{
	struct probe *probe = calloc(1, sizeof(*probe));
	int err;

	if (!probe)
		return NULL;
	*probe = (struct probe){.probes = probes, .fd = fd, .want = *want, .cb = cb, .arg = arg};
	err = test_at_once(probe) ? 0 : add_job(probe);
	if (err) {
		take_back(probe);
		free(probe);
		errno = err;
		return NULL;
	}
	if (probes->running++ == 0) {
		uv_ref((uv_handle_t *)&probes->wake);
		uv_prepare_start(&probes->turn, on_turn);
	}
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
	signal_thread(probe);
	uv_timer_start(&probes->resignal, on_resignal, RESIGNAL_MS, RESIGNAL_MS);
}

bool probe_arm(struct probe *probe, probe_fire_fn *fire, void *arg)
{
	struct probes *probes = probe->probes;
	const struct posted *last = &probe->answers[true];
	bool waits;

	pthread_mutex_lock(&probes->mutex);
	waits = probe->want.space == WIRE_FLOCK && !last->probe; /* the last answer is not given */
	if (waits) {
		probe->fire = fire;
		probe->fire_arg = arg;
	}
	pthread_mutex_unlock(&probes->mutex);
	return waits;
}

void probe_disarm(struct probe *probe)
{
	pthread_mutex_lock(&probe->probes->mutex); /* mutant: fire-disarmed */
	probe->fire = NULL;
	pthread_mutex_unlock(&probe->probes->mutex);
}
