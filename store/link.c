#include "store/link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES      65536
#define MAX_REPLY_BYTES (64u << 20)
#define WHY_BYTES       256

enum link_state { LINK_CONNECTING, LINK_OPEN, LINK_BROKEN, LINK_CLOSED };

struct pending {
	struct pending *next;
	link_reply_cb *cb;
	void *arg;
	uint64_t sent_ms;
};

struct link {
	uv_loop_t *loop;
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	uv_timer_t timer;
	uv_connect_t connect;
	unsigned open_handles;
	enum link_state state;
	uint64_t limit_ms, started_ms;
	bool last_look;   /* the limit has passed; what has arrived meanwhile is read first */
	redisReply *told; /* the reply whose callback runs */
	struct link_events events;
	void *arg;
	redisReader *reader;
	struct pending *first, **last;
	char buffer[READ_BYTES];
};

struct write {
	uv_write_t request;
	struct link *link;
	char *command;
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
	link->events.message(link->arg, reply->element[2]->str, reply->element[2]->len);
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

static void link_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct link *link = stream->data;
	void *reply = NULL;

	if (n < 0) {
		link_break(link, "%s", n == UV_EOF ? "the server closed the connection" : uv_strerror((int)n));
		return;
	}
	if (n == 0 || link->state != LINK_OPEN)
		return;
	int failed = redisReaderFeed(link->reader, buf->base, (size_t)n);
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

static void link_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct link *link = handle->data;

	(void)suggested;
	*buf = uv_buf_init(link->buffer, sizeof(link->buffer));
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
		link_break(link, "%s within %llu ms", link->state == LINK_OPEN ? "no answer" : "no connection",
			   (unsigned long long)link->limit_ms);
	}
}

/* ---- connecting, sending, closing ---- */

static void link_on_connect(uv_connect_t *request, int status)
{
	struct link *link = request->data;

	if (link->state != LINK_CONNECTING)
		return;
	if (status == 0)
		status = uv_read_start(&link->io.stream, link_on_alloc, link_on_read);
	if (status < 0) {
		link_break(link, "%s", uv_strerror(status));
		return;
	}
	link->state = LINK_OPEN;
	link->last_look = false;
	uv_timer_stop(&link->timer);
	link->events.connected(link->arg);
}

static void link_on_closed(uv_handle_t *handle)
{
	struct link *link = handle->data;

	if (--link->open_handles > 0)
		return;
	redisReaderFree(link->reader);
	free(link);
}

static int link_start_connecting(struct link *link, const struct link_target *target)
{
	int ret;

	link->connect.data = link;
	if (target->path) {
		ret = uv_pipe_init(link->loop, &link->io.pipe, 0);
		if (ret)
			return ret;
		link->open_handles++;
		uv_pipe_connect(&link->connect, &link->io.pipe, target->path, link_on_connect);
	} else {
		ret = uv_tcp_init(link->loop, &link->io.tcp);
		if (ret)
			return ret;
		link->open_handles++;
		uv_tcp_nodelay(&link->io.tcp, 1);
		ret = uv_tcp_connect(&link->connect, &link->io.tcp, (const struct sockaddr *)&target->address,
				     link_on_connect);
	}
	link->io.handle.data = link;
	return ret;
}

struct link *link_open(uv_loop_t *loop, const struct link_target *target, uint64_t limit_ms,
		       const struct link_events *events, void *arg, char *why, size_t why_size)
{
	struct link *link = calloc(1, sizeof(*link));
	int ret = UV_ENOMEM;

	if (!link)
		goto failed;
	*link = (struct link){
		.loop = loop, .limit_ms = limit_ms, .events = *events, .arg = arg, .started_ms = link_now_ms()};
	link->last = &link->first;
	link->reader = reply_reader_new();
	if (!link->reader)
		goto failed;
	uv_timer_init(loop, &link->timer); /* cannot fail */
	link->timer.data = link;
	link->open_handles = 1;
	ret = link_start_connecting(link, target);
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

static void link_on_written(uv_write_t *request, int status)
{
	struct write *write = (struct write *)request;

	if (status < 0)
		link_break(write->link, "%s", uv_strerror(status));
	redisFreeCommand(write->command);
	free(write);
}

int link_send(struct link *link, int argc, const char *const *argv, link_reply_cb *cb, void *arg)
{
	struct pending *pending = malloc(sizeof(*pending));
	struct write *write = malloc(sizeof(*write));
	char *command = NULL;
	int ret = -ENOMEM;

	if (!pending || !write)
		goto failed;
	ret = -ENOTCONN;
	if (link->state != LINK_OPEN)
		goto failed;
	ret = -ENOMEM;
	long long len = redisFormatCommandArgv(&command, argc, (const char **)argv, NULL);
	if (len < 0)
		goto failed;
	*write = (struct write){.link = link, .command = command};
	uv_buf_t buf = uv_buf_init(command, (unsigned)len);
	ret = uv_write(&write->request, &link->io.stream, &buf, 1, link_on_written);
	if (ret)
		goto failed;
	*pending = (struct pending){.cb = cb, .arg = arg, .sent_ms = link_now_ms()};
	if (!link->first)
		uv_timer_start(&link->timer, link_on_timer, link->limit_ms, 0);
	*link->last = pending;
	link->last = &pending->next;
	return 0;
failed:
	if (command)
		redisFreeCommand(command);
	free(write);
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
	if (link->open_handles > 1)
		uv_close(&link->io.handle, link_on_closed);
	for (struct pending *pending = link->first; pending; pending = next) {
		next = pending->next;
		pending->cb(pending->arg, NULL);
		free(pending);
	}
	link->first = NULL;
	link->last = &link->first;
}
