/*
 * See internal.h, struct engine: ZooKeeper. The rules run here (store/replay/replay.h) over nodes (zookeeper.h).
 *
 * One query at a time, in the order in which they were asked, each until its answer: load, run, perhaps load more, commit. What was not
 * committed because something had changed is run again from the beginning; the answer that says so comes behind what had changed, so
 * the next look is not at the same old state. Reads may be old: only what was committed, or compared by the leader, is an answer. If
 * the connection breaks before that, it is not known whether the commit came about: the query ends with STORE_UNREACHABLE.
 */
#include "store/zookeeper/zookeeper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CLEAN_EVERY_NS UINT64_C(300000000000)
#define CLEAN_OLDER_MS INT64_C(86400000)

static struct zookeeper *zk_of(const struct store *s)
{
	return s->at;
}

static void zk_next(struct zookeeper *zk);

/* ---- the end of a query ---- */

/* It asked for what is gone; it may be run again. */
static void zk_forget(struct zk_query *zq)
{
	struct zk_node *node, *next;

	if (zq->run)
		replay_end(zq->run);
	zq->run = NULL;
	HASH_ITER (hh, zq->nodes, node, next) {
		HASH_DEL(zq->nodes, node);
		free(node->path);
		free(node->name);
		free(node);
	}
	for (int kind = 0; kind < ZK_NODES; kind++) {
		for (int i = 0; i < zq->lists[kind].count; i++)
			free(zq->lists[kind].names[i]);
		free(zq->lists[kind].names);
		zq->lists[kind] = (struct zk_list){.asked = false};
	}
	zq->pending = 0;
	zq->commits = zq->looked = false;
	*zq->wrong = '\0';
}

static struct zk_query *zk_take(struct zookeeper *zk)
{
	struct zk_query *zq = zk->first;

	zk->first = zq->next;
	if (!zk->first)
		zk->last = &zk->first;
	uv_timer_stop(&zk->limit);
	return zq;
}

static void zk_end(struct zookeeper *zk, enum store_status status, const char *error)
{
	struct zk_query *zq = zk_take(zk);

	zk_forget(zq);
	query_end(&zq->q, status, error);
	zk_next(zk);
}

static void zk_answer(struct zookeeper *zk)
{
	struct zk_query *zq = zk->first;
	redisReply *answer = zq->run->answer;
	char line[REPLY_LINE_BYTES];

	if (answer->type == REDIS_REPLY_ERROR) {
		snprintf(line, sizeof(line), "the rule failed: %.300s", answer->str);
		zk_end(zk, STORE_ERROR, line);
		return;
	}
	zq->run->answer = NULL;
	zk_forget(zk_take(zk));
	query_answer(&zq->q, answer);
	freeReplyObject(answer);
	zk_next(zk);
}

/* ---- committing ---- */

static void zk_again(struct zookeeper *zk)
{
	struct zk_query *zq = zk->first;
	unsigned most = zq->tries < 4 ? 1u << zq->tries : 16;
	bool looked = zq->looked;

	zk_forget(zq);
	if (uv_hrtime() - zq->began_ns > (uint64_t)zk->store->config->connect_ms * 1000000) {
		zk_end(zk, STORE_UNREACHABLE, "others changed the same again and again: nothing was done");
		return;
	}
	zk_wait(zk);
	/* The first one again at once; then hosts that meet each other go apart. What was too old from the beginning was no try. */
	zq->again = true;
	if (looked || zq->tries++ == 0)
		zk_next(zk);
	else
		uv_timer_start(&zk->again, zk->again.timer_cb, uv_hrtime() / 1000 % most, 0);
}

static void zk_on_own(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	(void)data;
	(void)len;
	if (rc == ZOK)
		store_see_number(call->zk->store, (uint64_t)stat->mzxid);
}

/* Of a node that is made nothing is told: it has to be asked for. */
static void zk_see_own(struct zookeeper *zk, const struct zk_node *own, const struct Stat *stat)
{
	struct zk_call *call;

	if (stat) {
		store_see_number(zk->store, (uint64_t)stat->mzxid);
		return;
	}
	call = zk_call(zk, NULL);
	call->on_data = zk_on_own;
	zk_exists(call, own->path); /* mutant: zk-own */
}

