/*
 * A histogram: how often something took how long, in fixed buckets. Pure; the caller's clock. An observation is a few
 * additions, so it may stand on any path of the keeper's loop. Not thread-safe.
 */
#ifndef DFLOCK_STORE_HISTOGRAM_H
#define DFLOCK_STORE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum histogram_kind {
	HISTOGRAM_WAITS, /* what people and jobs wait for: 1 ms to a day */
	HISTOGRAM_TRIPS, /* a question to a server: 100 us to 10 s */
	HISTOGRAM_KINDS
};

#define HISTOGRAM_BUCKETS 16 /* and one more for all that took longer */

/* All zero is an empty histogram of HISTOGRAM_WAITS. Counts never go back. */
struct histogram {
	enum histogram_kind kind; /* constant */
	uint64_t counts[HISTOGRAM_BUCKETS +
			1]; /* not cumulative: counts[i] has what fits bounds[i] and no earlier one */
	uint64_t sum_ns;
};

/* A negative time (of a clock that was set back) counts as none. */
void histogram_observe(struct histogram *h, int64_t ns);
/* The upper bounds (included) of its buckets, ascending, ns: *count of them, at most HISTOGRAM_BUCKETS. */
const int64_t *histogram_bounds(const struct histogram *h, size_t *count);

#endif
