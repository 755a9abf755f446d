/* store/histogram.c: which bucket an observation is in, and that none is lost. */
#include "store/histogram.h"
#include "tests/unit/suite.h"

#define MS INT64_C(1000000)
#define S  (1000 * MS)

static const int64_t ends[HISTOGRAM_KINDS][2] = {
	[HISTOGRAM_WAITS] = {MS, 24 * 3600 * S}, [HISTOGRAM_TRIPS] = {MS / 10, 10 * S}};

/* A bound is included in its bucket, as "le" says; what is above all has one more. */
TEST_EACH(each_bound_is_in_its_own_bucket, HISTOGRAM_KINDS)
{
	struct histogram h = {.kind = _i};
	size_t count;
	const int64_t *bounds = histogram_bounds(&h, &count);
	uint64_t sum = 0;

	ck_assert_uint_le(count, HISTOGRAM_BUCKETS);
	ck_assert_int_eq(bounds[0], ends[_i][0]);
	ck_assert_int_eq(bounds[count - 1], ends[_i][1]);
	for (size_t i = 0; i < count; i++) {
		ck_assert(!i || bounds[i] > bounds[i - 1]);
		histogram_observe(&h, bounds[i]);
		ck_assert_uint_eq(h.counts[i], 1);
		histogram_observe(&h, bounds[i] + 1);
		ck_assert_uint_eq(h.counts[i + 1], 1);
		h.counts[i + 1] = 0;
		sum += 2 * (uint64_t)bounds[i] + 1;
	}
	ck_assert_uint_eq(h.sum_ns, sum);
	histogram_observe(&h, 0);
	histogram_observe(&h, -5 * S); /* a clock was set back */
	ck_assert_uint_eq(h.counts[0], 3);
	ck_assert_uint_eq(h.sum_ns, sum);
	histogram_observe(&h, 30 * 24 * 3600 * S);
	ck_assert_uint_eq(h.counts[count], 1);
	ck_assert_uint_eq(h.sum_ns, sum + 30ull * 24 * 3600 * S);
}