static void zk_on_committed(struct zk_call *call, int rc, int at, const struct Stat *stat)
{
	struct zookeeper *zk = call->zk;
	const struct zk_node *own = zk_find(zk, call->query, ZK_HOST, zk->store->host);
	bool changed = rc == ZBADVERSION || rc == ZNODEEXISTS || rc == ZNONODE;
	bool is_message = call->first_message >= 0 && at >= call->first_message;

	if (stat)
		zk_saw(zk, stat);
	if (rc == ZOK && own && own->written)
		zk_see_own(zk, own, own->there ? stat : NULL);
	if (rc == ZOK)
		zk_answer(zk);
	else if (rc == ZNONODE && !is_message && at >= 0 && call->ops[at].type == ZOO_CREATE_OP)
		zk_half(zk); /* of what is created, the parent is gone */
	else if (changed)
		zk_again(zk);
	else
		zk_failed(zk, rc, at >= 0 ? call->kept[2 * at] : zk->root);
}

/* Has it read something that dflock did not write? Then it has ended. */
static bool zk_is_wrong(struct zookeeper *zk)
{
	char line[REPLY_LINE_BYTES];

	if (!*zk->first->wrong)
		return false;
	snprintf(line, sizeof(line), "%s", zk->first->wrong);
	zk_end(zk, STORE_ERROR, line);
	return true;
}

static void zk_try_commit(struct zookeeper *zk)
{
	struct zk_query *zq = zk->first;
	struct zk_call *call;

	if (zk_is_wrong(zk)) /* mutant: zk-wrong */
		return;
	zq->commits = true;
	if (!zk_must_commit(zq)) {
		zk_answer(zk);
		return;
	}
	zk_commit_needs(zk, zq);
	if (zq->pending)
		return;
	call = zk_call(zk, zq);
	call->on_multi = zk_on_committed;
	zk_wait(zk);
	if (zk_commit(zk, zq, call)) {
		zk_multi(call);
		return;
	}
	zk_call_free(call);
	zk_end(zk, STORE_ERROR, "it is too large for one step of ZooKeeper (1 MB): nothing was done");
}

/* ---- the queries ---- */

static void zk_run(struct zookeeper *zk)
{
	while (replay_step(zk->first->run) == REPLAY_LOAD)
		if (!zk_load(zk))
			return;
	zk_try_commit(zk);
}

/* All that was asked for has come. */
static void zk_go_on(struct zookeeper *zk)
{
	if (zk_is_wrong(zk))
		return;
	if (zk->first->commits)
		zk_try_commit(zk);
	else if (zk_load(zk))
		zk_run(zk);
}

/* Begins the first query, unless it is under way. */
static void zk_next(struct zookeeper *zk)
{
	struct zk_query *zq = zk->first;

	if (!zk->up || !zq || zq->run || uv_is_active((uv_handle_t *)&zk->again))
		return;
	if (!zq->again)
		zq->began_ns = uv_hrtime();
	zq->run = store_need(replay_begin(zk->replay, zq->q.script, zq->q.keys, zq->q.argc, zq->q.argv));
	zk_wait(zk);
	zk_run(zk);
}

static int zk_ask(struct query *q)
{
	struct zk_query *zq = (struct zk_query *)q;
	struct zookeeper *zk = zk_of(q->store);

	if (!zk->up)
		return -ENOTCONN;
	zq->next = NULL;
	*zk->last = zq;
	zk->last = &zq->next;
	if (zk->first == zq) /* from the loop: some answers need nothing of a server */
		uv_timer_start(&zk->again, zk->again.timer_cb, 0, 0);
	return 0;
}

/* ---- life ---- */

static void zk_on_limit(uv_timer_t *timer)
{
	struct zookeeper *zk = timer->data;

	store_fail(zk->store, "no answer within %" PRId64 " ms", zk->store->config->connect_ms);
}

static void zk_on_again(uv_timer_t *timer)
{
	zk_next(timer->data);
}

static void zk_on_mail_timer(uv_timer_t *timer)
{
	zk_remove_old_mail(timer->data);
}

static void zk_engine_connect(struct store *s)
{
	zk_connect(zk_of(s));
}

static void zk_close(struct store *s)
{
	struct zookeeper *zk = zk_of(s);

	zk_disconnect(zk);
	zk_clean_stop(zk);
	zk_forget_seen(zk, NULL);
	uv_timer_stop(&zk->again);
	uv_timer_stop(&zk->limit);
	uv_timer_stop(&zk->mail);
	while (zk->first)
		zk_end(zk, STORE_UNREACHABLE, s->error);
}

