/* Where the server is, as the sentinels or the nodes of a cluster say. The check while the store is up is for a keeper
 * that has nothing to renew: it would otherwise stay with an old master. */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "store/internal.h"

void round_begin(struct round *round)
{
	round->asked = round->elsewhere = 0;
}

size_t round_next(struct round *round)
{
	size_t index = round->next;

	round->next = (index + 1) % round->count;
	round->asked++;
	return index;
}

bool round_was_first(const struct round *round)
{
	return round->next == 1 % round->count;
}

enum round_verdict round_found(const struct round *round, bool named)
{
	if (named)
		return ROUND_BELIEVE;
	return round->asked < round->count ? ROUND_ASK : ROUND_OVER;
}

enum round_verdict round_checked(struct round *round, bool named, bool here)
{
	if (named && here)
		return ROUND_OVER;
	if (named && ++round->elsewhere > round->count / 2)
		return ROUND_BELIEVE;
	return round->elsewhere > 0 && round->asked < round->count ? ROUND_ASK : ROUND_OVER;
}

static void discover_ask(struct store *s);

static bool is_same_master(const struct store *s, const char *host, int port)
{
	return strcmp(host, s->discover.host) == 0 && port == s->discover.port;
}

const char *discover_name(const struct config_store *config)
{
	return config->cluster ? "the cluster" : config->master;
}

static void connect_to_master(struct store *s, const char *host, int port)
{
	char at[SENTINEL_HOST_BYTES + 32];

	snprintf(s->discover.host, sizeof(s->discover.host), "%s", host);
	s->discover.port = port;
	address_show(host, port, s->config->tls.on, at, sizeof(at));
	snprintf(s->server, sizeof(s->server), "%s at %s", discover_name(s->config), at);
	connect_to(s, host, port);
}

/* The store is down, and looks for the master. */
static void discover_found(struct store *s, const char *host, int port)
{
	switch (round_found(&s->discover.round, host != NULL)) {
	case ROUND_BELIEVE:
		connect_to_master(s, host, port);
		break;
	case ROUND_ASK:
		discover_ask(s);
		break;
	case ROUND_OVER:
		store_fail(s,
			   s->config->cluster ? "no node of the cluster says where it is. %s"
					      : "no sentinel says where it is. %s",
			   s->discover.first_why);
		break;
	}
}

/* The store is up. */
static void discover_checked(struct store *s, const char *host, int port)
{
	char at[SENTINEL_HOST_BYTES + 32];

	switch (round_checked(&s->discover.round, host != NULL, host && is_same_master(s, host, port))) {
	case ROUND_BELIEVE:
		address_show(host, port, s->config->tls.on, at, sizeof(at));
		store_fail(s,
			   s->config->cluster ? "the nodes say that the master is %s now"
					      : "the sentinels say that the master is %s now",
			   at);
		break;
	case ROUND_ASK:
		discover_ask(s);
		break;
	case ROUND_OVER:
		break;
	}
}

static void discover_on_answer(void *arg, const char *host, int port, const char *why)
{
	struct store *s = arg;

	s->discover.question = NULL;
	if (why && round_was_first(&s->discover.round))
		snprintf(s->discover.first_why, sizeof(s->discover.first_why), "%s", why);
	if (s->state == STORE_ASKING)
		discover_found(s, host, port);
	else
		discover_checked(s, host, port);
}

static void discover_ask(struct store *s)
{
	s->discover.question = store_need(sentinel_ask(s->loop, s->config, credentials_context(s->credentials),
						       round_next(&s->discover.round), discover_on_answer, s));
}

void discover_start(struct store *s)
{
	s->state = STORE_ASKING;
	snprintf(s->server, sizeof(s->server), "%s", discover_name(s->config));
	round_begin(&s->discover.round);
	discover_ask(s);
}

void discover_check(struct store *s)
{
	if (s->config->sentinel_count == 0 || s->discover.question)
		return;
	round_begin(&s->discover.round);
	discover_ask(s);
}

void discover_cancel(struct store *s)
{
	if (s->discover.question)
		sentinel_cancel(s->discover.question);
	s->discover.question = NULL;
}
