/*
 * Where the server is, as the sentinels or the nodes of a cluster say. One of them is asked after the other, each on a link of its
 * own that is closed with its answer, and within connect_ms divided by their number (but at least 100 ms) for each step. The check
 * while the store is up is for a keeper that has nothing to renew: it would otherwise stay with an old master.
 *
 * A sentinel that is cut off from the others says what it knew last. So the server that was named is checked (it says that it is
 * a master, and enough replicas acknowledge), and each round begins with another sentinel than the round before: one that is cut
 * off together with an old master costs one attempt. While the store is up, only most of the sentinels together are believed.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "store/redis/redis.h"

#define LIMIT_MIN_MS 100

/*
 * Where in a Redis Cluster the store is: the answer to CLUSTER SLOTS. Pure.
 *
 * All keys of a store have the hash tag {0}, those of shard N of several {N}, so they are in one slot, and one master of the cluster is
 * the store, or the shard. Messages go to all nodes, and a host subscribes where it asks.
 *
 * Why no lock has a second holder while the slot changes its master from S to D. The record ("dflock:{N}:store") is a key like
 * the others, and every script whose answer binds reads it and compares the incarnation, which has the replication id of the
 * server in it.
 *
 *  - The slot moves to another part of the cluster. D does not serve it before it is made its owner, because dflock never
 *    sends ASKING: it answers MOVED. The keys move first, one at a time. MIGRATE holds up S from the moment at which it
 *    copies a key until that has arrived and S has deleted its own, so no script of S runs with a key that is at D already.
 *    (If the answer of D is lost, both have the key, and S goes on with its own until MIGRATE is repeated.)
 *    Once the record has left S, S answers nothing that binds: ASK, TRYAGAIN or MOVED. Let t be this moment. An answer of S
 *    that counted belongs to a question that was sent before t, so the deadlines that come from S end before t + ttl
 *    (keeper/leases/host.h: nine tenths of a ttl from sending). D becomes the owner after t, has another replication id than
 *    the record says, and so the first keeper that reaches D begins another incarnation: D grants nothing new until a keeper
 *    has watched that for one ttl, which is after t + ttl.
 *  - Before t, some keys are here and some there. A script that needs one that has gone, or one that does not exist, is
 *    answered ASK or TRYAGAIN; one that finds a key by itself (store/rules/store.lua, put_back) ends with an error before it
 *    has written. Others, as beats, still count, and that does no harm: they speak of the same record. A keeper that meets such
 *    an answer takes the store for away, and connects again only to a server that has the whole slot (connect.c), so that no
 *    host goes to and fro while the slot moves. What moves for longer than ttl_ms - freeze_margin_ms freezes holders.
 *  - A replica of S is promoted, by itself or by an operator. This is the case of acks.c: the replicas of S are those that
 *    `replicas` counts, and the promoted one has a new replication id. So `replicas` must be in the configuration, and a
 *    master with more of them is refused, also where it is 0.
 *
 * Not covered, as a replica that an operator turns back by hand is not in acks.c: a slot that is given to D while S is its
 * owner and still has its keys (CLUSTER SETSLOT NODE without MIGRATE, redis-cli --cluster fix), if S is cut off from D or
 * hangs; and a replica that the cluster takes from another part of it in place of one that failed, which
 * cluster-allow-replica-migration no prevents: it has not followed the old master, so two majorities need not have a node in
 * common.
 */
int slots_of_shard(unsigned shard)
{
	char digits[12];
	unsigned crc = 0;

	snprintf(digits, sizeof(digits), "%u", shard);
	for (const char *c = digits; *c; c++) {
		crc ^= (unsigned)(unsigned char)*c << 8;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1) & 0xffff;
	}
	return (int)(crc & 16383);
}

static bool slots_is_ours(const redisReply *row, int slot, enum slots_verdict *verdict)
{
	*verdict = SLOTS_NONSENSE;
	if (row->type != REDIS_REPLY_ARRAY || row->elements < 3 || row->element[0]->type != REDIS_REPLY_INTEGER ||
	    row->element[1]->type != REDIS_REPLY_INTEGER)
		return false;
	*verdict = SLOTS_NOBODY;
	return row->element[0]->integer <= slot && slot <= row->element[1]->integer;
}

