/* The calls of store.h that visit every lock, with SCAN: a page of keys, one query for each key, the next page. A walk
 * may miss locks that come or go meanwhile. A dump also visits names that only rest. */
#include "store/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_KEYS "500"

struct walk {
	struct store *store;
	char cursor[REPLY_CURSOR_BYTES];
	char **names;         /* the locks of this page */
	bool scanned, rested; /* the last page of keys came; dump: the names that rest, too */
	size_t count, next;
	/* Sends a query about one lock. Its answer goes on with walk_on(), or with `end`. */
	void (*visit)(struct walk *walk, const char *name);
	/* All locks were visited (STORE_OK, error NULL), or the walk cannot go on. Ends with walk_free(). */
	void (*end)(struct walk *walk, enum store_status status, const char *error);

	struct store_blocker host; /* sweep */
	store_reply_cb *swept;
	const struct store_dump *dump; /* NULL: a sweep */
	struct store_picture record;
	char *incarnation;
	void *arg;
};

static struct walk *walk_new(struct store *s, void *arg)
{
	struct walk *walk = store_need(calloc(1, sizeof(*walk)));

	walk->store = s;
	walk->arg = arg;
	strcpy(walk->cursor, "0");
	return walk;
}

static void free_names(struct walk *walk)
{
	for (size_t i = 0; i < walk->count; i++)
		free(walk->names[i]);
	free(walk->names);
	walk->names = NULL;
	walk->count = walk->next = 0;
}

static void walk_free(struct walk *walk)
{
	free_names(walk);
	free(walk->incarnation);
	free(walk);
}

/* The name behind this beginning of a key. NULL: it is another key. */
static const char *name_behind(const char *key, const char *beginning)
{
	size_t len = strlen(beginning);

	return strncmp(key, beginning, len) == 0 ? key + len : NULL;
}

static const char *name_of(const struct walk *walk, const char *key)
{
	const char *name;

	key = name_behind(key, walk->store->keys);
	if (!key)
		return NULL;
	name = name_behind(key, STORE_LOCK);
	for (int space = 0; !name && walk->dump && space < WIRE_SPACES; space++) {
		const char *rest = name_behind(key, STORE_REST);

		rest = rest ? name_behind(rest, word_space[space]) : NULL;
		name = rest ? name_behind(rest, ":") : NULL;
	}
	return name;
}

static void take_names(struct walk *walk, const redisReply *keys)
{
	free_names(walk);
	walk->names = store_need(calloc(keys->elements + 1, sizeof(*walk->names)));
	for (size_t i = 0; i < keys->elements; i++) {
		const redisReply *key = keys->element[i];
		const char *name = key->type == REDIS_REPLY_STRING && strlen(key->str) == key->len
					   ? name_of(walk, key->str)
					   : NULL;
		if (name) /* else a key that is not ours, or not a lock's */
			walk->names[walk->count++] = store_need(strdup(name));
	}
}

static void walk_on(struct walk *walk);

static void on_scanned(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct walk *walk = q->arg;
	const redisReply *keys;

	if (!reply) {
		walk->end(walk, status, error);
	} else if (reply_parse_scan(reply, walk->cursor, &keys) != 0) {
		walk->end(walk, STORE_UNREACHABLE, query_nonsense(q));
	} else {
		walk->scanned = strcmp(walk->cursor, "0") == 0;
		take_names(walk, keys);
		walk_on(walk);
	}
}

/* A page of its own: these names may have no lock. */
static void on_rests(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct walk *walk = q->arg;

	if (!reply) {
		walk->end(walk, status, error);
	} else if (reply->type != REDIS_REPLY_ARRAY) {
		walk->end(walk, STORE_UNREACHABLE, query_nonsense(q));
	} else {
		walk->rested = true;
		take_names(walk, reply);
		walk_on(walk);
	}
}

static void read_rests(struct walk *walk)
{
	struct query *q = query_command(walk->store, "HKEYS", walk);

	query_add(q, "%srests", walk->store->keys);
	query_send(q, on_rests);
}

static void read_page(struct walk *walk)
{
	struct query *q = query_command(walk->store, "SCAN", walk);

	query_words(q, walk->cursor, "MATCH", NULL);
	query_add(q, "%s" STORE_LOCK "*", walk->store->keys);
	query_words(q, "COUNT", PAGE_KEYS, NULL);
	query_send(q, on_scanned);
}

static void walk_on(struct walk *walk)
{
	if (walk->next < walk->count)
		walk->visit(walk, walk->names[walk->next++]);
	else if (!walk->scanned)
		read_page(walk);
	else if (walk->dump && !walk->rested)
		read_rests(walk);
	else
		walk->end(walk, STORE_OK, NULL);
}

/* ---- sweep ---- */

static void end_sweep(struct walk *walk, enum store_status status, const char *error)
{
	walk->swept(walk->arg, &(struct store_reply){.status = status, .error = error});
	walk_free(walk);
}

