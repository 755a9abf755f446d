/* The way of a query: send_transmit() sends it; its reply is kept in send_on_reply(); if its answer binds, the reply
 * waits there for WAIT (acks.h); then send_take_reply() hands it on. */
#include "store/redis/redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct redis_query *send_of(struct query *q)
{
	return (struct redis_query *)q;
}

/* A reply that waited goes with the query. */
static void send_end(struct redis_query *rq, enum store_status status, const char *error)
{
	freeReplyObject(rq->reply);
	query_end(&rq->q, status, error);
}

/* ---- the answer ---- */

static int send_transmit(struct redis_query *rq);

/* The server has forgotten the script (SCRIPT FLUSH, a new server behind a proxy): EVAL brings it back. */
static bool send_whole(struct redis_query *rq)
{
	if (rq->q.script < 0 || rq->sent_whole)
		return false;
	freeReplyObject(rq->reply);
	rq->reply = NULL;
	rq->sent_whole = true;
	return send_transmit(rq) == 0;
}

/* What the error says, and what to do. */
static enum reply_error send_explain(const struct redis_query *rq, char line[REPLY_LINE_BYTES])
{
	char command[REPLY_WORD_BYTES];
	unsigned at;

	if (rq->q.script < 0 || !reply_denied_line(rq->reply->str, &at) ||
	    !script_command((enum script_id)rq->q.script, redis_of(rq->q.store)->redis7, at, command, sizeof(command)))
		return reply_explain(rq->reply->str, line);
	return reply_explain_script(rq->reply->str, command, line);
}

static void send_take_error(struct redis_query *rq)
{
	struct store *s = rq->q.store;
	char line[REPLY_LINE_BYTES];

	switch (send_explain(rq, line)) {
	case REPLY_ERROR_NOSCRIPT:
		if (send_whole(rq))
			return;
		break;
	case REPLY_ERROR_UNREACHABLE:
		store_reject(s, "%s", line);
		send_end(rq, STORE_UNREACHABLE, line);
		return;
	case REPLY_ERROR_HERE:
		break;
	}
	send_end(rq, STORE_ERROR, line);
}

/* Frees the query, unless it is sent again. */
static void send_take_reply(struct redis_query *rq)
{
	redisReply *reply = rq->reply;

	if (reply->type == REDIS_REPLY_ERROR) {
		send_take_error(rq);
		return;
	}
	query_answer(&rq->q, reply);
	freeReplyObject(reply);
}

static void send_on_reply(void *arg, const redisReply *reply)
{
	struct redis_query *rq = arg;
	struct redis *r = redis_of(rq->q.store);

	if (!reply) {
		if (rq->binding)
			acks_forget(&r->acks, &rq->entry);
		send_end(rq, STORE_UNREACHABLE, rq->q.store->error);
		return;
	}
	freeReplyObject(rq->reply); /* that was NOSCRIPT, of a query that waits for WAIT */
	rq->reply = link_keep_reply(r->commands);
	if (!rq->binding)
		send_take_reply(rq);
}

/* ---- sending ---- */

#define SEND_ARGS (QUERY_ARGS + 3)

/* The words of the command. `keys`: room for their number. Returns how many. */
static int send_words(const struct redis_query *rq, const char *text, char keys[12], const char *argv[SEND_ARGS])
{
	const struct query *q = &rq->q;
	int argc = 0;

	if (q->script >= 0) {
		snprintf(keys, 12, "%d", q->keys);
		argv[argc++] = text ? "EVAL" : "EVALSHA";
		argv[argc++] = text ? text : redis_of(q->store)->sha[q->script];
		argv[argc++] = keys;
	}
	memcpy(argv + argc, q->argv, (size_t)q->argc * sizeof(*argv));
	return argc + q->argc;
}

static int send_transmit(struct redis_query *rq)
{
	struct redis *r = redis_of(rq->q.store);
	struct link *link = r->commands; /* NULL: an earlier reply of the same read has brought the store down */
	char keys[12], *text = NULL;
	const char *argv[SEND_ARGS];
	int argc, ret = -ENOTCONN;

	if (rq->sent_whole)
		text = store_need(script_text((enum script_id)rq->q.script, r->redis7));
	argc = send_words(rq, text, keys, argv);
	if (link)
		ret = link_send(link, argc, argv, send_on_reply, rq);
	free(text);
	if (ret == 0 && rq->binding)
		acks_await(&r->acks, &rq->entry);
	return ret;
}

int send_query(struct query *q)
{
	struct redis_query *rq = send_of(q);

	rq->binding = q->script >= 0 && scripts[q->script].binding && config_acknowledgements(q->store->config) > 0;
	return send_transmit(rq);
}

/* ---- shots ---- */

void *send_prepare(struct query *q)
{
	char keys[12];
	const char *argv[SEND_ARGS];

	if (q->store->config->tls.on)
		return NULL;
	return store_need(link_shot_new(send_words(send_of(q), NULL, keys, argv), argv, send_on_reply, send_of(q)));
}

bool send_fire(struct store *s, void *shot)
{
	return link_shot_fire(shot, &redis_of(s)->gate) == 0;
}

void send_drop(void *shot)
{
	link_shot_free(shot);
}

/* ---- the replicas ---- */

static void send_acknowledged(struct acks_entry *entry, bool enough)
{
	struct redis_query *rq = (struct redis_query *)((char *)entry - offsetof(struct redis_query, entry));

	if (enough)
		send_take_reply(rq);
	else
		send_end(rq, STORE_UNREACHABLE, rq->q.store->error);
}

/* `reply` NULL: the link is being closed. The queries without a reply have had their NULL before this one. */
static void send_on_acks(void *arg, const redisReply *reply)
{
	struct store *s = arg;
	char line[REPLY_LINE_BYTES];
	bool enough = reply && acks_are_enough(s->config, reply, line);

	if (reply && !enough)
		store_reject(s, "%s", line);
	acks_answered(&redis_of(s)->acks, enough);
}

static void send_wait(void *arg)
{
	struct store *s = arg;
	char count[16], limit[24];

	snprintf(count, sizeof(count), "%d", config_acknowledgements(s->config));
	snprintf(limit, sizeof(limit), "%lld", (long long)acks_limit_ms(s->config));
	/* The scripts have gone out, so only memory can be missing, and without this WAIT their answers would be waited
	 * for for ever. */
	if (link_send(redis_of(s)->commands, 3, (const char *const[]){"WAIT", count, limit}, send_on_acks, s) != 0)
		store_need(NULL);
}

void send_init(struct store *s)
{
	static const struct acks_events events = {.ask = send_wait, .acknowledged = send_acknowledged};

	acks_init(&redis_of(s)->acks, &events, s);
}
