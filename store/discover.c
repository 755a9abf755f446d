/*
 * Where the server is, as the sentinels say.
 *
 * Each round begins with another sentinel than the one before, so that one that is cut off with an old master costs one
 * attempt: what it names has too few replicas that acknowledge (acks.c), or is none, and the next one is asked.
 *
 * While the store is up it is asked now and then whether the master has moved, so that a keeper that has nothing to
 * renew does not stay with an old one. Only most of the sentinels together are believed: a single one may be cut off.
 */
#include "store/internal.h"

#include <stdio.h>
#include <string.h>

static void ask_next(struct store *s);

static bool is_here(const struct store *s, const char *host, int port)
{
	return strcmp(host, s->master_host) == 0 && port == s->master_port;
}

static void connect_there(struct store *s, const char *host, int port)
{
	char at[SENTINEL_HOST_BYTES + 16];

	snprintf(s->master_host, sizeof(s->master_host), "%s", host);
	s->master_port = port;
	address_show(host, port, at, sizeof(at));
	snprintf(s->server, sizeof(s->server), "%s at %s", s->config->master, at);
	connect_to(s, host, port);
}

/* While it is being looked for. */
static void on_found(struct store *s, const char *host, int port)
{
	if (host)
		connect_there(s, host, port);
	else if (s->asked < s->config->sentinel_count)
		ask_next(s);
	else
		store_down(s, "no sentinel says where it is. %s", s->first_why);
}

/* While the store is up. */
static void on_checked(struct store *s, const char *host, int port)
{
	char at[SENTINEL_HOST_BYTES + 16];

	if (host && is_here(s, host, port))
		return;
	if (host && ++s->elsewhere > s->config->sentinel_count / 2) {
		address_show(host, port, at, sizeof(at));
		store_down(s, "the sentinels say that the master is %s now", at);
	} else if (s->elsewhere > 0 && s->asked < s->config->sentinel_count) {
		ask_next(s);
	}
}

static void on_told(void *arg, const char *host, int port, const char *why)
{
	struct store *s = arg;

	s->question = NULL;
	/* That of the first is what is reported: always the same one, or the log would fill. */
	if (why && s->sentinel == 1 % s->config->sentinel_count)
		snprintf(s->first_why, sizeof(s->first_why), "%s", why);
	if (s->state == STORE_ASKING)
		on_found(s, host, port);
	else
		on_checked(s, host, port);
}

static void ask_next(struct store *s)
{
	s->question = store_need(sentinel_ask(s->loop, s->config, s->sentinel, on_told, s));
	s->sentinel = (s->sentinel + 1) % s->config->sentinel_count;
	s->asked++;
}

void discover_start(struct store *s)
{
	s->state = STORE_ASKING;
	snprintf(s->server, sizeof(s->server), "%s", s->config->master);
	s->asked = 0;
	ask_next(s);
}

void discover_check(struct store *s)
{
	if (s->config->sentinel_count == 0 || s->question)
		return;
	s->asked = s->elsewhere = 0;
	ask_next(s);
}

void discover_cancel(struct store *s)
{
	if (s->question)
		sentinel_cancel(s->question);
	s->question = NULL;
}
