/* The calls of store.h that send a message to another host. */
#include "store/internal.h"

static void on_published(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = q->store;

	(void)reply;
	if (status == STORE_ERROR && s->callbacks.on_note)
		s->callbacks.on_note(s->arg, error);
}

static void publish_message(struct store *s, const char *host, const char *message)
{
	struct query *q = query_command(s, "PUBLISH");

	query_add(q, STORE_KEYS "host:%s", host);
	query_word(q, message);
	query_send(q, on_published);
}

void store_tell_in_use(struct store *s, const char *host, const char *name, const char *asker_token,
		       const struct store_range *in_use)
{
	char message[MESSAGE_BYTES];

	if (s->state != STORE_UP || query_bad_lock(name, asker_token) || !reply_is_host(host) ||
	    message_format_in_use(message, s->host, name, asker_token, in_use) != 0)
		return; /* the asker's question ends by its own time limit */
	publish_message(s, host, message);
}

void store_tell_chase(struct store *s, const char *host, const struct store_chase *chase)
{
	char message[MESSAGE_BYTES];

	if (s->state == STORE_UP && reply_is_host(host) && message_format_chase(message, chase) == 0)
		publish_message(s, host, message);
}

void store_tell_break(struct store *s, const char *host, const struct store_break *what)
{
	char message[MESSAGE_BYTES];

	if (s->state == STORE_UP && reply_is_host(host) && !query_bad_lock(what->name, what->token) &&
	    message_format_break(message, s->host, what) == 0)
		publish_message(s, host, message);
}

void store_tell_broken(struct store *s, const char *host, uint64_t question, enum store_broken broken, int pid)
{
	char message[MESSAGE_BYTES];

	if (s->state != STORE_UP || !reply_is_host(host))
		return; /* the asker's question ends by its own time limit */
	message_format_broken(message, s->host, question, broken, pid);
	publish_message(s, host, message);
}

void store_tell_who(struct store *s, const char *host, const char *name, const char *token)
{
	char message[MESSAGE_BYTES];

	if (s->state == STORE_UP && !query_bad_lock(name, token) && reply_is_host(host) &&
	    message_format_who(message, s->host, name, token) == 0)
		publish_message(s, host, message);
}

void store_tell_holder(struct store *s, const char *host, const char *token, const struct store_range *range,
		       const struct store_job *job)
{
	char message[MESSAGE_BYTES];

	if (s->state == STORE_UP && reply_is_token(token) && reply_is_host(host) &&
	    message_format_holder(message, s->host, token, range, job) == 0)
		publish_message(s, host, message);
}

void store_tell_holders(struct store *s, const char *host, const char *token, uint64_t count)
{
	char message[MESSAGE_BYTES];

	if (s->state == STORE_UP && reply_is_token(token) && reply_is_host(host) &&
	    message_format_holders(message, s->host, token, count) == 0)
		publish_message(s, host, message);
}

void store_tell_twice(struct store *s, const char *host)
{
	char message[MESSAGE_BYTES];

	if (s->state != STORE_UP || !reply_is_host(host))
		return; /* told at the next connection */
	snprintf(message, sizeof(message), "twice %s", s->host);
	publish_message(s, host, message);
}