static void on_swept_lock(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct walk *walk = q->arg;
	struct store_reply answer = {.status = status, .error = error};

	if (reply && reply_parse(reply, q->may, &answer) != 0) {
		answer.status = STORE_UNREACHABLE;
		answer.error = query_nonsense(q);
	}
	if (answer.status == STORE_INCARNATION)
		store_reread_record(q->store);
	if (answer.status == STORE_OK && q->script != SCRIPT_LEAVE)
		walk_on(walk);
	else
		end_sweep(walk, answer.status, answer.error);
}

static void ask_sweep(struct walk *walk, enum script_id script, const char *name)
{
	struct query *q = query_script(walk->store, script, name, walk);

	query_word(q, walk->host.host);
	query_add(q, "%" PRIu64, walk->host.beat);
	query_send(q, on_swept_lock);
}

static void sweep_lock(struct walk *walk, const char *name)
{
	ask_sweep(walk, SCRIPT_SWEEP, name);
}

/* The beat is removed last: if this walk missed a lock and the beat were gone, other hosts would see a host without a
 * beat. */
static void sweep_host(struct walk *walk, enum store_status status, const char *error)
{
	if (status == STORE_OK)
		ask_sweep(walk, SCRIPT_LEAVE, NULL);
	else
		end_sweep(walk, status, error);
}

static struct walk *walk_new_sweep(struct store *s, const struct store_blocker *host, store_reply_cb *cb, void *arg)
{
	struct walk *walk = walk_new(s, arg);

	walk->host = *host;
	walk->swept = cb;
	walk->visit = sweep_lock;
	walk->end = sweep_host;
	return walk;
}

void store_sweep(struct store *s, const struct store_blocker *host, store_reply_cb *cb, void *arg)
{
	walk_on(walk_new_sweep(s, host, cb, arg));
}

/* The mark comes before the first lock is swept: a host that lives hears of it with its next beat. */
void store_give_up(struct store *s, const struct store_blocker *host, store_reply_cb *cb, void *arg)
{
	ask_sweep(walk_new_sweep(s, host, cb, arg), SCRIPT_GIVE_UP, NULL);
}

/* ---- dump ---- */

static void end_dump(struct walk *walk, enum store_status status, const char *error)
{
	walk->dump->on_end(walk->arg, status == STORE_OK ? NULL : error);
	walk_free(walk);
}

static void on_dumped_lock(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct walk *walk = q->arg;
	struct store_aside aside = {.key = NULL};
	struct store_entry *entries;
	size_t count;

	if (!reply) {
		end_dump(walk, status, error);
	} else if (reply_parse_entries(reply, &entries, &count, &aside) != 0) {
		end_dump(walk, STORE_UNREACHABLE, query_nonsense(q));
	} else {
		walk->dump->on_name(walk->arg, walk->names[walk->next - 1], entries, count, &aside);
		free(entries);
		walk_on(walk);
	}
}

static void dump_lock(struct walk *walk, const char *name)
{
	struct query *q = query_script(walk->store, SCRIPT_DUMP, name, walk);

	query_word(q, ""); /* the key of an entry */
	query_send(q, on_dumped_lock);
}

static void on_dump_hosts(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct walk *walk = q->arg;
	struct store_blocker *hosts = NULL;

	if (!reply) {
		end_dump(walk, status, error);
	} else if (reply_parse_hosts(reply, &hosts, &walk->record.host_count) != 0) {
		end_dump(walk, STORE_UNREACHABLE, query_nonsense(q));
	} else {
		walk->record.incarnation = walk->incarnation;
		walk->record.hosts = hosts;
		walk->dump->on_record(walk->arg, &walk->record);
		walk_on(walk);
	}
	free(hosts);
}

static int64_t record_number(const char *text)
{
	uint64_t n;

	return word_number(text, &n) && n <= INT64_MAX ? (int64_t)n : -1;
}

static void on_dump_record(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	const char *words[] = {"", "", "", ""};
	struct walk *walk = q->arg;
	unsigned shards;

	if (!reply) {
		end_dump(walk, status, error);
		return;
	}
	for (size_t i = 0; i < 4 && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
		if (reply->element[i]->type == REDIS_REPLY_STRING)
			words[i] = reply->element[i]->str;
	walk->incarnation = store_need(strdup(words[0]));
	walk->record = (struct store_picture){
		.open = strcmp(words[1], "1") == 0, .ttl_ms = -1, .fence = record_number(words[3])};
	reply_parse_common(words[2], &walk->record.ttl_ms, &shards);
	query_send(query_script(walk->store, SCRIPT_HOSTS, NULL, walk), on_dump_hosts);
}

void store_dump(struct store *s, const struct store_dump *to, void *arg)
{
	struct walk *walk = walk_new(s, arg);
	struct query *q = query_command(s, "HMGET", walk);

	walk->dump = to;
	walk->visit = dump_lock;
	walk->end = end_dump;
	query_add(q, "%sstore", s->keys);
	query_words(q, "inc", "open", "ttl_ms", "fence", NULL);
	query_send(q, on_dump_record);
}