static bool slots_read_node(const redisReply *node, const char *asked, char *host, size_t size, int *port)
{
	const char *name;

	if (node->type != REDIS_REPLY_ARRAY || node->elements < 2 || node->element[1]->type != REDIS_REPLY_INTEGER ||
	    node->element[1]->integer < 1 || node->element[1]->integer > 65535)
		return false;
	if (node->element[0]->type == REDIS_REPLY_NIL)
		name = asked;
	else if (node->element[0]->type != REDIS_REPLY_STRING ||
		 strlen(node->element[0]->str) != (size_t)node->element[0]->len)
		return false;
	else
		name = *node->element[0]->str ? node->element[0]->str : asked;
	if (!address_is_host(name) || strlen(name) >= size)
		return false;
	strcpy(host, name);
	*port = (int)node->element[1]->integer;
	return true;
}

enum slots_verdict slots_master(const redisReply *reply, int slot, const char *asked, char *host, size_t size,
				int *port)
{
	enum slots_verdict verdict = SLOTS_NOBODY;

	if (reply->type != REDIS_REPLY_ARRAY)
		return SLOTS_NONSENSE;
	for (size_t i = 0; i < reply->elements; i++) {
		if (slots_is_ours(reply->element[i], slot, &verdict))
			return slots_read_node(reply->element[i]->element[2], asked, host, size, port) ? SLOTS_FOUND
												       : SLOTS_NONSENSE;
		if (verdict == SLOTS_NONSENSE)
			return verdict;
	}
	return SLOTS_NOBODY;
}

/* ---- rounds ---- */

static struct discover *discover_of(const struct store *s)
{
	return &redis_of(s)->discover;
}

enum round_verdict round_heard(struct round *round, size_t count, bool up, bool named, bool here)
{
	if (!up && named)
		return ROUND_BELIEVE;
	if (up && named && !here && ++round->elsewhere > count / 2)
		return ROUND_BELIEVE;
	return round->asked < count && (!up || round->elsewhere > 0) ? ROUND_ASK : ROUND_OVER;
}

static void discover_ask(struct store *s);

const char *discover_name(const struct config_store *config)
{
	return config->cluster ? "the cluster" : config->master;
}

static void discover_believe(struct store *s, const char *host, int port)
{
	char at[SENTINEL_HOST_BYTES + 32];

	address_show(host, port, s->config->tls.on, at, sizeof(at));
	if (s->state == STORE_UP) {
		store_fail(s,
			   s->config->cluster ? "the nodes say that the master is %s now"
					      : "the sentinels say that the master is %s now",
			   at);
		return;
	}
	snprintf(discover_of(s)->host, sizeof(discover_of(s)->host), "%s", host);
	discover_of(s)->port = port;
	snprintf(s->server, sizeof(s->server), "%s at %s", discover_name(s->config), at);
	connect_to(s, NULL, discover_of(s)->host, port);
}

/* host NULL: it named no master. The question is over. */
static void discover_heard(struct store *s, const char *host, int port)
{
	bool up = s->state == STORE_UP,
	     here = host && strcmp(host, discover_of(s)->host) == 0 && port == discover_of(s)->port;

	discover_cancel(s);
	switch (round_heard(&discover_of(s)->round, s->config->sentinel_count, up, host != NULL, here)) {
	case ROUND_BELIEVE:
		discover_believe(s, host, port);
		break;
	case ROUND_ASK:
		discover_ask(s);
		break;
	case ROUND_OVER:
		if (!up)
			store_fail(s,
				   s->config->cluster ? "no node of the cluster says where it is. %s"
						      : "no sentinel says where it is. %s",
				   discover_of(s)->first_why);
		break;
	}
}

/* What is wrong with the first one of the list is what is reported: always the same one, or the log would fill. */
__attribute__((format(printf, 2, 3))) static void discover_fail(struct store *s, const char *format, ...)
{
	const struct config_address *asked = discover_of(s)->asked;
	char at[SENTINEL_HOST_BYTES + 32], what[REPLY_LINE_BYTES - sizeof(at) - 16];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	address_show(asked->host, asked->port, discover_of(s)->target.tls != NULL, at, sizeof(at));
	if (asked == s->config->sentinels)
		snprintf(discover_of(s)->first_why, sizeof(discover_of(s)->first_why), "%s %s: %s",
			 s->config->cluster ? "node" : "sentinel", at, what);
	discover_heard(s, NULL, 0);
}

/* ---- the answers ---- */

/* False: the answer is of no use, and the question has ended. */
static bool discover_usable(struct store *s, const redisReply *reply)
{
	static const char *const logins[] = {"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH"};
	const char *advice = s->config->cluster ? "is it a node of a Redis Cluster?" : "is it a Redis Sentinel?";
	char said[REPLY_SAID_BYTES];

	if (!reply)
		return false;
	if (reply->type != REDIS_REPLY_ERROR)
		return true;
	for (size_t i = 0; i < sizeof(logins) / sizeof(*logins); i++)
		if (strncmp(reply->str, logins[i], strlen(logins[i])) == 0)
			advice = s->config->cluster
					 ? "see user and password_file in the configuration, and `dflock doctor --acl`"
					 : "see sentinel_user and sentinel_password_file in the configuration";
	reply_quote(said, reply->str);
	discover_fail(s, "it says \"%s\": %s", said, advice);
	return false;
}

