/* See zookeeper.h. */
#include "store/zookeeper/zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_NAMES 500
#define SOME       8

/* ---- nodes ---- */

struct zk_node *zk_find(const struct zookeeper *zk, const struct zk_query *zq, enum zk_kind kind, const char *name)
{
	char *path = zk_path(zk->root, kind, name);
	struct zk_node *node = NULL;

	HASH_FIND_STR(zq->nodes, path, node);
	free(path);
	return node;
}

/* What a node has for the engine itself. */
static bool zk_own_tag(const struct zookeeper *zk, struct zk_query *zq, struct zk_node *node, const struct zk_reader *r)
{
	bool is_fence = strcmp(r->tag, "fence") == 0;

	if (node->kind == ZK_STORE && strcmp(r->tag, "memory") == 0) {
		snprintf(node->memory, sizeof(node->memory), "%.*s", (int)r->len, r->value);
		snprintf(zq->run->identity, sizeof(zq->run->identity), "%s", node->memory);
		zk_see_memory(zk, node->memory);
		return true;
	}
	if (node->kind == ZK_STORE && strcmp(r->tag, "open") == 0)
		node->open = r->len == 1 && *r->value == '1';
	if ((node->kind == ZK_STORE || node->kind == ZK_LOCK) && is_fence)
		node->fence = strtoull(r->value, NULL, 10); /* a line end is behind it */
	if (node->kind == ZK_LOCK && strcmp(r->tag, "mark") == 0)
		snprintf(node->mark, sizeof(node->mark), "%.*s", (int)r->len, r->value);
	return (node->kind == ZK_LOCK && (is_fence || strcmp(r->tag, "mark") == 0)) || (is_fence && zk_lock_of(&zq->q));
}

static void zk_parse(const struct zookeeper *zk, struct zk_query *zq, struct zk_node *node, const char *data, int len)
{
	struct zk_reader r;
	bool good = zk_read_begin(&r, data, len);
	uint64_t seen = zk->store->record.fence;
	char *key, *cell, largest[24];
	int more = 0;

	while (good && (more = zk_read(&r)) > 0) {
		if (zk_own_tag(zk, zq, node, &r))
			continue;
		good = zk_cell(node->kind, node->name, r.tag, &key, &cell);
		if (!good)
			break;
		/* For people: the numbers are each name's own. */
		if (zq->q.script < 0 && strcmp(cell, "=fence") == 0 && node->fence < seen) {
			r.len = (size_t)snprintf(largest, sizeof(largest), "%" PRIu64, seen);
			r.value = largest;
		}
		node->used = true;
		replay_put(zq->run, key, cell, r.value, r.len, 0);
		free(key);
		free(cell);
	}
	if (!good || more < 0)
		snprintf(zq->wrong, sizeof(zq->wrong), "dflock did not write %.300s: remove it (zkCli.sh delete)",
			 node->path);
}

static void zk_loaded(struct zookeeper *zk, struct zk_query *zq)
{
	zk_wait(zk); /* there may be thousands */
	if (--zq->pending == 0)
		zk_up->loaded(zk);
}

/* /names: a lock that is not there, and whose name is, was removed by somebody else. The rules find that out. */
static void zk_on_name(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	struct zk_query *zq = call->query;
	struct zk_node *node = call->node;
	char *key, *cell;

	(void)stat;
	if (rc != ZOK && rc != ZNONODE) {
		zk_failed(call->zk, rc, node->path);
		return;
	}
	node->marked = rc == ZOK;
	if (node->marked && !node->there) {
		snprintf(node->mark, sizeof(node->mark), "%.*s", len > 0 ? len : 0, data);
		zk_cell(ZK_LOCK, node->name, "inc", &key, &cell);
		replay_put(zq->run, key, cell, node->mark, strlen(node->mark), 0); /* mutant: zk-removed */
		free(key);
		free(cell);
	}
	zk_loaded(call->zk, zq);
}

/* ---- mailboxes ---- */

/* Below 2^53, and never 0. */
static uint64_t zk_hash(const char *name)
{
	uint64_t hash = 14695981039346656037u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 1099511628211u;
	return (hash >> 12) + 1;
}

