/* The life of a store: up and down, the incarnation record, messages. */
#include "store/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 2000

/* ---- down ---- */

static void close_links(struct store *s)
{
	struct link *links[] = {s->commands, s->messages};

	s->commands = s->messages = NULL;
	for (size_t i = 0; i < 2; i++)
		if (links[i])
			link_close(links[i]);
}

static void end_init(struct store *s, enum store_status status, const char *error)
{
	struct request *init = s->init;

	s->init = NULL;
	if (init)
		request_end(init, status, error);
}

static void on_retry(uv_timer_t *timer)
{
	connect_start(timer->data);
}

void store_down(struct store *s, const char *format, ...)
{
	va_list args;

	if (s->state == STORE_DOWN || s->state == STORE_FREED)
		return;
	bool was_up = s->state == STORE_UP;
	va_start(args, format);
	vsnprintf(s->error, sizeof(s->error), format, args);
	va_end(args);
	s->state = STORE_DOWN;
	s->ttl_refused = s->rereading = false;
	connect_cancel(s);
	discover_cancel(s);
	uv_timer_stop(&s->ping);
	uv_timer_start(&s->retry, on_retry, s->retry_ms, 0);
	s->retry_ms = s->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : s->retry_ms * 2;
	close_links(s);
	end_init(s, STORE_UNREACHABLE, s->error);
	if (was_up || strcmp(s->error, s->reported) != 0) {
		strcpy(s->reported, s->error);
		s->callbacks.on_down(s->arg, s->error);
	}
}

/* ---- up ---- */

static void on_pong(void *arg, const redisReply *reply)
{
	struct store *s = arg;
	char line[REPLY_LINE_BYTES];

	if (!reply || reply->type != REDIS_REPLY_ERROR)
		return;
	reply_explain(reply->str, line);
	store_down(s, "%s", line);
}

/* The commands' connection is tried by every beat; this one might be dead for hours before anybody noticed. */
static void on_ping(uv_timer_t *timer)
{
	struct store *s = timer->data;
	int err = link_send(s->messages, 1, (const char *const[]){"PING"}, on_pong, s);

	if (err)
		store_down(s, "cannot send: %s", uv_strerror(err));
	if (s->state == STORE_UP)
		connect_check(s);
	if (s->state == STORE_UP)
		discover_check(s);
}

static void store_up(struct store *s)
{
	uint64_t every_ms = s->ttl_ms < 3 ? 1 : (uint64_t)s->ttl_ms / 3;

	s->state = STORE_UP;
	s->retry_ms = RETRY_MIN_MS;
	s->error[0] = s->reported[0] = '\0';
	s->noted = false;
	uv_timer_start(&s->ping, on_ping, every_ms, every_ms);
	s->callbacks.on_up(s->arg);
}

/* ---- the record ---- */

void store_set_record(struct store *s, const struct reply_record *record)
{
	char old[STORE_INC_BYTES];

	s->grace = !record->open;
	if (strcmp(s->incarnation, record->incarnation) == 0)
		return;
	strcpy(old, s->incarnation);
	strcpy(s->incarnation, record->incarnation);
	s->callbacks.on_incarnation(s->arg, old, s->incarnation);
}

void store_explain_ttl(const struct store *s, int64_t ttl_ms, char line[REPLY_LINE_BYTES])
{
	snprintf(line, REPLY_LINE_BYTES,
		 "the store's leases have ttl_ms = %" PRId64 ", this keeper is configured with %" PRId64
		 ": use the same value in every configuration; dflock(1), init, says how to change it everywhere",
		 ttl_ms, s->ttl_ms);
}

static void on_record(struct request *r, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = r->store;
	struct reply_record record;
	char line[REPLY_LINE_BYTES];
	bool inits = s->init && r->arg == s->init;

	(void)status;
	s->rereading = false;
	if (s->state == STORE_DOWN || s->state == STORE_FREED)
		return;
	if (!reply) {
		store_down(s, "%s", error);
	} else if (reply_parse_record(reply, &record) != 0) {
		request_nonsense(r);
	} else if (s->init && !inits) {
		store_read_record(s);
	} else if (record.refused_ttl) {
		store_explain_ttl(s, record.ttl_ms, line);
		store_down(s, "%s", line);
		s->ttl_refused = true;
	} else {
		s->ttl_refused = false;
		store_set_record(s, &record);
		if (s->state == STORE_CONNECTING)
			store_up(s);
		end_init(s, STORE_OK, NULL);
	}
}

