/* See keys.h. */
#include "keeper/leases/keys.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"

size_t keys_count(const struct member *m)
{
	const struct lease *lease, *next;
	size_t count = 0;

	HASH_ITER (hh, m->keeper->leases, lease, next)
		count += lease_member(lease) == m && lease->key && lease->state != LEASE_ASKING &&
			 lease->state != LEASE_ENDED;
	return count;
}

/* --- for people --- */

/* Without its format; "": it has none. */
static const char *keys_name(const struct lease *lease)
{
	return lease->key ? strchr(lease->key, ' ') + 1 : ""; /* "FORMAT KEY" */
}

void keys_say_taken(const struct lease *lease, char *out, size_t size)
{
	int64_t left = (lease->asking.taken_until_ns - clock_now_ns()) / NS_PER_MS;
	const char *key = keys_name(lease);

	if (!*lease->asking.client)
		snprintf(out, size, "waits for a moment, in which its key %.200s is left free for Redis clients", key);
	else if (!lease->asking.taken_until_ns)
		snprintf(out, size, "a Redis client (%s...) has its key %.200s, without an expiry",
			 lease->asking.client, key);
	else
		snprintf(out, size, "a Redis client (%s...) has its key %.200s, for another %lld s",
			 lease->asking.client, key, left > 0 ? (long long)(left + 999) / 1000 : 0);
}

const char *keys_why_lost(const struct lease *lease)
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

/* --- what a beat says --- */

static bool keys_same(const struct lease *a, const struct lease *b)
{
	return a->key && b->key && strcmp(a->key, b->key) == 0 && lease_is_ours(a->state) && lease_is_ours(b->state);
}

/* One that is still asked for was handed over, and this host has not heard of it: it is given back, and asked for anew. */
static enum lease_cue keys_event(const struct lease *lease)
{
	return lease->state == LEASE_ASKING || lease_is_unsure(lease->state) ? LEASE_CUE_GONE : LEASE_CUE_BREAK;
}

/* The key was that of all leases of the file which have it: one in each space. Before the store has confirmed a lease that was
 * taken up, what it has for its key may be wrong. */
static void keys_lost(struct lease *which, enum store_key_state what)
{
	struct file *file = which->lock->file;
	struct lease *lease;

	for (int i = 0; i < WIRE_SPACES; i++)
		DL_FOREACH (file->locks[i].leases, lease) {
			if (lease != which && !keys_same(lease, which))
				continue;
			if (!lease->key_lost) /* later beats say STORE_KEY_LOST */
				lease->key_lost = what;
			queue_raise(lease, keys_event(lease));
			lost_watch(file->keeper);
		}
}

static void keys_take(struct member *m, const struct store_key_news *news)
{
	struct lease *lease = lease_find(m->keeper, news->token);

	if (lease && (lease->state == LEASE_ENDED || strcmp(lease->lock->file->name, news->name) != 0))
		lease = NULL;
	if (!lease) {
		lost_give_back(m, news->name, news->token, false); /* mutant: key-unknown */
		return;
	}
	if (news->state == STORE_KEY_BACK)
		log_about(
			LINE_KEY_PUT_BACK, &(struct log_about){.lock = news->name},
			"%s: its key %s had gone before its time, and was put back: a Redis client may have had the lock "
			"since the beat before; find out what deletes it (`dflock break` takes a lock away)",
			news->name, keys_name(lease));
	else if (news->state != STORE_KEY_EXTRA)
		keys_lost(lease, news->state);
}

void keys_heard(struct member *m, const struct store_reply *reply)
{
	for (size_t i = 0; i < reply->key_count; i++)
		keys_take(m, &reply->keys[i]);
	if (reply->key_count)
		queue_settle(m->keeper);
}
