/* See sentinel.h. A question ends exactly once, in sentinel_end(); its timer limits the look-up and the connection
 * together. */
#include "store/sentinel.h"

#include <hiredis.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/address.h"
#include "store/link.h"
#include "store/reply.h"
#include "store/words.h"

/*
 * Where in a Redis Cluster the store is: the answer to CLUSTER SLOTS. Pure.
 *
 * All keys of dflock have the hash tag {0}, so they are in one slot, and one master of the cluster is the store. Messages go
 * to all nodes, and a host subscribes where it asks.
 *
 * Why no lock has a second holder while the slot changes its master from S to D. The record (STORE_KEYS "store") is a key like
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
 *    answered ASK or TRYAGAIN; one that finds a key by itself (store/lua/store.lua, put_back) ends with an error before it
 *    has written. Others, as beats, still count, and that does no harm: they speak of the same record. A keeper that meets such
 *    an answer takes the store for away, and connects again only to a server that has the whole slot (steps.c), so that no
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
static bool slots_is_ours(const redisReply *row, enum slots_verdict *verdict)
{
	*verdict = SLOTS_NONSENSE;
	if (row->type != REDIS_REPLY_ARRAY || row->elements < 3 || row->element[0]->type != REDIS_REPLY_INTEGER ||
	    row->element[1]->type != REDIS_REPLY_INTEGER)
		return false;
	*verdict = SLOTS_NOBODY;
	return row->element[0]->integer <= STORE_SLOT && STORE_SLOT <= row->element[1]->integer;
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

enum slots_verdict slots_master(const redisReply *reply, const char *asked, char *host, size_t size, int *port)
{
	enum slots_verdict verdict = SLOTS_NOBODY;

	if (reply->type != REDIS_REPLY_ARRAY)
		return SLOTS_NONSENSE;
	for (size_t i = 0; i < reply->elements; i++) {
		if (slots_is_ours(reply->element[i], &verdict))
			return slots_read_node(reply->element[i]->element[2], asked, host, size, port) ? SLOTS_FOUND
												       : SLOTS_NONSENSE;
		if (verdict == SLOTS_NONSENSE)
			return verdict;
	}
	return SLOTS_NOBODY;
}

#define LIMIT_MIN_MS 100
#define WHY_BYTES    512

struct sentinel_question {
	uv_loop_t *loop;
	const struct config_store *config;
	const struct config_address *at;
	struct tls_context *tls;
	sentinel_cb *cb;
	void *arg;
	uv_timer_t timer;
	struct address_lookup *lookup;
	struct link *link;
	bool ended;
};

static void sentinel_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void sentinel_cancel(struct sentinel_question *q)
{
	struct link *link = q->link;

	if (q->ended)
		return;
	q->ended = true;
	if (q->lookup)
		address_cancel(q->lookup);
	q->link = NULL;
	if (link)
		link_close(link);
	uv_close((uv_handle_t *)&q->timer, sentinel_on_closed);
}

static void sentinel_end(struct sentinel_question *q, const char *host, int port, const char *why)
{
	sentinel_cb *cb = q->cb;
	void *arg = q->arg;

	sentinel_cancel(q);
	cb(arg, host, port, why);
}

__attribute__((format(printf, 2, 3))) static void sentinel_fail(struct sentinel_question *q, const char *format, ...)
{
	char at[SENTINEL_HOST_BYTES + 32], what[WHY_BYTES], why[sizeof(at) + sizeof(what) + 16];
	va_list args;

	if (q->ended)
		return;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	address_show(q->at->host, q->at->port, q->tls != NULL, at, sizeof(at));
	snprintf(why, sizeof(why), "%s %s: %s", q->config->cluster ? "node" : "sentinel", at, what);
	sentinel_end(q, NULL, 0, why);
}

/* All sentinels together may take connect_ms: if this one is slow, the next may still answer at once. */
static int64_t sentinel_limit_ms(const struct sentinel_question *q)
{
	int64_t ms = q->config->connect_ms / (int64_t)q->config->sentinel_count;

	return ms < LIMIT_MIN_MS ? LIMIT_MIN_MS : ms;
}

/* ---- the answers ---- */

/* False: the answer is of no use, and the question has ended. */
static bool sentinel_usable(struct sentinel_question *q, const redisReply *reply)
{
	static const char *const logins[] = {"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH"};
	const char *advice = q->config->cluster ? "is it a node of a Redis Cluster?" : "is it a Redis Sentinel?";
	char said[REPLY_SAID_BYTES];

	if (!reply || q->ended)
		return false;
	if (reply->type != REDIS_REPLY_ERROR)
		return true;
	for (size_t i = 0; i < sizeof(logins) / sizeof(*logins); i++)
		if (strncmp(reply->str, logins[i], strlen(logins[i])) == 0)
			advice = q->config->cluster
					 ? "see user and password_file in the configuration, and `dflock doctor --acl`"
					 : "see sentinel_user and sentinel_password_file in the configuration";
	reply_quote(said, reply->str);
	sentinel_fail(q, "it says \"%s\": %s", said, advice);
	return false;
}

static void sentinel_on_login(void *arg, const redisReply *reply)
{
	sentinel_usable(arg, reply);
}

static bool sentinel_is_text(const redisReply *reply, size_t max)
{
	return reply->type == REDIS_REPLY_STRING && reply->len > 0 && reply->len < max &&
	       strlen(reply->str) == (size_t)reply->len;
}

