/*
 * See zookeeper.h. One multi-op: it compares the version of each node that the rule has read from, and sets or creates what it wrote.
 * A node that was not there is created and deleted in the same step, which nobody sees: that it is still not there has no version
 * to be compared. Each multi compares the record's, so what changes the record (another memory or incarnation, a clean-up) meets
 * everything else.
 */
#include "store/zookeeper/zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool zk_must_commit(const struct zk_query *zq)
{
	int script = zq->q.script;

	if (zq->run->writes || zq->run->messages)
		return true;
	/* What these say is for people, or is compared with beats before anything is done about it. */
	return script >= 0 && script != SCRIPT_HOSTS && script != SCRIPT_DUMP && script != SCRIPT_RULES;
}

static struct zk_place zk_place_of(const struct zk_query *zq, const struct replay_cell *cell)
{
	struct zk_place place = zk_place(&zq->q, cell->key, cell->name);

	if (place.kind == ZK_FENCE && cell->written)
		place = (struct zk_place){ZK_LOCK, zk_lock_of(&zq->q), "fence"};
	return place;
}

/* The mailbox of this channel: its host. NULL: it is no host's. */
static const char *zk_host_of(const struct replay_message *m)
{
	size_t len = strlen(STORE_HOST_CHANNEL);

	return strncmp(m->channel, STORE_HOST_CHANNEL, len) == 0 ? m->channel + len : NULL;
}

void zk_commit_needs(struct zookeeper *zk, struct zk_query *zq)
{
	struct replay_cell *cell, *next;

	HASH_ITER (hh, zq->run->cells, cell, next) {
		struct zk_place place = zk_place_of(zq, cell);

		if (cell->written && place.kind < ZK_NODES)
			zk_need(zk, zq, place.kind, place.name);
	}
	for (const struct replay_message *m = zq->run->messages; m; m = m->next)
		if (zk_host_of(m))
			zk_need(zk, zq, ZK_MAILBOX, zk_host_of(m));
	if (zq->q.script >= 0)
		zk_need(zk, zq, ZK_STORE, "");
}

/* ---- what was read and written ---- */

static void zk_mark(const struct zookeeper *zk, struct zk_query *zq)
{
	struct zk_node *node, *more, *store = zk_find(zk, zq, ZK_STORE, "");
	struct replay_cell *cell, *next;

	HASH_ITER (hh, zq->run->cells, cell, next) {
		struct zk_place place = zk_place_of(zq, cell);

		node = NULL;
		if (place.kind == ZK_FENCE) /* of the record's and the lock's the larger one */
			place = (struct zk_place){ZK_LOCK, zk_lock_of(&zq->q), ""};
		if (place.kind < ZK_NODES)
			node = zk_find(zk, zq, place.kind, place.name);
		if (node) {
			node->read = node->read || cell->read;
			node->written = node->written || cell->written;
		}
	}
	HASH_ITER (hh, zq->nodes, node, more) {
		bool listed = zq->lists[node->kind].asked;

		/* Another host may have listed all hosts without this one. (Not their parent: start.c looks at when that was written.) */
		if (node->kind == ZK_HOST && node->written && !node->there) /* mutant: zk-host */
			store->written = true;
		/* Of all locks there may be too many: the list's own version stands for them (zk_add_written). All rules are for people. */
		if (listed && node->kind != ZK_HOST)
			node->read = false;
		else
			node->read =
				node->loaded && (node->read || listed || (node->kind == ZK_STORE && zq->q.script >= 0));
	}
}

/* The cells of a node after the rule. True: it has any. */
static bool zk_write_cells(const struct zk_query *zq, const struct zk_node *node, FILE *f)
{
	struct replay_cell *cell, *next;
	bool any = false;

	HASH_ITER (hh, zq->run->cells, cell, next) {
		struct zk_place place = zk_place(&zq->q, cell->key, cell->name);

		if (!cell->value || place.kind != node->kind || strcmp(place.name, node->name) != 0)
			continue;
		any = true;
		zk_write(f, place.tag, cell->value, cell->len);
	}
	return any;
}

static const struct replay_cell *zk_cell_in(const struct zk_query *zq, enum zk_kind kind, const char *tag)
{
	struct replay_cell *cell, *next;

	HASH_ITER (hh, zq->run->cells, cell, next) {
		struct zk_place place = zk_place(&zq->q, cell->key, cell->name);

		if (place.kind == kind && strcmp(place.tag, tag) == 0)
			return cell;
	}
	return NULL;
}

static void zk_write_number(FILE *f, const char *tag, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, n);
	zk_write(f, tag, text, strlen(text));
}

/* The incarnation for /names: in which the lock was written. "": the one that is there stays. */
static const char *zk_new_mark(const struct zk_query *zq, const struct zk_node *node)
{
	const struct replay_cell *inc = node->kind == ZK_LOCK ? zk_cell_in(zq, ZK_LOCK, "inc") : NULL;

	return inc && inc->value && strlen(inc->value) < STORE_INC_BYTES && strcmp(inc->value, node->mark) != 0
		       ? inc->value
		       : "";
}

