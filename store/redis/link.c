#include "store/redis/link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "store/redis/address.h"

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
	struct channel *channel; /* NULL: its address is looked up, or it could not be opened */
	struct channel_target *target;
	struct address_lookup *lookup; /* NULL: none is under way */
	uv_timer_t timer;
	enum link_state state;
	uint64_t limit_ms, started_ms;
	bool last_look;   /* the limit has passed; what has arrived meanwhile is read first */
	size_t taken;     /* bytes of the answer that comes */
	redisReply *told; /* the reply whose callback runs */
	int failed;       /* why it could not be opened */
	struct link_events events;
	void *arg;
	redisReader *reader;
	struct link_gate *gate; /* that leads here; NULL: none */
	struct pending *first, **last;
};

struct link_shot {
	char *command;
	size_t len;
	struct pending *pending; /* NULL: it was fired */
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

/* ---- commands that wait for answers; under the gate's mutex, since other threads may fire ---- */

static void link_lock(struct link *link)
{
	if (link->gate)
		pthread_mutex_lock(&link->gate->mutex);
}

static void link_unlock(struct link *link)
{
	if (link->gate)
		pthread_mutex_unlock(&link->gate->mutex);
}

static void link_await(struct link *link, struct pending *pending)
{
	pending->sent_ms = link_now_ms();
	pending->next = NULL;
	*link->last = pending;
	link->last = &pending->next;
}

static struct pending *link_next_pending(struct link *link)
{
	struct pending *pending;

