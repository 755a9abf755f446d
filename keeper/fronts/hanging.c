/* See hanging.h. */
#include "keeper/fronts/hanging.h"

#include <utlist.h>

#include "keeper/clock.h"

bool hanging_is_slow(const struct front *front, int64_t now_ns)
{
	return front->busy && now_ns - front->since_ns > FRONTS_SLOW_MS * NS_PER_MS;
}

struct front *hanging_find_idle(const struct front_user *user)
{
	struct front *front;

	DL_FOREACH (user->fronts, front)
		if (!front->busy && !front->settled && !front->ending)
			return front;
	return NULL;
}

bool hanging_needs_another(const struct front_user *user, unsigned limit, int64_t now_ns)
{
	int64_t patience = (user->readers < 2 ? FRONTS_BUSY_MS : FRONTS_SLOW_MS) * NS_PER_MS;
	const struct front *front;

	if (user->readers >= limit)
		return false;
	DL_FOREACH (user->fronts, front)
		if (!front->settled && !front->ending && now_ns - front->since_ns < patience)
			return false;
	return true;
}

bool hanging_all(const struct front_user *user, int64_t now_ns)
{
	const struct front *front;

	if (user->readers < FRONTS_PER_USER)
		return false;
	DL_FOREACH (user->fronts, front)
		if (!front->settled && !hanging_is_slow(front, now_ns))
			return false;
	return true;
}

void hanging_note(struct front *front, int64_t now_ns)
{
	struct front_user *user = front->user;
	unsigned oldest = 0;

	if (!front->dev || !hanging_is_slow(front, now_ns))
		return;
	for (unsigned i = 0; i < FRONT_MAX_HUNG; i++) {
		if (user->hung[i].dev == front->dev) {
			oldest = i;
			break;
		}
		if (user->hung[i].seen_ns < user->hung[oldest].seen_ns)
			oldest = i;
	}
	user->hung[oldest].dev = front->dev;
	user->hung[oldest].seen_ns = now_ns;
}

void hanging_tell(const struct front_user *user, struct front_ask *ask, int64_t now_ns)
{
	for (unsigned i = 0; i < FRONT_MAX_HUNG; i++)
		if (user->hung[i].dev && now_ns - user->hung[i].seen_ns < FRONTS_HUNG_MS * NS_PER_MS)
			ask->hung[ask->hung_count++] = user->hung[i].dev;
}
