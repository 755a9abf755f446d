/*
 * From an address to a pair of checked connections: looks the name up, connects for commands, runs the first steps of
 * steps.c, loads the scripts, connects for messages, runs the other steps. One question follows the other, but for the
 * scripts, which are sent all at once. Every error ends in store_fail(), and redis.c starts again after that.
 */
#include "store/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- running the steps ---- */

/* A step whose refusal harms nothing. It is reported once, and not at each connection. */
static bool connect_refused_optional(struct store *s, const redisReply *reply)
{
	char line[REPLY_LINE_BYTES];

	if (!s->connect.step->optional || !reply || reply->type != REDIS_REPLY_ERROR ||
	    strncmp(reply->str, "NOAUTH", 6) == 0)
		return false;
	reply_explain(reply->str, line);
	if (!s->step_noted && s->callbacks.on_note)
		s->callbacks.on_note(s->arg, line);
	s->step_noted = true;
	return true;
}

/* The common part of all answers. False: the answer is of no use, and the store is down. */
static bool connect_usable(struct store *s, const redisReply *reply)
{
	char line[REPLY_LINE_BYTES];

	if (!reply)
		return false; /* store_fail() or store_free() closes the link */
	if (reply->type != REDIS_REPLY_ERROR)
		return true;
	reply_explain(reply->str, line);
	store_reject(s, "%s", line);
	return false;
}

static void connect_load_scripts(struct store *s);
static void connect_next_step(struct store *s);

static void connect_on_step(void *arg, const redisReply *reply)
{
	struct store *s = arg;
	const struct connect_step *step = s->connect.step;

	if (!connect_refused_optional(s, reply) &&
	    (!connect_usable(s, reply) || (step->accept && !step->accept(s, reply))))
		return;
	s->connect.step++;
	connect_next_step(s);
}

static void connect_next_step(struct store *s)
{
	char text[STEP_TEXT_BYTES];
	const char *argv[STEP_ARGS];
	int argc = 0;

	for (; s->connect.step->command; s->connect.step++) {
		argc = s->connect.step->command(s, argv, text);
		if (argc > 0)
			break;
	}
	if (argc > 0) {
		int ret = link_send(s->messages ? s->messages : s->commands, argc, argv, connect_on_step, s);
		if (ret)
			store_fail(s, "cannot send: %s", uv_strerror(ret));
	} else if (s->messages) {
		s->news->connected(s);
	} else {
		connect_load_scripts(s);
	}
}

static void connect_on_check(void *arg, const redisReply *reply)
{
	struct store *s = arg;

	if (connect_usable(s, reply))
		steps_of_check->accept(s, reply);
}

void connect_check(struct store *s)
{
	char text[STEP_TEXT_BYTES];
	const char *argv[STEP_ARGS];

	if (s->config->replicas == 0 && !s->config->cluster)
		return;
	int ret = link_send(s->commands, steps_of_check->command(s, argv, text), argv, connect_on_check, s);
	if (ret)
		store_fail(s, "cannot send: %s", uv_strerror(ret));
}

/* ---- the links ---- */

static void connect_on_connected(void *arg)
{
	connect_next_step(arg);
}

static void connect_on_broken(void *arg, const char *why)
{
	store_fail(arg, "%s", why);
}

static void connect_on_message(void *arg, const char *channel, const char *text, size_t len)
{
	struct store *s = arg;

	s->news->message(s, channel, text, len);
}

/* As the configuration or the sentinels name it. */
static const char *connect_host(const struct store *s)
{
	return s->config->sentinel_count ? s->discover.host : s->config->address.host;
}

/* Whose certificate the server must show. */
static const char *connect_name(const struct store *s)
{
	return s->config->tls.server_name ? s->config->tls.server_name : connect_host(s);
}

static struct link *connect_open(struct store *s, const struct connect_step *steps, bool messages)
{
	const struct link_events events = {.connected = connect_on_connected,
					   .message = messages ? connect_on_message : NULL,
					   .broken = connect_on_broken};
	char why[128];

	s->connect.step = steps;
	s->connect.target.tls = credentials_context(s->credentials);
	s->connect.target.name = connect_name(s);
	struct link *link =
		link_open(s->loop, &s->connect.target, (uint64_t)s->config->connect_ms, &events, s, why, sizeof(why));
	if (!link)
		store_fail(s, "cannot connect: %s", why);
	return link;
}

static void connect_on_loaded(void *arg, const redisReply *reply)
{
	struct store *s = arg;

	if (!connect_usable(s, reply))
		return;
	if (reply->type != REDIS_REPLY_STRING || reply->len != STORE_SHA_BYTES - 1 ||
	    strlen(reply->str) != reply->len) {
		store_reject(s, "SCRIPT LOAD was answered with something else: it is no Redis");
		return;
	}
	strcpy(s->sha[s->connect.loaded++], reply->str);
	if (s->connect.loaded == SCRIPTS)
		s->messages = connect_open(s, steps_of_messages, true);
}

static void connect_load_scripts(struct store *s)
{
	s->connect.loaded = 0;
	for (enum script_id id = 0; id < SCRIPTS; id++) {
		char *text = script_text(id, s->redis7);
		int ret = text ? link_send(s->commands, 3, (const char *const[]){"SCRIPT", "LOAD", text},
					   connect_on_loaded, s)
			       : -ENOMEM;

		free(text);
		if (ret) {
			store_fail(s, "cannot send: %s", uv_strerror(ret));
			return;
		}
	}
}

/* ---- the address ---- */

static void connect_commands(struct store *s)
{
	s->state = STORE_CONNECTING;
	uv_timer_stop(&s->retry);
	s->commands = connect_open(s, steps_of_commands, false);
}

static void connect_on_addresses(void *arg, const struct addrinfo *list, const char *why)
{
	struct store *s = arg;
	unsigned count = 0;

	s->connect.lookup = NULL;
	if (!list) {
		store_fail(s, "cannot look up the address of %s: %s", connect_host(s), why);
		return;
	}
	for (const struct addrinfo *a = list; a; a = a->ai_next)
		count++;
	/* One address for each attempt: both connections must go to the same one. */
	for (unsigned i = s->connect.attempt++ % count; i > 0; i--)
		list = list->ai_next;
	memcpy(&s->connect.target.address, list->ai_addr, list->ai_addrlen);
	connect_commands(s);
}

static void connect_on_limit(uv_timer_t *timer)
{
	struct store *s = timer->data;

	store_fail(s, "cannot look up the address of %s within %" PRId64 " ms", connect_host(s), s->config->connect_ms);
}

void connect_cancel(struct store *s)
{
	if (s->connect.lookup)
		address_cancel(s->connect.lookup);
	s->connect.lookup = NULL;
}

void connect_to_socket(struct store *s, const char *path)
{
	s->connect.target.path = path;
	connect_commands(s);
}

void connect_to(struct store *s, const char *host, int port)
{
	const char *why;

	s->connect.target.path = NULL;
	if (address_of_number(host, port, &s->connect.target.address)) {
		connect_commands(s);
		return;
	}
	s->state = STORE_RESOLVING;
	uv_timer_start(&s->retry, connect_on_limit, (uint64_t)s->config->connect_ms, 0);
	s->connect.lookup = address_look_up(s->loop, host, port, connect_on_addresses, s, &why);
	if (!s->connect.lookup)
		store_fail(s, "cannot look up the address of %s: %s", connect_host(s), why);
}