static void zk_saw_box(struct zookeeper *zk, const char *host, int rc, const struct Stat *stat)
{
	struct zk_box *box = &zk->boxes[zk_hash(host) % ZK_BOXES];

	snprintf(box->host, sizeof(box->host), "%s", rc == ZOK ? host : "");
	box->children = rc == ZOK ? stat->numChildren : 0;
}

static void zk_on_box(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	char *host = zk_decode(strrchr(call->path, '/') + 1);

	(void)data;
	(void)len;
	zk_saw_box(call->zk, host, rc, stat);
	free(host);
}

/*
 * A message does not wait for a look at its mailbox where one was seen to have room: that is looked at anew beside the commit. If the mailbox
 * is gone, the commit says so, and is tried again with a look.
 */
static bool zk_knows_box(struct zookeeper *zk, const struct zk_query *zq, struct zk_node *node)
{
	struct zk_box *box = &zk->boxes[zk_hash(node->name) % ZK_BOXES];
	struct zk_call *call;

	if (zq->tries || strcmp(box->host, node->name) != 0 || box->children >= ZK_MAX_MESSAGES / 2)
		return false;
	node->loaded = node->there = true;
	node->children = box->children++;
	call = zk_call(zk, NULL);
	call->on_data = zk_on_box;
	zk_exists(call, node->path);
	return true;
}

/* ---- nodes as they come ---- */

/* stat: NULL if it is not there. */
static void zk_take_node(const struct zookeeper *zk, struct zk_query *zq, struct zk_node *node, const char *data,
			 int len, const struct Stat *stat)
{
	node->loaded = true;
	node->there = stat != NULL;
	if (stat) {
		node->version = stat->version;
		node->children = stat->numChildren;
		if (node->kind != ZK_MAILBOX && (len > 0 || node->kind != ZK_RULES))
			zk_parse(zk, zq, node, data, len);
	}
	/* That of a node that is there is there, too, unless somebody removed it: then the commit fails. */
	node->marked = node->there;
}

static void zk_on_node(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	struct zk_query *zq = call->query;
	struct zk_node *node = call->node;
	struct zk_call *more;
	char *path;

	if (rc != ZOK && rc != ZNONODE) {
		zk_failed(call->zk, rc, node->path);
		return;
	}
	if (node->kind == ZK_MAILBOX)
		zk_saw_box(call->zk, node->name, rc, stat);
	if (node->kind == ZK_STORE && rc != ZOK) {
		zk_half(call->zk);
		return;
	}
	zk_take_node(call->zk, zq, node, data, len, rc == ZOK ? stat : NULL);
	if (node->kind == ZK_LOCK && (!node->there || zq->tries)) {
		more = zk_call(call->zk, zq);
		more->node = node;
		more->on_data = zk_on_name;
		path = zk_path(call->zk->root, ZK_NAME, node->name);
		zk_get(more, path);
		free(path);
		return;
	}
	zk_loaded(call->zk, zq);
}

/* ---- nodes that were looked at before ---- */

/*
 * A release that another host waits for, as a rule. What it reads was looked at when that host asked, so nothing is left but to commit it.
 * If anything has changed since, the commit says so, and everything is read anew, as if that were the first try. No look serves after a change of
 * this host's own, which would be such a case.
 */
static struct zk_seen *zk_seen_at(struct zookeeper *zk, const char *path)
{
	return &zk->seen[zk_hash(path) % ZK_SEEN];
}

static void zk_unsee(struct zk_seen *seen)
{
	free(seen->path);
	free(seen->data);
	*seen = (struct zk_seen){.path = NULL};
}

void zk_forget_seen(struct zookeeper *zk, const char *path)
{
	for (int i = 0; i < ZK_SEEN; i++)
		if (!path || (zk->seen[i].path && strcmp(zk->seen[i].path, path) == 0))
			zk_unsee(&zk->seen[i]);
}

static void zk_on_seen(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	struct zk_seen *seen = zk_seen_at(call->zk, call->path);

	if (!seen->path || strcmp(seen->path, call->path) != 0 || rc != ZOK || len <= 0)
		return;
	free(seen->data); /* of an earlier look */
	seen->data = store_need(malloc((size_t)len));
	memcpy(seen->data, data, (size_t)len);
	seen->len = len;
	seen->stat = *stat;
}

