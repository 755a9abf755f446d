/* See watch.h. A table of hosts: the beat last seen, when it was seen first, and when last. */
#include "keeper/rules/watch.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct watched {
	char host[STORE_HOST_BYTES];
	uint64_t beat;
	int64_t first_ns, last_ns;
	UT_hash_handle hh;
};

struct watch {
	int64_t ttl_ns;
	struct watched *hosts;
};

struct watch *watch_new(int64_t ttl_ns)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (watch)
		watch->ttl_ns = ttl_ns;
	return watch;
}

void watch_forget(struct watch *watch, int64_t then_ns)
{
	struct watched *w, *next;

	HASH_ITER (hh, watch->hosts, w, next) {
		if (w->last_ns >= then_ns)
			continue;
		HASH_DEL(watch->hosts, w);
		free(w);
	}
}

void watch_clear(struct watch *watch)
{
	watch_forget(watch, INT64_MAX);
}

void watch_free(struct watch *watch)
{
	if (!watch)
		return;
	watch_clear(watch);
	free(watch);
}

void watch_see(struct watch *watch, const struct store_blocker *host, int64_t now_ns)
{
	struct watched *w;

	HASH_FIND_STR(watch->hosts, host->host, w);
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return; /* without memory, not noted: the host will be named dead later */
		memcpy(w->host, host->host, sizeof(w->host));
		w->host[sizeof(w->host) - 1] = '\0';
		HASH_ADD_STR(watch->hosts, host, w);
		w->first_ns = now_ns;
		w->beat = host->beat;
	}
	if (w->beat != host->beat) {
		w->beat = host->beat;
		w->first_ns = now_ns;
	}
	w->last_ns = now_ns;
}

int64_t watch_dead_at(const struct watch *watch, const char *host, uint64_t beat)
{
	struct watched *w;

	HASH_FIND_STR(watch->hosts, host, w);
	if (!w || w->beat != beat)
		return INT64_MAX;
	return w->first_ns + watch->ttl_ns; /* mutant: dead-after */
}

bool watch_is_dead(const struct watch *watch, const char *host, uint64_t beat, int64_t now_ns)
{
	return now_ns >= watch_dead_at(watch, host, beat);
}

size_t watch_dead(const struct watch *watch, struct store_blocker *out, size_t max)
{
	struct watched *w, *next;
	size_t count = 0;

	HASH_ITER (hh, watch->hosts, w, next) {
		if (count == max)
			break;
		if (w->last_ns < w->first_ns + watch->ttl_ns)
			continue;
		out[count] = (struct store_blocker){.beat = w->beat};
		memcpy(out[count].host, w->host, sizeof(w->host));
		count++;
	}
	return count;
}
