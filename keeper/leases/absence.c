/* See absence.h. */
#include "keeper/leases/absence.h"

#include "keeper/clock.h"
#include "keeper/leases/event.h"
#include "keeper/leases/keeper.h"

static int64_t absence_ms(const struct keeper *k)
{
	return (clock_now_ns() - k->absence.since_ns) / NS_PER_MS;
}

static void on_absence_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	k->absence.said = true;
	event_raise(k,
		    &(struct event){
			    .kind = EVENT_STORE_AWAY, .reason = store_last_error(k->store), .for_ms = absence_ms(k)},
		    "store %s %s: %s; locks cannot be taken, and leases run out if this lasts; see `dflock doctor`",
		    store_server(k->store), store_trouble(k->store), store_last_error(k->store));
}

void absence_begins(struct keeper *k)
{
	if (k->absence.since_ns)
		return;
	k->absence.since_ns = clock_now_ns();
	uv_timer_start(&k->absence.timer, on_absence_timer, ABSENCE_MS, 0);
}

void absence_ends(struct keeper *k)
{
	int64_t ms = absence_ms(k);
	bool said = k->absence.said;

	uv_timer_stop(&k->absence.timer);
	k->absence.since_ns = 0;
	k->absence.said = false;
	if (said)
		event_raise(k, &(struct event){.kind = EVENT_STORE_BACK, .for_ms = ms},
			    "store %s is reachable again, after %lld ms", store_server(k->store), (long long)ms);
}

void absence_start(struct keeper *k)
{
	uv_timer_init(k->loop, &k->absence.timer);
	k->absence.timer.data = k;
}

void absence_stop(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->absence.timer, NULL);
}
