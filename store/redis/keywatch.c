/*
 * Keys of clients (redis_key) that somebody waits for: the channels on which it may be said that one was released.
 *
 *   __keyspace@DATABASE__:KEY       the server's own, where notify-keyspace-events has K with g and x
 *   redisson_lock__channel:{KEY}    what Redisson's unlock() publishes
 *
 * Nothing here is needed: a host that waits asks again at the end of the key's time, and now and then. So a channel that
 * is refused is a note, and a message that is lost does no harm. When a subscription stands, on_key comes once: the key
 * may have been released before. A watch stays in the list when it is not wanted any more, since answers may be under way;
 * there are no more than keys in the rules that this keeper has had.
 */
#include "store/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define CHANNEL_BYTES (STORE_KEY_BYTES + 64)
#define CHANNELS      2

struct keywatch {
	struct store *store;
	char *key; /* FORMAT KEY */
	char channels[CHANNELS][CHANNEL_BYTES];
	bool wanted;
	struct keywatch *prev, *next;
};

static struct keywatch *keywatch_find(struct store *s, const char *key)
{
	struct keywatch *w;

	DL_FOREACH (redis_of(s)->keywatches, w)
		if (strcmp(w->key, key) == 0)
			return w;
	return NULL;
}

static struct keywatch *keywatch_new(struct store *s, const char *key)
{
	struct keywatch *w = store_need(calloc(1, sizeof(*w)));
	const char *name = strchr(key, ' ') + 1;
	const char *open = strchr(name, '{') ? "" : "{", *close = *open ? "}" : "";

	w->store = s;
	w->key = store_need(strdup(key));
	snprintf(w->channels[0], CHANNEL_BYTES, "__keyspace@%d__:%s", s->config->database, name);
	if (strncmp(key, "redisson ", 9) == 0)
		snprintf(w->channels[1], CHANNEL_BYTES, "redisson_lock__channel:%s%s%s", open, name, close);
	DL_APPEND(redis_of(s)->keywatches, w);
	return w;
}

/* The answer to a subscription, or to its end. */
static void keywatch_on_answer(void *arg, const redisReply *reply)
{
	struct keywatch *w = arg;
	struct store *s = w->store;
	char line[REPLY_LINE_BYTES], note[REPLY_LINE_BYTES + 128];

	if (!reply || s->state != STORE_UP)
		return;
	if (reply->type != REDIS_REPLY_ERROR) {
		if (w->wanted)
			s->callbacks.on_key(s->arg, w->key);
		return;
	}
	reply_explain(reply->str, line);
	snprintf(note, sizeof(note),
		 "%s (callers that wait for a redis_key are not told that it is free, and ask again now and then)",
		 line);
	if (!redis_of(s)->key_noted && s->callbacks.on_note)
		s->callbacks.on_note(s->arg, note);
	redis_of(s)->key_noted = true;
}

/* A key whose redis_key_format was changed has two watches. */
static bool keywatch_is_alone(const struct keywatch *w, int channel)
{
	const struct keywatch *other;

	DL_FOREACH (redis_of(w->store)->keywatches, other)
		if (other != w && other->wanted && strcmp(other->channels[channel], w->channels[channel]) == 0)
			return false;
	return true;
}

static void keywatch_send(struct keywatch *w, const char *command)
{
	struct store *s = w->store;
	int ret = 0;

	for (int i = 0; i < CHANNELS && s->state == STORE_UP && ret == 0; i++)
		if (*w->channels[i] && (w->wanted || keywatch_is_alone(w, i)))
			ret = link_send(redis_of(s)->messages, 2, (const char *const[]){command, w->channels[i]},
					keywatch_on_answer, w);
	if (ret)
		store_fail(s, "cannot send: %s", uv_strerror(ret));
}

void keywatch_begin(struct store *s, const char *key)
{
	struct keywatch *w = keywatch_find(s, key);

	if (!w)
		w = keywatch_new(s, key);
	if (w->wanted)
		return;
	w->wanted = true;
	keywatch_send(w, "SUBSCRIBE");
}

void keywatch_end(struct store *s, const char *key)
{
	struct keywatch *w = keywatch_find(s, key);

	if (!w || !w->wanted)
		return;
	w->wanted = false;
	keywatch_send(w, "UNSUBSCRIBE");
}

void keywatch_again(struct store *s)
{
	struct keywatch *w;

	redis_of(s)->key_noted = false;
	DL_FOREACH (redis_of(s)->keywatches, w)
		if (w->wanted)
			keywatch_send(w, "SUBSCRIBE");
}

/* Events after which a key may be free: it was removed, expired, evicted, renamed or moved. */
static bool keywatch_is_end(const char *event)
{
	static const char *const ends[] = {"del", "expired", "evicted", "rename_from", "move_from"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		if (strcmp(event, ends[i]) == 0)
			return true;
	return false;
}

bool keywatch_message(struct store *s, const char *channel, const char *text)
{
	struct keywatch *w;
	bool known = false;

	DL_FOREACH (redis_of(s)->keywatches, w) {
		bool by_client = strcmp(channel, w->channels[1]) == 0;

		if (!by_client && strcmp(channel, w->channels[0]) != 0)
			continue;
		if (w->wanted && (by_client || keywatch_is_end(text)))
			s->callbacks.on_key(s->arg, w->key);
		known = true;
	}
	return known;
}

void keywatch_free(struct store *s)
{
	struct keywatch *w, *next;

	DL_FOREACH_SAFE (redis_of(s)->keywatches, w, next) {
		free(w->key);
		free(w);
	}
	redis_of(s)->keywatches = NULL;
}
