/* See keys.h. One timer looks at the leases that end, so nothing here depends on who hears of a change of state. */
#include "keeper/leases/keys.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/keynote.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"
#include "keeper/log.h"

#define KEYS_LOOK_MS 5

size_t keys_count(const struct keeper *k)
{
	const struct lease *lease, *next;
	size_t count = 0;

	HASH_ITER (hh, k->leases, lease, next)
		count += lease->key && lease->state != LEASE_ASKING && lease->state != LEASE_ENDED;
	return count;
}

/* --- tokens that no lease here has --- */

struct keys_owed {
	char token[STORE_TOKEN_BYTES];
	char *name; /* of the lock */
	struct keys_owed *prev, *next;
};

static void keys_on_timer(uv_timer_t *timer);

static void keys_forget(struct keeper *k, struct keys_owed *owed)
{
	DL_DELETE(k->keys.owed, owed);
	free(owed->name);
	free(owed);
}

static void keys_owe(struct keeper *k, const char *name, const char *token)
{
	struct keys_owed *owed;

	DL_FOREACH (k->keys.owed, owed)
		if (strcmp(owed->token, token) == 0)
			return;
	owed = calloc(1, sizeof(*owed));
	if (owed)
		owed->name = strdup(name);
	if (!owed || !owed->name) { /* the next beat says it again */
		free(owed);
		return;
	}
	memcpy(owed->token, token, sizeof(owed->token));
	DL_APPEND(k->keys.owed, owed);
	uv_timer_start(&k->keys.timer, keys_on_timer, 0, 0);
}

static void keys_on_released(void *arg, const struct store_reply *reply)
{
	(void)arg, (void)reply; /* if it is still there, the next beat says so */
}

/* While holders of lost leases have to end, a token may be one of theirs. */
static void keys_pay(struct keeper *k)
{
	struct keys_owed *owed, *next;

	if (k->lost.losing)
		return;
	DL_FOREACH_SAFE (k->keys.owed, owed, next) {
		log_debug("%s %.8s: unknown, its key goes back", owed->name, owed->token);
		store_release(k->store, owed->name, owed->token, false, keys_on_released, k); /* mutant: key-unknown */
		keys_forget(k, owed);
	}
}

/* --- the end of a lost lease --- */

/* Its pins have ended: the parent ends the holders. */
static void keys_doom(struct keeper *k, struct lease *lease)
{
	lease->keyed.slot = lease->slot;
	lease->keyed.generation = table_generation(k->table, lease->slot);
	queue_raise(lease, LEASE_EV_DOOMED);
}

/* Does it end still? */
static bool keys_look_at(struct keeper *k, struct lease *lease)
{
	if (lease->state == LEASE_BREAKING) {
		if (!waiters_are_pinned(lease->lock, &lease->range)) /* mutant: key-pins */
			keys_doom(k, lease);
		return true;
	}
	if (lease->state != LEASE_ENDING)
		return false;
	/* mutant: key-order */
	if (lease->keyed.generation && !table_is_ending(k->table, lease->keyed.slot, lease->keyed.generation))
		queue_raise(lease, LEASE_EV_BEREFT);
	return true;
}

static void keys_on_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct lease *lease, *next;
	bool more = false;

	HASH_ITER (hh, k->leases, lease, next)
		more |= lease->keyed.lost && keys_look_at(k, lease);
	keys_pay(k);
	if ((more || k->keys.owed) && !k->leaving)
		uv_timer_start(timer, keys_on_timer, KEYS_LOOK_MS, 0);
	queue_settle(k);
}

static bool keys_same(const struct lease *a, const struct lease *b)
{
	return a->key && b->key && strcmp(a->key, b->key) == 0 && lease_is_ours(a->state) && lease_is_ours(b->state);
}

/* One that is still asked for was handed over, and this host has not heard of it: it is given back, and asked for anew. */
static enum lease_event keys_event(const struct lease *lease)
{
	return lease->state == LEASE_ASKING || lease_is_unsure(lease->state) ? LEASE_EV_GONE : LEASE_EV_BREAK;
}

/* The key was that of all leases of the file which have it: one in each space. Before the store has confirmed a lease that was
 * taken up, what it has for its key may be wrong. */
static void keys_lost(struct lease *which, enum store_key_state what)
{
	struct file *file = which->lock->file;
	struct keeper *k = file->keeper;
	struct lease *lease;

	for (int i = 0; i < WIRE_SPACES; i++)
		DL_FOREACH (file->locks[i].leases, lease) {
			if (lease != which && !keys_same(lease, which))
				continue;
			if (!lease->keyed.lost) /* later beats say STORE_KEY_LOST */
				lease->keyed.state = what;
			lease->keyed.lost = true;
			if (lease_is_unsure(lease->state))
				keys_owe(k, file->name, lease->token);
			queue_raise(lease, keys_event(lease));
			uv_timer_start(&k->keys.timer, keys_on_timer, 0, 0);
		}
}

/* --- what a beat says --- */

static void keys_take(struct keeper *k, const struct store_key_news *news)
{
	struct lease *lease = lease_find(k, news->token);

	if (lease && (lease->state == LEASE_ENDED || strcmp(lease->lock->file->name, news->name) != 0))
		lease = NULL;
	if (!lease)
		keys_owe(k, news->name, news->token);
	else if (news->state == STORE_KEY_BACK)
		log_about(
			LINE_KEY_PUT_BACK, &(struct log_about){.lock = news->name},
			"%s: its key %s had gone before its time, and was put back: a Redis client may have had the lock "
			"since the beat before; find out what deletes it (`dflock break` takes a lock away)",
			news->name, keynote_name(lease));
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

/* --- start and end --- */

void keys_open(struct keeper *k)
{
	uv_timer_init(k->loop, &k->keys.timer);
	k->keys.timer.data = k;
}

void keys_close(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->keys.timer, NULL);
	while (k->keys.owed)
		keys_forget(k, k->keys.owed);
}