	link_lock(link);
	pending = link->first;
	if (pending)
		link->first = pending->next;
	if (!link->first)
		link->last = &link->first;
	link_unlock(link);
	return pending;
}

/* 0: none waits. */
static uint64_t link_first_sent_ms(struct link *link)
{
	uint64_t sent_ms;

	link_lock(link);
	sent_ms = link->first ? link->first->sent_ms : 0;
	link_unlock(link);
	return sent_ms;
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
	struct pending *pending = link_next_pending(link);
	if (!pending) {
		/* Redis says so unasked when it refuses a connection. */
		if (reply->type == REDIS_REPLY_ERROR)
			link_break(link, "the server said: %.200s", reply->str);
		else
			link_break(link, "the server sent an answer to no question: it is no Redis");
		return;
	}
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
	link->taken += len;
	while (link->state == LINK_OPEN && !failed) {
		failed = redisReaderGetReply(link->reader, &reply);
		if (failed || !reply)
			break;
		link->taken = 0;
		link->told = reply;
		link_take_reply(link, reply);
		freeReplyObject(link->told);
	}
	if (failed)
		link_break(link, "what the server sends is not Redis's protocol (%s)", link->reader->errstr);
	else if (link->taken > MAX_REPLY_BYTES)
		link_break(link, "the server sends an answer of more than %u bytes", MAX_REPLY_BYTES);
}

/* ---- the time limit ---- */

static void link_give_up(struct link *link)
{
	unsigned long long ms = link->limit_ms;

	if (link->lookup)
		link_break(link, "cannot look up the address of %s within %llu ms", link->target->host, ms);
	else
		link_break(link, "%s within %llu ms",
			   link->state == LINK_OPEN ? "no answer" : channel_awaits(link->channel), ms);
}

static void link_on_timer(uv_timer_t *timer)
{
	struct link *link = timer->data;
	uint64_t since = link->state == LINK_OPEN ? link_first_sent_ms(link) : link->started_ms;

	if (link->state >= LINK_BROKEN || !since)
		return;
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
		link_give_up(link);
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

static void link_on_unopened(uv_timer_t *timer)
{
	struct link *link = timer->data;

	link_break(link, "cannot connect: %s", uv_strerror(link->failed));
}

static void link_open_channel(struct link *link)
{
	const struct channel_events events = {
		.connected = link_on_connected, .bytes = link_on_bytes, .broken = link_on_broken};

	link->failed = channel_open(link->timer.loop, link->target, &events, link, &link->channel);
	if (link->failed)
		uv_timer_start(&link->timer, link_on_unopened, 0, 0); /* every failure is reported from the loop */
}

static void link_on_addresses(void *arg, const struct addrinfo *list, const char *why)
{
	struct link *link = arg;

	link->lookup = NULL;
	if (!list) {
		link_break(link, "cannot look up the address of %s: %s", link->target->host, why);
		return;
	}
	list = store_address(list, link->target->attempt);
	memcpy(&link->target->address, list->ai_addr, list->ai_addrlen);
	link_open_channel(link);
}

struct link *link_open(uv_loop_t *loop, struct channel_target *target, uint64_t limit_ms,
		       const struct link_events *events, void *arg)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	*link = (struct link){.limit_ms = limit_ms, .events = *events, .arg = arg, .target = target};
	link->started_ms = link_now_ms();
	link->last = &link->first;
	link->reader = reply_reader_new();
	if (!link->reader) {
		free(link);
		return NULL;
	}
	uv_timer_init(loop, &link->timer); /* cannot fail */
	link->timer.data = link;
	uv_timer_start(&link->timer, link_on_timer, limit_ms, 0);
	if (target->path || target->address.ss_family ||
	    address_of_number(target->host, target->port, &target->address)) {
		link_open_channel(link);
		return link;
	}
	link->failed = address_look_up(loop, target->host, target->port, link_on_addresses, link, &link->lookup);
	if (link->failed)
		uv_timer_start(&link->timer, link_on_unopened, 0, 0);
	return link;
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
	*pending = (struct pending){.cb = cb, .arg = arg};
	link_lock(link);
	ret = channel_write(link->channel, command, (size_t)len, link_free_command);
	if (ret == 0)
		link_await(link, pending);
	link_unlock(link);
	if (ret)
		goto failed;
	if (!uv_is_active((uv_handle_t *)&link->timer))
		uv_timer_start(&link->timer, link_on_timer, link->limit_ms, 0);
	return 0;
failed:
	free(pending);
	return ret;
}

/* ---- firing ---- */

void link_gate_init(struct link_gate *gate)
{
	pthread_mutex_init(&gate->mutex, NULL);
	gate->link = NULL;
}

void link_gate_open(struct link_gate *gate, struct link *link)
{
	pthread_mutex_lock(&gate->mutex);
	gate->link = link;
	link->gate = gate;
	pthread_mutex_unlock(&gate->mutex);
}

void link_gate_close(struct link_gate *gate)
{
	pthread_mutex_lock(&gate->mutex);
	if (gate->link)
		gate->link->gate = NULL;
	gate->link = NULL;
	pthread_mutex_unlock(&gate->mutex);
}

void link_gate_destroy(struct link_gate *gate)
{
	pthread_mutex_destroy(&gate->mutex);
}

struct link_shot *link_shot_new(int argc, const char *const *argv, link_reply_cb *cb, void *arg)
{
	struct link_shot *shot = calloc(1, sizeof(*shot));
	struct pending *pending = malloc(sizeof(*pending));
	long long len = shot && pending ? redisFormatCommandArgv(&shot->command, argc, (const char **)argv, NULL) : -1;

	if (len < 0) {
		free(pending);
		free(shot);
		return NULL;
	}
	*pending = (struct pending){.cb = cb, .arg = arg};
	shot->len = (size_t)len;
	shot->pending = pending;
	return shot;
}

int link_shot_fire(struct link_shot *shot, struct link_gate *gate)
{
	int ret = -ENOTCONN;

	pthread_mutex_lock(&gate->mutex);
	if (gate->link)
		ret = channel_send_now(gate->link->channel, shot->command, shot->len);
	if (ret == 0) {
		link_await(gate->link, shot->pending);
		shot->pending = NULL;
	}
	pthread_mutex_unlock(&gate->mutex);
	return ret;
}

void link_shot_free(struct link_shot *shot)
{
	redisFreeCommand(shot->command);
	free(shot->pending);
	free(shot);
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
	if (link->lookup)
		address_cancel(link->lookup);
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
