/* See keys.h. */
#include "keeper/leases/keys.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"

/* "FORMAT KEY". */
static const char *keys_name(const char *key)
{
	return strchr(key, ' ') + 1;
}

size_t keys_count(const struct keeper *k)
{
	const struct lease *lease, *next;
	size_t count = 0;

	HASH_ITER (hh, k->leases, lease, next)
		count += lease->key && lease->state != LEASE_ASKING && lease->state != LEASE_ENDED;
	return count;
}

/* --- what a beat says --- */

static void keys_on_released(void *arg, const struct store_reply *reply)
{
	(void)arg, (void)reply; /* if it is still there, the next beat says so */
}

/* No lease here has the token. While holders of lost leases have to end, it may be one of theirs. */
static void keys_unknown(struct keeper *k, const struct store_key_news *news)
{
	if (k->lost.losing)
		return;
	log_debug("%s %.8s: unknown, its key goes back", news->name, news->token);
	store_release(k->store, news->name, news->token, false, keys_on_released, k);
}

static bool keys_same(const struct lease *a, const struct lease *b)
{
	return a->key && b->key && strcmp(a->key, b->key) == 0 && lease_is_ours(a->state) && lease_is_ours(b->state);
}

/* The key was that of all leases of the file which have it: one in each space. Before the store has confirmed a lease that was
 * taken up, what it has for its key may be wrong. One that is still asked for is given back, and asked for anew. */
static void keys_lost(struct lease *which, enum store_key_state how)
{
	struct file *file = which->lock->file;
	struct lease *lease;

	for (int i = 0; i < WIRE_SPACES; i++)
		DL_FOREACH (file->locks[i].leases, lease)
			if (lease == which || keys_same(lease, which)) {
				lease->key_lost = how;
				queue_raise(lease, LEASE_EV_KEY_LOST);
			}
}

static void keys_take(struct keeper *k, const struct store_key_news *news)
{
	struct lease *lease = lease_find(k, news->token);

	if (lease && (lease->state == LEASE_ENDED || strcmp(lease->lock->file->name, news->name) != 0))
		lease = NULL;
	if (!lease)
		keys_unknown(k, news);
	else if (news->state == STORE_KEY_BACK)
		log_about(LINE_KEY_PUT_BACK, &(struct log_about){.lock = news->name},
			  "%s: its key %s was gone from the store before its time, and was put back: a Redis client may have "
			  "had the lock since the beat before; who deletes it? (`dflock break` takes the lock away)",
			  news->name, lease->key ? keys_name(lease->key) : "");
	else if (news->state != STORE_KEY_EXTRA)
		keys_lost(lease, news->state);
}

void keys_heard(struct keeper *k, const struct store_reply *reply)
{
	for (size_t i = 0; i < reply->key_count; i++)
		keys_take(k, &reply->keys[i]);
	if (reply->key_count)
		queue_settle(k);
}

/* --- the end of a lost lease --- */

void keys_lose(struct lease *lease)
{
	lease->ending_slot = lease->slot;
	lease->ending_generation = table_generation(lease_keeper(lease)->table, lease->slot);
}

const char *keys_why(const struct lease *lease)
{
	switch (lease->key_lost) {
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

void keys_look(struct keeper *k)
{
	struct lease *lease, *next;

	/* mutant: key-order */
	HASH_ITER (hh, k->leases, lease, next)
		if (lease->state == LEASE_ENDING && lease->ending_generation &&
		    !table_is_ending(k->table, lease->ending_slot, lease->ending_generation))
			queue_raise(lease, LEASE_EV_BEREFT);
}

/* --- for people --- */

void keys_describe(const struct lease *lease, char *out, size_t size)
{
	int64_t left = (lease->taken_until_ns - clock_now_ns()) / NS_PER_MS;
	const char *key = keys_name(lease->key);

	if (!*lease->client)
		snprintf(out, size, "no Redis client has its key %.200s, which is left free for them for a moment", key);
	else if (!lease->taken_until_ns)
		snprintf(out, size, "a Redis client (%s...) has its key %.200s, without an expiry", lease->client, key);
	else
		snprintf(out, size, "a Redis client (%s...) has its key %.200s, for another %lld s", lease->client, key,
			 left > 0 ? (long long)(left + 999) / 1000 : 0);
}
