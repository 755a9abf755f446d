/* See ending.h. */
#include "keeper/callers/ending.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "keeper/clock.h"
#include "keeper/guard/supervise.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"
#include "keeper/leases/keeper.h"
#include "keeper/callers/session.h"

#define TERM_WAIT_MS 2000 /* for the store's answers */
#define TERM_LOOK_MS 1000 /* the longest pause between two looks whether leases are still in use */

enum ending_state {
	ENDING_NOT,
	ENDING_TOLD,  /* gives back leases that no program uses */
	ENDING_WAITS, /* ... and logs what it waits for */
};

struct ending {
	ending_cb *end;
	enum ending_state state;
	bool unconfirmed; /* leases were on their way back at the end */
	int64_t told_ns;
	uint64_t look_ms; /* runs until the next look whether the keeper can end */
	uv_signal_t sigterm, sigint;
	uv_timer_t idle, term;
};

void ending_now(struct keeper *k, const char *why)
{
	k->ending->end(k, why);
}

void ending_quietly(struct keeper *k, const char *why)
{
	k->ending->unconfirmed = k->leases != NULL;
	if (k->leases)
		log_event(LINE_KEEPER_ENDS,
			  "ends, and the store has not confirmed that all leases were given back: other hosts may have "
			  "to wait for ttl_ms");
	ending_now(k, why);
}

bool ending_was_unconfirmed(const struct keeper *k)
{
	return k->ending->unconfirmed;
}

bool ending_waits(const struct keeper *k)
{
	return k->ending->state == ENDING_WAITS;
}

/* --- no program needs the keeper --- */

bool ending_is_idle(int64_t idle_for_ms, int64_t idle_ms, int64_t ttl_ms)
{
	/* What the keeper has seen of silent hosts serves the next non-blocking call for a little more than a ttl. */
	return idle_for_ms >= (idle_ms < 2 * ttl_ms ? 2 * ttl_ms : idle_ms);
}

static void on_idle_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	const struct config_lease *config = &k->config->lease;

	if (!k->sessions->all && !k->leases &&
	    ending_is_idle((clock_now_ns() - k->sessions->idle_since_ns) / NS_PER_MS, config->idle_ms, config->ttl_ms))
		ending_now(k, "nobody needs it");
}

/* --- the keeper was told to end --- */

void ending_give_back(struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next) {
		if (lease->state != LEASE_OPEN || lease_is_part(lease))
			continue;
		lease->recalled.level = RECALL_LINGER;
		queue_raise(lease, LEASE_CUE_LINGERED);
	}
}

/* How many leases are in use, or may be; and one of them as an example. */
static unsigned count_in_use(const struct keeper *k, const struct lease **one)
{
	const struct lease *lease, *next;
	unsigned count = 0;

	HASH_ITER (hh, k->leases, lease, next) {
		if (!lease_is_ours(lease->state))
			continue;
		*one = lease;
		count++;
	}
	return count;
}

static bool is_releasing(const struct keeper *k)
{
	const struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		if (lease->state == LEASE_RELEASING)
			return true;
	return false;
}

static void say_what_it_waits_for(struct keeper *k, unsigned count, const struct lease *one)
{
	char name[PATH_MAX];

	if (k->ending->state == ENDING_WAITS)
		return;
	k->ending->state = ENDING_WAITS;
	lock_describe(one->lock, name, sizeof(name));
	log_event(LINE_KEEPER_WAITS,
		  "told to end: waits until %u leases are not in use any more, among them %s; see `dflock status`. A "
		  "second signal ends it at once",
		  count, name);
}

static void end_at_once(struct keeper *k)
{
	const struct lease *one;
	unsigned count = count_in_use(k, &one), frozen = table_frozen(k->table);

	if (count)
		log_event(LINE_KEEPER_ENDS,
			  "%u leases are in use; the next keeper takes them up if it starts within %lld ms", count,
			  (long long)((host_deadline_ns(k) - clock_now_ns()) / NS_PER_MS));
	if (frozen)
		log_event(LINE_KEEPER_ENDS, "%u processes are frozen and end with the keeper's parent", frozen);
	ending_now(k, "terminated");
}

enum ending_step ending_decide(bool again, unsigned in_use, bool releasing, bool waited)
{
	if (again)
		return ENDING_AT_ONCE;
	return !in_use && (waited || !releasing) ? ENDING_QUIETLY : ENDING_LATER;
}

static void on_term_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct ending *e = k->ending;
	bool waited = clock_now_ns() - e->told_ns > TERM_WAIT_MS * NS_PER_MS;
	const struct lease *one = NULL;
	unsigned count = count_in_use(k, &one);

	switch (ending_decide(k->table->head->ending > TABLE_TOLD_TO_END, count, is_releasing(k), waited)) {
	case ENDING_AT_ONCE:
		end_at_once(k);
		return;
	case ENDING_QUIETLY:
		ending_quietly(k, "terminated");
		return;
	case ENDING_LATER:
		break;
	}
	if (waited && count)
		say_what_it_waits_for(k, count, one);
	ending_give_back(k);
	e->look_ms = e->look_ms * 2 > TERM_LOOK_MS ? TERM_LOOK_MS : e->look_ms * 2;
	uv_timer_start(timer, on_term_timer, e->look_ms, 0);
	queue_settle(k);
}

static void begin_to_end(struct keeper *k)
{
	struct ending *e = k->ending;

	e->state = ENDING_TOLD;
	e->told_ns = clock_now_ns();
	e->look_ms = 10;
	ending_give_back(k);
	uv_timer_start(&e->term, on_term_timer, 1, 0);
	queue_settle(k);
}

static void on_told_to_end(uv_signal_t *handle, int number)
{
	struct keeper *k = handle->data;

	(void)number;
	if (k->ending->state == ENDING_NOT)
		begin_to_end(k);
	else if (clock_now_ns() - k->ending->told_ns > KEEPER_AGAIN_MS * NS_PER_MS)
		end_at_once(k);
}

/* --- start and end --- */

static void handle_signals(struct keeper *k, struct ending *e)
{
	uv_signal_t *signals[] = {&e->sigterm, &e->sigint};
	const int numbers[] = {SIGTERM, SIGINT};
	sigset_t handled;

	sigemptyset(&handled);
	for (int i = 0; i < 2; i++) {
		uv_signal_init(k->loop, signals[i]);
		signals[i]->data = k;
		uv_signal_start(signals[i], on_told_to_end, numbers[i]);
		sigaddset(&handled, numbers[i]);
	}
	pthread_sigmask(SIG_UNBLOCK, &handled, NULL);
}

int ending_start(struct keeper *k, ending_cb *end)
{
	int64_t often = k->config->lease.idle_ms / 4;
	struct ending *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	k->ending = e;
	e->end = end;
	uv_timer_init(k->loop, &e->idle);
	uv_timer_init(k->loop, &e->term);
	e->idle.data = e->term.data = k;
	handle_signals(k, e);
	if (!k->foreground && often)
		uv_timer_start(&e->idle, on_idle_timer, often, often);
	if (k->table->head->ending) /* the keeper before this one was told */
		begin_to_end(k);
	return 0;
}

void ending_close(struct keeper *k)
{
	struct ending *e = k->ending;
	uv_handle_t *own[] = {(uv_handle_t *)&e->idle, (uv_handle_t *)&e->term, (uv_handle_t *)&e->sigterm,
			      (uv_handle_t *)&e->sigint};

	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		uv_close(own[i], NULL);
}

void ending_free(struct keeper *k)
{
	free(k->ending);
	k->ending = NULL;
}
