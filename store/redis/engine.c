/* See internal.h, struct engine: Redis. */
#include "store/redis/redis.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- connecting ---- */

static void engine_seek(struct store *s)
{
	if (s->config->sentinel_count > 0)
		discover_start(s);
	else if (s->config->socket)
		connect_to(s, s->config->socket, NULL, 0);
	else
		connect_to(s, NULL, s->config->address.host, s->config->address.port);
}

static void engine_on_credentials(void *arg, const char *why)
{
	struct store *s = arg;

	uv_timer_stop(&s->retry);
	if (why)
		store_reject(s, "%s", why);
	else
		engine_seek(s);
}

static void engine_on_reading_limit(uv_timer_t *timer)
{
	struct store *s = timer->data;

	store_reject(s,
		     "the files of TLS (tls_ca, tls_certificate_file, tls_key_file) cannot be read within %" PRId64
		     " ms: is their file system there?",
		     s->config->connect_ms);
}

static void engine_connect(struct store *s)
{
	struct credentials *credentials = redis_of(s)->credentials;

	if (!credentials) {
		engine_seek(s);
		return;
	}
	uv_timer_start(&s->retry, engine_on_reading_limit, (uint64_t)s->config->connect_ms, 0);
	if (credentials_read(credentials, engine_on_credentials, s) != 0)
		store_fail(s, "no thread can be started to read the files of TLS");
}

static void engine_close(struct store *s)
{
	struct redis *r = redis_of(s);
	struct link *links[] = {r->commands, r->messages};

	credentials_cancel(r->credentials);
	discover_cancel(s);
	link_gate_close(&r->gate);
	r->commands = r->messages = NULL;
	for (size_t i = 0; i < 2; i++)
		if (links[i])
			link_close(links[i]);
}

/* ---- up ---- */

static void engine_up(struct store *s)
{
	link_gate_open(&redis_of(s)->gate, redis_of(s)->commands);
	keywatch_again(s);
}

static void engine_on_pong(void *arg, const redisReply *reply)
{
	struct store *s = arg;
	char line[REPLY_LINE_BYTES];

	if (!reply || reply->type != REDIS_REPLY_ERROR)
		return;
	reply_explain(reply->str, line);
	store_reject(s, "%s", line);
}

/* Of both connections: a keeper that has nothing to renew sends no beat, and a firewall forgets a connection that is idle. */
static void engine_check(struct store *s)
{
	struct redis *r = redis_of(s);
	int ret = link_send(r->messages, 1, (const char *const[]){"PING"}, engine_on_pong, s);

	if (ret)
		store_fail(s, "cannot send: %s", uv_strerror(ret));
	if (s->state == STORE_UP)
		connect_check(s);
	if (s->state == STORE_UP)
		discover_check(s);
	if (s->state == STORE_UP && s->config->sentinel_count > 0 && r->credentials)
		(void)!credentials_read(r->credentials, NULL, NULL); /* renewed ones, for the next check */
}

static void engine_on_settings(void *arg, const redisReply *reply)
{
	struct store *s = arg;

	if (reply)
		s->risk_unseen = !reply_explain_settings(reply, s->config, s->risk);
}

/* No query: an error answer means nothing, and is not counted. Several settings at once can be asked for from Redis
 * 7 on. */
static void engine_look(struct store *s)
{
	static const char *const argv[] = {"CONFIG",
					   "GET",
					   "stop-writes-on-bgsave-error",
					   "save",
					   "min-replicas-to-write",
					   "maxmemory-policy",
					   "cluster-require-full-coverage"};
	struct redis *r = redis_of(s);

	if (s->state != STORE_UP || s->risk_unseen)
		return;
	s->risk_unseen =
		!r->redis7 || link_send(r->commands, sizeof(argv) / sizeof(*argv), argv, engine_on_settings, s) != 0;
}

/* ---- life ---- */

static int engine_open(struct store *s)
{
	const struct config_store *config = s->config;
	struct redis *r = s->at = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	if (config->tls.on && !(r->credentials = credentials_new(s->loop, &config->tls))) {
		free(r);
		return -ENOMEM;
	}
	link_gate_init(&r->gate);
	send_init(s);
	s->provisional = config->replicas > 0;
	if (config->socket)
		snprintf(s->server, sizeof(s->server), "unix:%s", config->socket);
	else if (config->sentinel_count)
		snprintf(s->server, sizeof(s->server), "%s", discover_name(config));
	else
		address_show(config->address.host, config->address.port, config->tls.on, s->server, sizeof(s->server));
	return 0;
}

static void engine_free(struct store *s)
{
	struct redis *r = redis_of(s);

	keywatch_free(s);
	credentials_free(r->credentials);
	link_gate_destroy(&r->gate);
	free(r);
}

const struct engine redis_engine = {
	.version = DFLOCK_VERSION,
	.name = "redis",
	.query_bytes = sizeof(struct redis_query),
	.open = engine_open,
	.connect = engine_connect,
	.close = engine_close,
	.up = engine_up,
	.check = engine_check,
	.free = engine_free,
	.ask = send_query,
	.watch = keywatch_begin,
	.unwatch = keywatch_end,
	.look = engine_look,
	.prepare = send_prepare,
	.fire = send_fire,
	.drop = send_drop,
};