static void discover_on_login(void *arg, const redisReply *reply)
{
	discover_usable(arg, reply);
}

static void discover_on_master(void *arg, const redisReply *reply)
{
	const char *name, *number;
	struct store *s = arg;
	uint64_t port;

	if (!discover_usable(s, reply))
		return;
	if (reply->type == REDIS_REPLY_NIL) {
		discover_fail(s, "it knows no master \"%.100s\": set master to the name in its configuration",
			      s->config->master);
		return;
	}
	name = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 ? reply_text(reply, 0) : NULL;
	number = name ? reply_text(reply, 1) : NULL;
	if (!number || strlen(name) >= SENTINEL_HOST_BYTES || !address_is_host(name) || !word_number(number, &port) ||
	    port < 1 || port > 65535) {
		discover_fail(s, "its answer makes no sense: it is no Redis Sentinel");
		return;
	}
	discover_heard(s, name, (int)port);
}

static void discover_on_slots(void *arg, const redisReply *reply)
{
	struct store *s = arg;
	char host[SENTINEL_HOST_BYTES];
	int port;

	if (!discover_usable(s, reply))
		return;
	switch (slots_master(reply, slots_of_shard(s->shard), discover_of(s)->asked->host, host, sizeof(host), &port)) {
	case SLOTS_FOUND:
		discover_heard(s, host, port);
		break;
	case SLOTS_NOBODY:
		discover_fail(s, "it knows no node that has the slot %d", slots_of_shard(s->shard));
		break;
	case SLOTS_NONSENSE:
		discover_fail(s, "its answer makes no sense: it is no node of a Redis Cluster");
		break;
	}
}

/* ---- asking ---- */

static void discover_log_in(struct store *s)
{
	bool cluster = s->config->cluster;
	const char *user = cluster ? s->config->user : s->config->sentinel_user;
	const char *password = cluster ? s->config->password : s->config->sentinel_password;

	if (user)
		link_send(discover_of(s)->link, 3, (const char *const[]){"AUTH", user, password}, discover_on_login, s);
	else if (password)
		link_send(discover_of(s)->link, 2, (const char *const[]){"AUTH", password}, discover_on_login, s);
}

static void discover_on_connected(void *arg)
{
	struct store *s = arg;
	const char *question[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", s->config->master};
	const char *slots[] = {"CLUSTER", "SLOTS"};
	int ret;

	discover_log_in(s); /* if the login cannot be sent, neither can the question */
	ret = s->config->cluster ? link_send(discover_of(s)->link, 2, slots, discover_on_slots, s)
				 : link_send(discover_of(s)->link, 3, question, discover_on_master, s);
	if (ret)
		discover_fail(s, "cannot send: %s", uv_strerror(ret));
}

static void discover_on_broken(void *arg, const char *why)
{
	discover_fail(arg, "%s", why);
}

static void discover_ask(struct store *s)
{
	static const struct link_events events = {.connected = discover_on_connected, .broken = discover_on_broken};
	const struct config_store *config = s->config;
	struct discover *d = discover_of(s);
	int64_t limit_ms = config->connect_ms / (int64_t)config->sentinel_count;

	d->asked = &config->sentinels[d->next % config->sentinel_count];
	d->round.asked++;
	d->target = (struct channel_target){
		.host = d->asked->host,
		.port = d->asked->port,
		.attempt = d->next++ / (unsigned)config->sentinel_count,
		.tls = config->tls.only_server ? NULL : credentials_context(redis_of(s)->credentials),
		.name = config->tls.server_name ? config->tls.server_name : d->asked->host,
	};
	d->link = store_need(link_open(s->loop, &d->target,
				       (uint64_t)(limit_ms < LIMIT_MIN_MS ? LIMIT_MIN_MS : limit_ms), &events, s));
}

void discover_start(struct store *s)
{
	snprintf(s->server, sizeof(s->server), "%s", discover_name(s->config));
	discover_of(s)->round = (struct round){.asked = 0};
	discover_ask(s);
}

void discover_check(struct store *s)
{
	if (s->config->sentinel_count == 0 || discover_of(s)->link)
		return;
	discover_of(s)->round = (struct round){.asked = 0};
	discover_ask(s);
}

void discover_cancel(struct store *s)
{
	struct link *link = discover_of(s)->link;

	discover_of(s)->link = NULL;
	if (link)
		link_close(link);
}
