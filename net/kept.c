/*
 * See kept.h. A signal is looked for at 5 ms at first, then less often: most waits are short, and a wait of minutes may hear of a
 * signal 50 ms late. After a wait the thread that looks goes on looking for a second, each 50 ms, so that calls which follow need not wake
 * it.
 *
 * A signal of this process's own ends the wait. If it comes just before the thread begins to wait, it is lost; so it is sent again
 * until kept_end().
 */
#include "net/kept.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "wire/sys.h"

#define PAUSE_MIN_NS (5 * INT64_C(1000000))
#define PAUSE_MAX_NS (50 * INT64_C(1000000))
#define IDLE_NS      INT64_C(1000000000)
#define INTERRUPT    SIGUSR1
#define STACK_BYTES  (64 << 10)

static pthread_mutex_t kept_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t kept_changed;
static LIST_HEAD(, kept) kept_calls = LIST_HEAD_INITIALIZER(kept_calls);
static bool kept_sleeps;

static void kept_interrupted(int sig)
{
	(void)sig;
}

static void kept_look(struct kept *kept, int64_t now_ns)
{
	const int signalled = kept->signalled ? 1 : thread_is_signalled(kept->of);

	/* A look that fails for another reason than T's death says nothing, and is repeated. */
	kept->gone |= signalled == -ESRCH;
	kept->signalled |= signalled > 0;
	if (kept->gone || kept->signalled) {
		pthread_kill(kept->waits, INTERRUPT);
		kept->pause_ns = PAUSE_MIN_NS;
	} else if (kept->pause_ns < PAUSE_MAX_NS) {
		kept->pause_ns *= 2;
	}
	kept->look_ns = now_ns + kept->pause_ns;
}

/* Looks at the calls whose time has come. When the next one's time comes; 0: there is none. */
static int64_t kept_look_at_all(void)
{
	const int64_t now_ns = sys_clock_ns(CLOCK_MONOTONIC);
	int64_t next_ns = 0;
	struct kept *kept;

	LIST_FOREACH(kept, &kept_calls, others)
	{
		if (kept->look_ns <= now_ns)
			kept_look(kept, now_ns);
		if (!next_ns || kept->look_ns < next_ns)
			next_ns = kept->look_ns;
	}
	return next_ns;
}

static void kept_sleep_until(int64_t ns)
{
	const struct timespec then = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	pthread_cond_timedwait(&kept_changed, &kept_mutex, &then);
}

static void *kept_watch(void *unused)
{
	int64_t idle_ns = 0; /* since when there is none */

	(void)unused;
	pthread_mutex_lock(&kept_mutex);
	for (;;) {
		const int64_t next_ns = kept_look_at_all(), now_ns = sys_clock_ns(CLOCK_MONOTONIC);

		if (next_ns) {
			idle_ns = 0;
			kept_sleep_until(next_ns);
		} else if (!idle_ns || now_ns - idle_ns < IDLE_NS) {
			idle_ns = idle_ns ? idle_ns : now_ns;
			kept_sleep_until(now_ns + PAUSE_MAX_NS);
		} else {
			idle_ns = 0;
			kept_sleeps = true;
			pthread_cond_wait(&kept_changed, &kept_mutex);
			kept_sleeps = false;
		}
	}
	return NULL;
}

int kept_start(void)
{
	const struct sigaction action = {.sa_handler = kept_interrupted}; /* without SA_RESTART */
	pthread_condattr_t clock;
	pthread_attr_t small;
	pthread_t watch;
	int err;

	sigaction(INTERRUPT, &action, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&kept_changed, &clock);
	pthread_condattr_destroy(&clock);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK_BYTES);
	err = pthread_create(&watch, &small, kept_watch, NULL);
	pthread_attr_destroy(&small);
	return -err;
}

void kept_begin(struct kept *kept, const struct thread *of)
{
	*kept = (struct kept){
		.of = of,
		.waits = pthread_self(),
		.look_ns = sys_clock_ns(CLOCK_MONOTONIC) + PAUSE_MIN_NS,
		.pause_ns = PAUSE_MIN_NS,
	};
	pthread_mutex_lock(&kept_mutex);
	/* Else it looks within PAUSE_MAX_NS. */
	if (kept_sleeps)
		pthread_cond_signal(&kept_changed);
	LIST_INSERT_HEAD(&kept_calls, kept, others);
	pthread_mutex_unlock(&kept_mutex);
}

void kept_end(struct kept *kept)
{
	pthread_mutex_lock(&kept_mutex);
	LIST_REMOVE(kept, others);
	pthread_mutex_unlock(&kept_mutex);
}