/* "h1:2181,h2:2181/path". */
static int zk_open(struct store *s)
{
	static const struct zk_up up = {.connected = zk_start, .mail = zk_read_mail, .loaded = zk_go_on};
	struct zookeeper *zk = s->at = calloc(1, sizeof(*zk));
	const char *servers = s->config->zookeeper, *path = strchr(servers, '/');

	if (!zk)
		return -ENOMEM;
	zk_up = &up;
	zk->store = s;
	zk->timers = 3;
	zk->last = &zk->first;
	zk->replay = replay_new();
	zk->root = strdup(path ? path : "/dflock");
	zk->servers = strndup(servers, path ? (size_t)(path - servers) : strlen(servers));
	if (!zk->replay || !zk->root || !zk->servers) {
		if (zk->replay)
			replay_free(zk->replay);
		free(zk->root);
		free(zk->servers);
		free(zk);
		return -ENOMEM;
	}
	zk->server = (unsigned)(uv_hrtime() / 1000);
	zk->clean_ns = uv_hrtime() + uv_hrtime() % CLEAN_EVERY_NS;
	uv_timer_init(s->loop, &zk->limit);
	uv_timer_init(s->loop, &zk->again);
	uv_timer_init(s->loop, &zk->mail);
	zk->limit.data = zk->again.data = zk->mail.data = zk;
	zk->mail.timer_cb = zk_on_mail_timer;
	zk->limit.timer_cb = zk_on_limit;
	zk->again.timer_cb = zk_on_again;
	snprintf(s->server, sizeof(s->server), "zookeeper %s", servers);
	snprintf(s->version, sizeof(s->version), "ZooKeeper");
	return 0;
}

static void zk_on_freed(uv_handle_t *handle)
{
	struct zookeeper *zk = handle->data;

	if (--zk->timers == 0)
		free(zk);
}

static void zk_free(struct store *s)
{
	struct zookeeper *zk = zk_of(s);

	zk_forget_acl(zk);
	replay_free(zk->replay);
	free(zk->root);
	free(zk->servers);
	uv_close((uv_handle_t *)&zk->limit, zk_on_freed);
	uv_close((uv_handle_t *)&zk->again, zk_on_freed);
	uv_close((uv_handle_t *)&zk->mail, zk_on_freed);
}

/* What everybody may change is nobody's lock. */
static void zk_went_up(struct store *s)
{
	const struct zookeeper *zk = zk_of(s);
	bool open = zk->acl.count == 0;

	for (int i = 0; i < zk->acl.count; i++)
		open = open ||
		       (strcmp(zk->acl.data[i].id.scheme, "world") == 0 && zk->acl.data[i].perms & ~ZOO_PERM_READ);
	if (open)
		snprintf(s->risk, sizeof(s->risk),
			 "everyone who reaches it may change %s: give that an ACL of your own", zk->root);
}

/* So that it does not look old: who has no lock has no other node, and the mailbox of such a host is cleaned away (clean.c). */
static void zk_touch_mailbox(struct zookeeper *zk)
{
	struct zk_call *call = zk_call(zk, NULL);

	zk_op_set(call, zk_path(zk->root, ZK_MAILBOX, zk->store->host), NULL, 0, -1);
	zk_multi(call);
}

/* The client itself asks a server that is silent. */
static void zk_check(struct store *s)
{
	static const enum zk_kind kinds[] = {ZK_LOCK, ZK_HOST, ZK_MAILBOX, ZK_RULE, ZK_TEXT};
	struct zookeeper *zk = zk_of(s);

	zk_look_at_acl(zk);
	if (uv_hrtime() < zk->clean_ns)
		return;
	zk->clean_ns = uv_hrtime() + CLEAN_EVERY_NS;
	zk_touch_mailbox(zk);
	zk_clean(zk, kinds[zk->clean_turn++ % 5], CLEAN_OLDER_MS);
}

ENGINE_SHOWN const struct engine dflock_engine = {
	.version = DFLOCK_VERSION,
	.name = "zookeeper",
	.query_bytes = sizeof(struct zk_query),
	.open = zk_open,
	.connect = zk_engine_connect,
	.close = zk_close,
	.up = zk_went_up,
	.check = zk_check,
	.free = zk_free,
	.ask = zk_ask,
};
