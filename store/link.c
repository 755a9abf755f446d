#include "store/link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPLY_BYTES (64u << 20)
#define WHY_BYTES       512

enum link_state { LINK_CONNECTING, LINK_OPEN, LINK_BROKEN, LINK_CLOSED };

struct pending {
	struct pending *next;
	link_reply_cb *cb;
	void *arg;
	uint64_t sent_ms;
};

struct link {
	struct channel *channel;
	uv_timer_t timer;
	enum link_state state;
	uint64_t limit_ms, started_ms;
	bool last_look;   /* the limit has passed; what has arrived meanwhile is read first */
	redisReply *told; /* the reply whose callback runs */
	struct link_events events;
	void *arg;
	redisReader *reader;
	struct pending *first, **last;
};

static uint64_t link_now_ms(void)
{
	return uv_hrtime() / 1000000; /* the loop's own time is that of the turn's begin */
}

__attribute__((format(printf, 2, 3))) static void link_break(struct link *link, const char *format, ...)
{
	char why[WHY_BYTES];
	va_list args;

	if (link->state >= LINK_BROKEN)
		return;
	link->state = LINK_BROKEN;
	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	link->events.broken(link->arg, why);
}

/* ---- receiving ---- */

/* A published message is the only thing on a link that is no answer. */
static bool link_take_message(struct link *link, const redisReply *reply)
{
	if (!link->events.message || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
		return false;
	for (size_t i = 0; i < 3; i++)
		if (reply->element[i]->type != REDIS_REPLY_STRING)
			return false;
	if (strcmp(reply->element[0]->str, "message") != 0)
		return false;
	link->events.message(link->arg, reply->element[1]->str, reply->element[2]->str, reply->element[2]->len);
	return true;
}

static void link_take_reply(struct link *link, const redisReply *reply)
{
	if (link_take_message(link, reply))
		return;
	struct pending *pending = link->first;
	if (!pending) {
		/* Redis says so unasked when it refuses a connection. */
		if (reply->type == REDIS_REPLY_ERROR)
			link_break(link, "the server said: %.200s", reply->str);
		else
			link_break(link, "the server sent an answer to no question: it is no Redis");
		return;
	}
	link->first = pending->next;
	if (!link->first)
		link->last = &link->first;
	link->last_look = false;
	pending->cb(pending->arg, reply);
	free(pending);
}

static void link_on_bytes(void *arg, const char *bytes, size_t len)
{
	struct link *link = arg;
	void *reply = NULL;

	if (link->state != LINK_OPEN)
		return;
	int failed = redisReaderFeed(link->reader, bytes, len);
	while (link->state == LINK_OPEN && !failed) {
		failed = redisReaderGetReply(link->reader, &reply);
		if (failed || !reply)
			break;
		link->told = reply;
		link_take_reply(link, reply);
		freeReplyObject(link->told);
	}
	if (failed)
		link_break(link, "what the server sends is not Redis's protocol (%s)", link->reader->errstr);
	else if (link->reader->len > MAX_REPLY_BYTES)
		link_break(link, "the server sends an answer of more than %u bytes", MAX_REPLY_BYTES);
}

/* ---- the time limit ---- */

static void link_on_timer(uv_timer_t *timer)
{
	struct link *link = timer->data;

	if (link->state >= LINK_BROKEN || (link->state == LINK_OPEN && !link->first))
		return;
	uint64_t since = link->state == LINK_OPEN ? link->first->sent_ms : link->started_ms;
	uint64_t waited = link_now_ms() - since;
	if (waited < link->limit_ms) {
		link->last_look = false;
		uv_timer_start(timer, link_on_timer, link->limit_ms - waited, 0);
	} else if (!link->last_look) {
		/* Timers run before sockets are read: if this process did not run for a while, the answer may have
		 * come. */
		link->last_look = true;
		uv_timer_start(timer, link_on_timer, 1, 0);
	} else {
		link_break(link, "%s within %llu ms",
			   link->state == LINK_OPEN ? "no answer" : channel_awaits(link->channel),
			   (unsigned long long)link->limit_ms);
	}
}

/* ---- connecting, sending, closing ---- */

static void link_on_connected(void *arg)
{
	struct link *link = arg;

	link->state = LINK_OPEN;
	link->last_look = false;
	uv_timer_stop(&link->timer);
	link->events.connected(link->arg);
}

static void link_on_broken(void *arg, const char *why)
{
	link_break(arg, "%s", why);
}

static void link_on_closed(uv_handle_t *handle)
{
	struct link *link = handle->data;

	redisReaderFree(link->reader);
	free(link);
}

struct link *link_open(uv_loop_t *loop, const struct channel_target *target, uint64_t limit_ms,
		       const struct link_events *events, void *arg, char *why, size_t why_size)
{
	const struct channel_events of_channel = {
		.connected = link_on_connected, .bytes = link_on_bytes, .broken = link_on_broken};
	struct link *link = calloc(1, sizeof(*link));
	int ret = UV_ENOMEM;

	if (!link)
		goto failed;
	*link = (struct link){.limit_ms = limit_ms, .events = *events, .arg = arg, .started_ms = link_now_ms()};
	link->last = &link->first;
	link->reader = reply_reader_new();
	if (!link->reader)
		goto failed;
	uv_timer_init(loop, &link->timer); /* cannot fail */
	link->timer.data = link;
	ret = channel_open(loop, target, &of_channel, link, &link->channel);
	if (ret) {
		link_close(link);
		snprintf(why, why_size, "%s", uv_strerror(ret));
		return NULL;
	}
	uv_timer_start(&link->timer, link_on_timer, limit_ms, 0);
	return link;
failed:
	free(link);
	snprintf(why, why_size, "%s", uv_strerror(ret));
	return NULL;
}

static void link_free_command(void *command)
{
	redisFreeCommand(command);
}

int link_send(struct link *link, int argc, const char *const *argv, link_reply_cb *cb, void *arg)
{
	struct pending *pending = malloc(sizeof(*pending));
	char *command = NULL;
	int ret = -ENOMEM;

	if (!pending)
		goto failed;
	ret = -ENOTCONN;
	if (link->state != LINK_OPEN)
		goto failed;
	ret = -ENOMEM;
	long long len = redisFormatCommandArgv(&command, argc, (const char **)argv, NULL);
	if (len < 0)
		goto failed;
	ret = channel_write(link->channel, command, (size_t)len, link_free_command);
	if (ret)
		goto failed;
	*pending = (struct pending){.cb = cb, .arg = arg, .sent_ms = link_now_ms()};
	if (!link->first)
		uv_timer_start(&link->timer, link_on_timer, link->limit_ms, 0);
	*link->last = pending;
	link->last = &pending->next;
	return 0;
failed:
	free(pending);
	return ret;
}

redisReply *link_keep_reply(struct link *link)
{
	redisReply *reply = link->told;

	link->told = NULL;
	return reply;
}

void link_close(struct link *link)
{
	struct pending *next;

	if (link->state == LINK_CLOSED)
		return;
	link->state = LINK_CLOSED;
	/* The handles first: the callbacks below must not find the link half closed. It lives until the loop has
	 * run. */
	uv_close((uv_handle_t *)&link->timer, link_on_closed);
	if (link->channel)
		channel_close(link->channel);
	for (struct pending *pending = link->first; pending; pending = next) {
		next = pending->next;
		pending->cb(pending->arg, NULL);
		free(pending);
	}
	link->first = NULL;
	link->last = &link->first;
}
