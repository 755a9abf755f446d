/* See keynote.h. */
#include "keeper/leases/keynote.h"

#include <stdio.h>
#include <string.h>

#include "keeper/clock.h"
#include "keeper/leases/locks.h"

const char *keynote_name(const struct lease *lease)
{
	return lease->key ? strchr(lease->key, ' ') + 1 : ""; /* "FORMAT KEY" */
}

void keynote_taken(const struct lease *lease, char *out, size_t size)
{
	int64_t left = (lease->asking.taken_until_ns - clock_now_ns()) / NS_PER_MS;
	const char *key = keynote_name(lease);

	if (!*lease->asking.client)
		snprintf(out, size, "waits for a moment, in which its key %.200s is left free for Redis clients", key);
	else if (!lease->asking.taken_until_ns)
		snprintf(out, size, "a Redis client (%s...) has its key %.200s, without an expiry",
			 lease->asking.client, key);
	else
		snprintf(out, size, "a Redis client (%s...) has its key %.200s, for another %lld s",
			 lease->asking.client, key, left > 0 ? (long long)(left + 999) / 1000 : 0);
}

const char *keynote_lost(const struct lease *lease)
{
	switch (lease->keyed.state) {
	case STORE_KEY_TAKEN:
		return "a Redis client has its key";
	case STORE_KEY_EXPIRED:
		return "its key was not renewed in time, and a Redis client may have had it";
	case STORE_KEY_OTHER:
		return "something else was written into its key";
	default:
		return "its key was taken, overwritten, or not renewed in time";
	}
}
