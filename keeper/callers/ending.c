/* See ending.h. */
#include "keeper/callers/ending.h"

#include <signal.h>

#include "keeper/leases/act.h"
#include "keeper/clock.h"
#include "keeper/leases/kernel.h"
#include "keeper/leases/leasepage.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/callers/sessions.h"
#include "keeper/leases/split.h"

#define TERM_WAIT_MS 2000 /* for the store's answers */
#define TERM_LOOK_MS 1000 /* the longest pause between two looks whether leases are still in use */

static void on_left(void *arg, const struct store_reply *reply)
{
	struct keeper *k = arg;

	(void)reply; /* whether or not: a beat that stays is swept one day */
	uv_stop(k->loop);
}

/*
 * From now on nothing happens to a lease: it stays in the table as it is, and the next keeper takes it up. Pins may
 * be out that this keeper will not wait for; the next one does. The answers of requests and probes that are still to come
 * find a lease without a slot. A parent goes by the slots alone, and must stop the holders at the deadline if no keeper
 * comes.
 */
static void leave_leases(struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next) {
		uv_timer_stop(&lease->timer);
		lease->state = LEASE_ENDED;
		lease->slot = TABLE_NO_SLOT;
		lease_stop_probe(lease);
	}
}

void keeper_end(struct keeper *k, const char *why)
{
	bool had_leases = k->leases != NULL;

	if (k->leaving)
		return;
	k->leaving = true;
	log_info("ends: %s", why);
	leasepage_reset(k->page);
	leave_leases(k);
	/* Before the store is told: a question that came in between would get a lease that nobody renews. */
	sessions_stop(k);
	if (!had_leases && store_is_up(k->store))
		store_leave(k->store, on_left, k);
	else
		uv_stop(k->loop);
}

static void on_idle_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	int64_t idle_ms = k->config->lease.idle_ms, ttl_ms = k->config->lease.ttl_ms;

	/* What it has watched of silent hosts is of use to the next non-blocking call for a ttl and some more. */
	if (idle_ms < 2 * ttl_ms)
		idle_ms = 2 * ttl_ms;
	if (!k->sessions && !k->leases && clock_now_ns() - k->idle_since_ns >= idle_ms * NS_PER_MS)
		keeper_end(k, "nobody needs it");
}

/*
 * Told to end: what nobody uses is given back, and what is in use is waited for, as is what the store has yet to
 * confirm: without a keeper its holders would be unprotected after a ttl, and those that are frozen would die.
 * Meanwhile all are served as ever.
 */
static void give_back(struct keeper *k)
{
	struct lease *lease, *next;

	keeper_enter(k);
	HASH_ITER (hh, k->leases, lease, next) {
		if (lease->state != LEASE_HELD || split_is_under_way(lease))
			continue;
		lease->recall = RECALL_LINGER;
		lease_raise(lease, LEASE_EV_LINGERED);
	}
	keeper_leave(k);
}

/* How many leases are in use, or may be, and one of them. */
static unsigned in_use(const struct keeper *k, const struct lease **one)
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

	if (k->ending)
		return;
	k->ending = true;
	lock_describe(one->lock, name, sizeof(name));
	log_error("told to end: waits until %u leases are not in use any more, among them %s; see `dflock status`. A "
		  "second signal "
		  "ends it at once",
		  count, name);
}

static void end_at_once(struct keeper *k)
{
	const struct lease *one;
	unsigned count = in_use(k, &one), frozen = table_frozen(k->table);

	if (count)
		log_error("%u leases are in use; the next keeper takes them up if it starts within %lld ms", count,
			  (long long)((k->deadline_ns - clock_now_ns()) / NS_PER_MS));
	if (frozen)
		log_error("%u processes are frozen and end with the keeper's parent", frozen);
	keeper_end(k, "terminated");
}

static void on_term_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	bool waited = clock_now_ns() - k->told_ns > TERM_WAIT_MS * NS_PER_MS;
	const struct lease *one = NULL;
	unsigned count = in_use(k, &one);

	if (k->table->head->ending > 1) {
		end_at_once(k);
		return;
	}
	if (!count && (waited || !is_releasing(k))) {
		keeper_end(k, "terminated");
		return;
	}
	if (waited && count)
		say_what_it_waits_for(k, count, one);
	give_back(k);
	k->look_ms = k->look_ms * 2 > TERM_LOOK_MS ? TERM_LOOK_MS : k->look_ms * 2;
	uv_timer_start(timer, on_term_timer, k->look_ms, 0);
}

static void begin_to_end(struct keeper *k)
{
	k->told_ns = clock_now_ns();
	k->look_ms = 10;
	give_back(k);
	uv_timer_start(&k->term, on_term_timer, 1, 0);
}

static void on_signal(uv_signal_t *handle, int number)
{
	struct keeper *k = handle->data;

	(void)number;
	if (!k->told_ns)
		begin_to_end(k);
	else if (clock_now_ns() - k->told_ns > KEEPER_AGAIN_MS * NS_PER_MS)
		end_at_once(k);
}

void ending_start(struct keeper *k)
{
	uv_timer_t *timers[] = {&k->idle, &k->term};
	uv_signal_t *signals[] = {&k->sigterm, &k->sigint};
	const int numbers[] = {SIGTERM, SIGINT};
	int64_t often = k->config->lease.idle_ms / 4;
	sigset_t handled;

	sigemptyset(&handled);
	for (int i = 0; i < 2; i++) {
		uv_timer_init(k->loop, timers[i]);
		uv_signal_init(k->loop, signals[i]);
		timers[i]->data = signals[i]->data = k;
		uv_signal_start(signals[i], on_signal, numbers[i]);
		sigaddset(&handled, numbers[i]);
	}
	pthread_sigmask(SIG_UNBLOCK, &handled, NULL);
	if (!k->options->foreground && often)
		uv_timer_start(&k->idle, on_idle_timer, often, often);
	if (k->table->head->ending) /* the keeper before was told */
		begin_to_end(k);
}

void ending_close(struct keeper *k)
{
	uv_handle_t *own[] = {(uv_handle_t *)&k->idle, (uv_handle_t *)&k->term, (uv_handle_t *)&k->sigterm,
			      (uv_handle_t *)&k->sigint};

	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		uv_close(own[i], NULL);
}