/* What a node is to have. False: nothing. */
static bool zk_content(const struct zk_query *zq, const struct zk_node *node, char **data, size_t *len)
{
	FILE *f = store_need(open_memstream(data, len));
	const struct replay_cell *fence = zk_cell_in(zq, ZK_FENCE, "");
	uint64_t last = node->fence;
	const char *mark = zk_new_mark(zq, node);
	bool any;

	zk_write_begin(f);
	if (node->kind == ZK_STORE) {
		zk_write(f, "memory", node->memory, strlen(node->memory));
		if (zk_lock_of(&zq->q) && last)
			zk_write_number(f, "fence", last);
	}
	any = zk_write_cells(zq, node, f);
	if (node->kind == ZK_LOCK) {
		if (fence && fence->written && fence->value)
			last = strtoull(fence->value, NULL, 10);
		if (last)
			zk_write_number(f, "fence", last);
		mark = *mark ? mark : node->mark;
		if (*mark)
			zk_write(f, "mark", mark, strlen(mark));
	}
	if (fclose(f) != 0)
		store_need(NULL);
	return any;
}

/* ---- the multi ---- */

static void zk_add_mark(struct zookeeper *zk, const struct zk_query *zq, const struct zk_node *node,
			struct zk_call *call)
{
	const char *mark = zk_new_mark(zq, node);

	if (!*mark)
		return;
	if (node->marked)
		zk_op_set(call, zk_path(zk->root, ZK_NAME, node->name), store_need(strdup(mark)), strlen(mark), -1);
	else
		zk_op_create(call, zk_path(zk->root, ZK_NAME, node->name), store_need(strdup(mark)), strlen(mark), 0);
}

static void zk_add_absent(const struct zk_node *node, struct zk_call *call)
{
	zk_op_create(call, store_need(strdup(node->path)), NULL, 0, 0);
	zk_op_delete(call, store_need(strdup(node->path)), -1);
}

static void zk_add_written(struct zookeeper *zk, const struct zk_query *zq, const struct zk_node *node,
			   struct zk_call *call)
{
	const struct zk_node *store = zk_find(zk, zq, ZK_STORE, "");
	char *data;
	size_t len;
	bool any = zk_content(zq, node, &data, &len);

	zk_forget_seen(zk, node->path); /* mutant: zk-change */
	if (!node->there && !any) {
		free(data);
		zk_add_absent(node, call);
		return;
	}
	if (node->there)
		zk_op_set(call, store_need(strdup(node->path)), data, len, node->version);
	else
		zk_op_create(call, store_need(strdup(node->path)), data, len, 0);
	zk_add_mark(zk, zq, node, call);
	/* In grace a host may have loaded all locks, to find that there are none (store.lua, new). */
	if (node->kind == ZK_LOCK && !(store && store->open)) /* mutant: zk-all */
		zk_op_set(call, zk_path(zk->root, ZK_LOCK, NULL), NULL, 0, -1);
}

static void zk_add_messages(struct zookeeper *zk, const struct zk_query *zq, struct zk_call *call)
{
	for (const struct replay_message *m = zq->run->messages; m; m = m->next) {
		struct zk_node *box = zk_host_of(m) ? zk_find(zk, zq, ZK_MAILBOX, zk_host_of(m)) : NULL;
		char *text, *path;

		if (!box || !box->there || box->children++ >= ZK_MAX_MESSAGES) /* mutant: zk-full */
			continue;
		text = zk_encode(m->text);
		if (asprintf(&path, "%s/%s~", box->path, text) < 0)
			store_need(NULL);
		free(text);
		if (call->first_message < 0)
			call->first_message = call->count;
		zk_op_create(call, path, NULL, 0, ZOO_SEQUENCE);
	}
}

bool zk_commit(struct zookeeper *zk, struct zk_query *zq, struct zk_call *call)
{
	struct zk_node *node, *next;

	zk_mark(zk, zq);
	HASH_ITER (hh, zq->nodes, node, next) {
		if (node->written)
			zk_add_written(zk, zq, node, call);
		else if (node->read && node->there)
			zk_op_check(call, store_need(strdup(node->path)), node->version);
		else if (node->read)
			zk_add_absent(node, call);
	}
	if (zq->lists[ZK_LOCK].asked)
		zk_op_check(call, zk_path(zk->root, ZK_LOCK, NULL), zq->lists[ZK_LOCK].version);
	zk_add_messages(zk, zq, call);
	if (!call->count)
		zk_op_set(call, zk_path(zk->root, ZK_CLOCK, NULL), NULL, 0, -1);
	return call->bytes < ZK_MAX_BYTES;
}
