/*
 * See histogram.h.
 *
 * Waits, holds, recalls. Below 1 ms a caller notices nothing: a lease that is asked for costs one question to the store.
 * From there to a day four steps (x2.5 to x4) in each unit that people think in: a tick of a script, seconds (LOCK_NB loops, cron's
 * patience), minutes (wait_warn_ms, ttl_ms), hours (a backup that holds the lock), and a day, after which something hangs.
 * Closer steps would say no more: what is behind such a wait is a job, and jobs differ by more than a factor of two.
 *
 * Round trips. A local Redis answers in 100 us, one in the same data centre in 0.5 ms, another region in 10 to 100 ms:
 * steps of 2 to 2.5 there, since a server that is twice as slow as usual is news. From 1 s on the question is whether leases
 * can still be renewed (connect_ms, ttl_ms / 3): an answer after 10 s has come too late for any usual setting.
 *
 * Both have 13 to 16 buckets, for two spaces at most: less than 100 series per keeper.
 */
#include "store/histogram.h"

#define US INT64_C(1000)
#define MS (1000 * US)
#define S  (1000 * MS)
#define H  (3600 * S)

static const int64_t histogram_waits[] = {1 * MS, 5 * MS,  20 * MS, 100 * MS, 250 * MS, 1 * S, 5 * S, 15 * S,
					  60 * S, 300 * S, 900 * S, 1 * H,    2 * H,    4 * H, 8 * H, 24 * H};
static const int64_t histogram_trips[] = {100 * US, 250 * US,  500 * US, 1 * MS,   2500 * US, 5 * MS,
					  10 * MS,  25 * MS,   50 * MS,  100 * MS, 250 * MS,  500 * MS,
					  1 * S,    2500 * MS, 5 * S,    10 * S};

static const struct {
	const int64_t *bounds;
	size_t count;
} histogram_kinds[HISTOGRAM_KINDS] = {
	[HISTOGRAM_WAITS] = {histogram_waits, sizeof(histogram_waits) / sizeof(*histogram_waits)},
	[HISTOGRAM_TRIPS] = {histogram_trips, sizeof(histogram_trips) / sizeof(*histogram_trips)},
};

_Static_assert(sizeof(histogram_waits) / sizeof(*histogram_waits) <= HISTOGRAM_BUCKETS, "all have a count");
_Static_assert(sizeof(histogram_trips) / sizeof(*histogram_trips) <= HISTOGRAM_BUCKETS, "all have a count");

const int64_t *histogram_bounds(const struct histogram *h, size_t *count)
{
	*count = histogram_kinds[h->kind].count;
	return histogram_kinds[h->kind].bounds;
}

void histogram_observe(struct histogram *h, int64_t ns)
{
	size_t count, i = 0;
	const int64_t *bounds = histogram_bounds(h, &count);

	if (ns < 0)
		ns = 0;
	while (i < count && ns > bounds[i])
		i++;
	h->counts[i]++;
	h->sum_ns += (uint64_t)ns;
}