void store_read_record(struct store *s)
{
	struct request *r = request_script(s, SCRIPT_STORE, NULL);

	r->arg = s->init;
	request_add(r, s->init ? "init" : "begin");
	request_add(r, "%" PRId64, s->ttl_ms);
	request_send_early(r, on_record);
}

void store_reread_record(struct store *s)
{
	if (s->state != STORE_UP || s->rereading)
		return;
	s->rereading = true;
	store_read_record(s);
}

void store_init_later(struct store *s, struct request *r, request_done *done)
{
	r->done = done;
	s->init = r;
	if (s->state == STORE_DOWN)
		uv_timer_start(&s->retry, on_retry, 1, 0);
}

/* ---- messages ---- */

void store_take_message(struct store *s, const char *text, size_t len)
{
	struct store_message message;

	if (s->state != STORE_UP)
		return;
	switch (reply_parse_message(text, len, s->incarnation, &message)) {
	case 0:
		message.provisional = s->config->replicas > 0;
		s->callbacks.on_message(s->arg, &message);
		break;
	case -ESTALE: /* a grant of before the store lost its memory: it is worth nothing */
		break;
	default:
		if (!s->noted && s->callbacks.on_note)
			s->callbacks.on_note(s->arg, "a malformed message came through the store and was ignored: "
						     "is a keeper of another version, or something else, using it?");
		s->noted = true;
	}
}

/* ---- life ---- */

static void on_closed(uv_handle_t *handle)
{
	struct store *s = handle->data;

	if (--s->open_handles == 0)
		free(s);
}

struct store *store_new(uv_loop_t *loop, const struct config_store *config, int64_t ttl_ms, const char *host,
			const struct store_callbacks *callbacks, void *arg)
{
	struct store *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	*s = (struct store){.loop = loop,
			    .config = config,
			    .ttl_ms = ttl_ms,
			    .callbacks = *callbacks,
			    .arg = arg,
			    .retry_ms = RETRY_MIN_MS,
			    .grace = true};
	s->refused_last = &s->refused;
	acks_init(s);
	snprintf(s->host, sizeof(s->host), "%s", host);
	if (config->socket)
		snprintf(s->server, sizeof(s->server), "unix:%s", config->socket);
	else if (config->sentinel_count)
		snprintf(s->server, sizeof(s->server), "%s", config->master);
	else
		address_show(config->address.host, config->address.port, s->server, sizeof(s->server));
	strcpy(s->error, "not connected yet");
	uv_timer_t *timers[] = {&s->retry, &s->ping, &s->soon};
	for (size_t i = 0; i < 3; i++) {
		uv_timer_init(loop, timers[i]);
		timers[i]->data = s;
		s->open_handles++;
	}
	uv_timer_start(&s->retry, on_retry, 0, 0);
	return s;
}

void store_free(struct store *s)
{
	s->state = STORE_FREED;
	strcpy(s->error, "the connection was given up");
	connect_cancel(s);
	discover_cancel(s);
	close_links(s);
	end_init(s, STORE_UNREACHABLE, s->error);
	while (s->refused) /* a callback may have asked once more */
		request_end_refused(s);
	uv_close((uv_handle_t *)&s->retry, on_closed);
	uv_close((uv_handle_t *)&s->ping, on_closed);
	uv_close((uv_handle_t *)&s->soon, on_closed);
}

bool store_is_up(const struct store *s)
{
	return s->state == STORE_UP;
}

const char *store_incarnation(const struct store *s)
{
	return s->incarnation;
}

bool store_in_grace(const struct store *s)
{
	return s->grace;
}

const char *store_last_error(const struct store *s)
{
	return s->error;
}

const char *store_version(const struct store *s)
{
	return s->version;
}

const char *store_server(const struct store *s)
{
	return s->server;
}