static void zk_look_at(struct zookeeper *zk, enum zk_kind kind, const char *name)
{
	struct zk_call *call = zk_call(zk, NULL);
	char *path = zk_path(zk->root, kind, name);
	struct zk_seen *seen = zk_seen_at(zk, path);

	zk_unsee(seen);
	seen->path = path;
	call->on_data = zk_on_seen;
	zk_get(call, path);
}

void zk_look_ahead(struct zookeeper *zk, const char *name)
{
	zk_look_at(zk, ZK_LOCK, name);
	zk_look_at(zk, ZK_STORE, "");
}

static bool zk_has_seen(struct zookeeper *zk, struct zk_query *zq, struct zk_node *node)
{
	struct zk_seen *seen = zk_seen_at(zk, node->path);

	if (zq->q.script != SCRIPT_RELEASE || !seen->path || strcmp(seen->path, node->path) != 0) /* mutant: zk-seen */
		return false;
	if (seen->data && !zq->again) {
		zk_take_node(zk, zq, node, seen->data, seen->len, &seen->stat);
		zq->looked = true;
	}
	zk_unsee(seen);
	return node->loaded;
}

void zk_need(struct zookeeper *zk, struct zk_query *zq, enum zk_kind kind, const char *name)
{
	struct zk_node *node = zk_find(zk, zq, kind, name);
	struct zk_call *call;

	if (node)
		return;
	node = store_need(calloc(1, sizeof(*node)));
	node->kind = kind;
	node->path = zk_path(zk->root, kind, name);
	node->name = store_need(strdup(name));
	HASH_ADD_KEYPTR(hh, zq->nodes, node->path, strlen(node->path), node);
	if ((kind == ZK_MAILBOX && zk_knows_box(zk, zq, node)) || zk_has_seen(zk, zq, node))
		return;
	call = zk_call(zk, zq);
	call->node = node;
	call->on_data = zk_on_node;
	zq->pending++;
	if (kind == ZK_MAILBOX)
		zk_exists(call, node->path);
	else
		zk_get(call, node->path);
}

/* ---- lists ---- */

static int zk_compare_names(const void *a, const void *b)
{
	uint64_t x = zk_hash(*(char *const *)a), y = zk_hash(*(char *const *)b);

	return (x > y) - (x < y);
}

static void zk_on_list(struct zk_call *call, int rc, const struct String_vector *names, const struct Stat *stat)
{
	struct zk_list *list = &call->query->lists[call->kind];

	if (rc != ZOK) {
		zk_failed(call->zk, rc, call->zk->root);
		return;
	}
	list->loaded = true;
	list->version = stat->version;
	list->names = store_need(calloc((size_t)names->count + 1, sizeof(*list->names)));
	for (int i = 0; i < names->count; i++) {
		list->names[list->count] = zk_decode(names->data[i]);
		list->count += list->names[list->count] != NULL; /* else somebody else's */
	}
	qsort(list->names, (size_t)list->count, sizeof(*list->names), zk_compare_names);
	list->start = list->count ? (int)(uv_hrtime() / 1000 % (uint64_t)list->count) : 0;
	zk_loaded(call->zk, call->query);
}

/* NULL: it is asked for. */
static const struct zk_list *zk_need_list(struct zookeeper *zk, struct zk_query *zq, enum zk_kind kind)
{
	struct zk_list *list = &zq->lists[kind];
	struct zk_call *call;
	char *path;

	if (list->asked)
		return list->loaded ? list : NULL;
	list->asked = true;
	zq->pending++;
	call = zk_call(zk, zq);
	call->kind = kind;
	call->on_names = zk_on_list;
	path = zk_path(zk->root, kind, NULL);
	zk_names(call, path, false);
	free(path);
	return NULL;
}

/* `count` nodes, beginning with this one; behind the last one comes the first. */
static void zk_need_all(struct zookeeper *zk, struct zk_query *zq, enum zk_kind kind, int from, int count)
{
	const struct zk_list *list = zk_need_list(zk, zq, kind);

	for (int i = 0; list && i < count && i < list->count; i++)
		zk_need(zk, zq, kind, list->names[(from + i) % list->count]);
}

/* A page: the names behind this hash, and the hash of the last one; names with the same one are not parted. */
static void zk_page(const struct zk_list *list, const char *cursor, int *from, int *to)
{
	uint64_t after = strtoull(cursor, NULL, 10);

	for (*from = 0; *from < list->count && zk_hash(list->names[*from]) <= after;)
		++*from;
	*to = *from + PAGE_NAMES < list->count ? *from + PAGE_NAMES : list->count;
	while (*to < list->count && zk_hash(list->names[*to]) == zk_hash(list->names[*to - 1]))
		++*to;
}