static void sentinel_on_master(void *arg, const redisReply *reply)
{
	struct sentinel_question *q = arg;
	char host[SENTINEL_HOST_BYTES];
	uint64_t port;

	if (!sentinel_usable(q, reply))
		return;
	if (reply->type == REDIS_REPLY_NIL) {
		sentinel_fail(q, "it knows no master \"%.100s\": set master to the name in its configuration",
			      q->config->master);
		return;
	}
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    !sentinel_is_text(reply->element[0], sizeof(host)) || !sentinel_is_text(reply->element[1], 6) ||
	    !word_number(reply->element[1]->str, &port) || port < 1 || port > 65535 ||
	    !address_is_host(reply->element[0]->str)) {
		sentinel_fail(q, "its answer makes no sense: it is no Redis Sentinel");
		return;
	}
	strcpy(host, reply->element[0]->str);
	sentinel_end(q, host, (int)port, NULL);
}

static void sentinel_on_slots(void *arg, const redisReply *reply)
{
	struct sentinel_question *q = arg;
	char host[SENTINEL_HOST_BYTES];
	int port;

	if (!sentinel_usable(q, reply))
		return;
	switch (slots_master(reply, q->at->host, host, sizeof(host), &port)) {
	case SLOTS_FOUND:
		sentinel_end(q, host, port, NULL);
		break;
	case SLOTS_NOBODY:
		sentinel_fail(q, "it knows no node that has the slot %d", STORE_SLOT);
		break;
	case SLOTS_NONSENSE:
		sentinel_fail(q, "its answer makes no sense: it is no node of a Redis Cluster");
		break;
	}
}

/* ---- asking ---- */

static void sentinel_send_login(struct sentinel_question *q)
{
	bool cluster = q->config->cluster;
	const char *user = cluster ? q->config->user : q->config->sentinel_user;
	const char *password = cluster ? q->config->password : q->config->sentinel_password;

	if (user)
		link_send(q->link, 3, (const char *const[]){"AUTH", user, password}, sentinel_on_login, q);
	else if (password)
		link_send(q->link, 2, (const char *const[]){"AUTH", password}, sentinel_on_login, q);
}

static void sentinel_on_connected(void *arg)
{
	struct sentinel_question *q = arg;
	const char *question[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", q->config->master};
	const char *slots[] = {"CLUSTER", "SLOTS"};

	sentinel_send_login(q); /* if the login cannot be sent, neither can the question */
	int ret = q->config->cluster ? link_send(q->link, 2, slots, sentinel_on_slots, q)
				     : link_send(q->link, 3, question, sentinel_on_master, q);
	if (ret)
		sentinel_fail(q, "cannot send: %s", uv_strerror(ret));
}

static void sentinel_on_broken(void *arg, const char *why)
{
	sentinel_fail(arg, "%s", why);
}

static struct channel_target sentinel_target(const struct sentinel_question *q)
{
	const char *name = q->config->tls.server_name;

	return (struct channel_target){.tls = q->tls, .name = name ? name : q->at->host};
}

static void sentinel_connect(struct sentinel_question *q, const struct channel_target *target)
{
	const struct link_events events = {.connected = sentinel_on_connected, .broken = sentinel_on_broken};
	char why[128];

	q->link = link_open(q->loop, target, (uint64_t)sentinel_limit_ms(q), &events, q, why, sizeof(why));
	if (!q->link)
		sentinel_fail(q, "cannot connect: %s", why);
}

static void sentinel_on_addresses(void *arg, const struct addrinfo *list, const char *why)
{
	struct sentinel_question *q = arg;
	struct channel_target target = sentinel_target(q);

	q->lookup = NULL;
	if (!list) {
		sentinel_fail(q, "cannot look up its address: %s", why);
		return;
	}
	memcpy(&target.address, list->ai_addr, list->ai_addrlen);
	sentinel_connect(q, &target);
}

static void sentinel_on_limit(uv_timer_t *timer)
{
	struct sentinel_question *q = timer->data;

	sentinel_fail(q, "no answer within %" PRId64 " ms", sentinel_limit_ms(q));
}

static void sentinel_on_start(uv_timer_t *timer)
{
	struct sentinel_question *q = timer->data;
	struct channel_target target = sentinel_target(q);
	const char *why;

	uv_timer_start(timer, sentinel_on_limit, (uint64_t)sentinel_limit_ms(q), 0);
	if (address_of_number(q->at->host, q->at->port, &target.address)) {
		sentinel_connect(q, &target);
		return;
	}
	q->lookup = address_look_up(q->loop, q->at->host, q->at->port, sentinel_on_addresses, q, &why);
	if (!q->lookup)
		sentinel_fail(q, "cannot look up its address: %s", why);
}

struct sentinel_question *sentinel_ask(uv_loop_t *loop, const struct config_store *config, struct tls_context *tls,
				       size_t index, sentinel_cb *cb, void *arg)
{
	struct sentinel_question *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	*q = (struct sentinel_question){
		.loop = loop, .config = config, .at = &config->sentinels[index], .cb = cb, .arg = arg};
	q->tls = config->tls.only_server ? NULL : tls;
	uv_timer_init(loop, &q->timer);
	q->timer.data = q;
	uv_timer_start(&q->timer, sentinel_on_start, 0, 0); /* every failure is reported from the loop */
	return q;
}