static void zk_put_page(struct zookeeper *zk, struct zk_query *zq, const char *name)
{
	const struct zk_list *list = &zq->lists[ZK_LOCK];
	char *text;
	size_t len;
	FILE *f = store_need(open_memstream(&text, &len));
	int from, to;

	zk_page(list, name + 1, &from, &to);
	fprintf(f, "%" PRIu64, to < list->count ? zk_hash(list->names[to - 1]) : 0);
	fputc('\0', f);
	for (int i = from; i < to; i++) {
		const struct zk_node *node = zk_find(zk, zq, ZK_LOCK, list->names[i]);

		if (node && node->used) {
			fprintf(f, STORE_LOCK_KEY "%s", node->name);
			fputc('\0', f);
		}
	}
	if (fclose(f) != 0)
		store_need(NULL);
	replay_put(zq->run, "", name, text, len, 0);
	free(text);
}

/* ---- loading ---- */

static void zk_need_hash(struct zookeeper *zk, struct zk_query *zq, const char *key, bool some)
{
	if (strcmp(key, STORE_KEYS "store") == 0) {
		zk_need(zk, zq, ZK_STORE, "");
		zk_need_all(zk, zq, ZK_LOCK, 0, INT32_MAX);
	}
	if (strcmp(key, STORE_KEYS "rules") == 0)
		zk_need_all(zk, zq, ZK_RULE, some ? zq->lists[ZK_RULE].start : 0, some ? SOME : INT32_MAX);
	else
		zk_need_all(zk, zq, ZK_HOST, 0, INT32_MAX);
}

static void zk_need_cell(struct zookeeper *zk, struct zk_query *zq, const struct replay_cell *cell)
{
	struct zk_place place = zk_place(&zq->q, cell->key, cell->name);
	const struct zk_list *list;
	int from, to;

	if (place.kind < ZK_NODES) {
		zk_need(zk, zq, place.kind, place.name);
	} else if (place.kind == ZK_FENCE) {
		zk_need(zk, zq, ZK_STORE, "");
		zk_need(zk, zq, ZK_LOCK, zk_lock_of(&zq->q));
	} else if (place.kind == ZK_ALL) {
		zk_need_hash(zk, zq, place.name, *cell->name == '?');
	} else if (place.kind == ZK_PAGE && (list = zk_need_list(zk, zq, ZK_LOCK))) {
		zk_page(list, place.name, &from, &to);
		zk_need_all(zk, zq, ZK_LOCK, from, to - from);
	}
}

/* Fences are each name's own: else every grant would meet every other one. What the record has is where new names begin. */
static void zk_put_fence(struct zookeeper *zk, struct zk_query *zq, const struct replay_cell *cell)
{
	const struct zk_node *store = zk_find(zk, zq, ZK_STORE, "");
	const struct zk_node *lock = zk_find(zk, zq, ZK_LOCK, zk_lock_of(&zq->q));
	uint64_t fence = store->fence > lock->fence ? store->fence : lock->fence;
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, fence);
	replay_put(zq->run, cell->key, cell->name, fence ? text : NULL, strlen(text), 0);
}

static void zk_put_cell(struct zookeeper *zk, struct zk_query *zq, const struct replay_cell *cell)
{
	enum zk_kind kind = zk_place(&zq->q, cell->key, cell->name).kind;

	if (kind == ZK_FENCE)
		zk_put_fence(zk, zq, cell);
	else if (kind == ZK_PAGE)
		zk_put_page(zk, zq, cell->name);
	else
		replay_put(zq->run, cell->key, cell->name, NULL, 0, 0);
}

bool zk_load(struct zookeeper *zk)
{
	struct zk_query *zq = zk->first;
	struct replay_cell *cell;

	for (cell = zq->run->wanted; cell; cell = cell->next_wanted)
		if (!cell->loaded)
			zk_need_cell(zk, zq, cell);
	if (zq->pending)
		return false;
	for (cell = zq->run->wanted; cell; cell = cell->next_wanted)
		zk_put_cell(zk, zq, cell);
	zq->run->now_us = zk_now_us(zk);
	return true;
}
