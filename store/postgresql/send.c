/*
 * See postgresql.h: statements. Each is one transaction of its own, sent as a whole: a keeper that is stopped anywhere holds no row and no
 * cell while it is stopped, only load()'s lock `alone`, without which others go on. All bytes go as hex digits in arrays, so no encoding
 * and no quoting matters.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgresql/postgresql.h"

void postgresql_fail(struct postgresql *p, bool answers, const char *what, const char *said)
{
	char line[REPLY_LINE_BYTES];

	snprintf(line, sizeof(line), "%.*s", (int)strcspn(said, "\n"), said);
	for (char *c = line; *c; c++)
		*c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
	if (answers || strstr(said, "FATAL:")) /* a server that refuses a connection answers, too */
		store_reject(p->store, "%s: %s", what, line);
	else
		store_fail(p->store, "%s: %s", what, line);
}

static void postgresql_on_limit(uv_timer_t *timer)
{
	struct postgresql *p = timer->data;

	store_fail(p->store, "no answer within %" PRId64 " ms", p->store->config->connect_ms);
}

void postgresql_send(struct postgresql *p, enum postgresql_step step, const char *sql, int count,
		     const char *const *values)
{
	int sent;

	p->step = step;
	p->lost = false;
	if (count < 0)
		sent = PQsendQuery(p->conn, sql);
	else if (count > 0)
		sent = PQsendQueryPrepared(p->conn, sql, count, values, NULL, NULL, 1);
	else
		sent = PQsendQueryParams(p->conn, sql, count, NULL, values, NULL, NULL, 1);
	if (!sent || PQflush(p->conn) < 0) {
		postgresql_fail(p, false, "cannot send", PQerrorMessage(p->conn));
		return;
	}
	if (!uv_is_active((uv_handle_t *)&p->limit))
		uv_timer_start(&p->limit, postgresql_on_limit, (uint64_t)p->store->config->connect_ms, 0);
	uv_poll_start(p->poll, UV_READABLE | UV_WRITABLE, p->on_ready);
}

int64_t postgresql_number(const PGresult *result, int row, int column)
{
	int64_t n = 0;

	if (PQgetlength(result, row, column) == 8)
		for (int i = 0; i < 8; i++)
			n = (int64_t)((uint64_t)n << 8 | (unsigned char)PQgetvalue(result, row, column)[i]);
	return n;
}

/* ---- arrays as parameters ---- */

struct array {
	char *bytes;
	size_t len;
	FILE *f;
};

static void array_open(struct array *t)
{
	t->f = store_need(open_memstream(&t->bytes, &t->len));
	fputc('{', t->f);
}

static void array_comma(struct array *t)
{
	if (ftell(t->f) > 1)
		fputc(',', t->f);
}

static void array_hex(struct array *t, const char *bytes, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		fputc(digits[(unsigned char)bytes[i] >> 4], t->f);
		fputc(digits[(unsigned char)bytes[i] & 15], t->f);
	}
}

/* bytes NULL: null. */
static void array_bytes(struct array *t, const char *bytes, size_t len)
{
	array_comma(t);
	if (!bytes) {
		fputs("NULL", t->f);
		return;
	}
	fputs("\"\\\\x", t->f);
	array_hex(t, bytes, len);
	fputc('"', t->f);
}

static void array_close(struct array *t)
{
	fputc('}', t->f);
	if (fclose(t->f) != 0)
		store_need(NULL);
}

/* ---- advisory locks ---- */

/* Of a cell. Two cells may share one: that only makes one wait for the other. */
static int64_t lock_of(const char *key, const char *name)
{
	uint64_t hash = 14695981039346656037u;

	for (const char *c = key; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	hash *= 1099511628211u;
	for (const char *c = name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	return (int64_t)hash;
}

struct cell_lock {
	int64_t id;
	bool alone;
};

static int lock_by_id(const void *a, const void *b)
{
	const struct cell_lock *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id ? 1 : y->alone - x->alone;
}

/* ---- load ---- */

bool postgresql_takes_fence(const struct query *q)
{
	return q->keys >= 5 && q->script >= 0 && q->script != SCRIPT_DUMP && q->script != SCRIPT_CONFIRM;
}

void postgresql_load(struct postgresql *p)
{
	struct postgresql_query *pq = p->first;
	struct array keys, names;
	char alone[24] = "";

	array_open(&keys);
	array_open(&names);
	for (const struct replay_cell *w = pq->run->wanted; w; w = w->next_wanted) {
		array_bytes(&keys, w->key, strlen(w->key));
		array_bytes(&names, w->name, strlen(w->name));
	}
	array_close(&keys);
	array_close(&names);
	/* The second try is alone among second tries for the same: many that want it would else undo each other's work. */
	if (pq->tries == 1 && !pq->alone && pq->q.script >= 0) {
		snprintf(alone, sizeof(alone), "%" PRId64, lock_of(pq->q.argv[pq->q.keys > 2 ? 2 : 0], "alone"));
		pq->alone = true;
	}
	pq->loads++;
	postgresql_send(p, STEP_LOAD, "dflock_load", 4,
			(const char *const[]){keys.bytes, names.bytes, postgresql_takes_fence(&pq->q) ? "t" : "f",
					      *alone ? alone : NULL});
	free(keys.bytes);
	free(names.bytes);
}

/* ---- apply ---- */

enum { KEYS, NAMES, VERSIONS, WRITES, VALUES, CHANNELS, TEXTS, LOCKS, ALONE, ARRAYS };

bool postgresql_is_fence(const struct replay_cell *cell)
{
	return strcmp(cell->key, STORE_KEYS "store") == 0 && strcmp(cell->name, "=fence") == 0;
}

static bool is_compared(const struct replay_cell *cell)
{
	return (cell->read || cell->written) && cell->name[0] != '?' && cell->name[0] != '>' &&
	       !postgresql_is_fence(cell);
}

static void apply_cell(struct array *arrays, const struct replay_cell *cell)
{
	array_bytes(&arrays[KEYS], cell->key, strlen(cell->key));
	array_bytes(&arrays[NAMES], cell->name, strlen(cell->name));
	array_comma(&arrays[VERSIONS]);
	if (cell->read)
		fprintf(arrays[VERSIONS].f, "%" PRIu64, cell->version);
	else
		fputs("NULL", arrays[VERSIONS].f);
	array_comma(&arrays[WRITES]);
	fputs(cell->written ? "t" : "f", arrays[WRITES].f);
	array_bytes(&arrays[VALUES], cell->written ? cell->value : NULL, cell->len);
}

/* Its hash was read as a whole: the lock of that excludes who writes this field. The server has no room for a lock of each of very many. */
static bool is_of_whole(const struct replay_run *run, const struct replay_cell *cell)
{
	struct replay_cell *whole = NULL;
	char id[64];
	int len = snprintf(id, sizeof(id), "%s%c*", cell->key, '\0');

	if (cell->name[0] == '=' && !cell->written && len < (int)sizeof(id))
		HASH_FIND(hh, run->cells, id, (unsigned)len, whole);
	return whole && whole->read;
}

/* In one order, so that nobody waits for a waiter; the first of two equal ones is not shared if one of them is not. Who has read a whole hash
 * excludes those that write its fields, which have one more lock for that. */
static void apply_locks(struct array *arrays, const struct replay_run *run)
{
	struct cell_lock *locks = store_need(calloc(2 * HASH_COUNT(run->cells) + 1, sizeof(*locks)));
	struct replay_cell *cell, *next;
	size_t count = 0;

	HASH_ITER (hh, run->cells, cell, next) {
		if (!is_compared(cell) || is_of_whole(run, cell))
			continue;
		locks[count++] = (struct cell_lock){lock_of(cell->key, cell->name),
						    cell->written || strcmp(cell->name, "*") == 0};
		if (cell->written && cell->name[0] == '=')
			locks[count++] = (struct cell_lock){lock_of(cell->key, "*"), false};
	}
	qsort(locks, count, sizeof(*locks), lock_by_id);
	for (size_t i = 0; i < count; i++) {
		if (i && locks[i].id == locks[i - 1].id)
			continue;
		array_comma(&arrays[LOCKS]);
		fprintf(arrays[LOCKS].f, "%" PRId64, locks[i].id);
		array_comma(&arrays[ALONE]);
		fputs(locks[i].alone ? "t" : "f", arrays[ALONE].f);
	}
	free(locks);
}

/* Names and payloads are text: hosts' ids and messages may be any bytes. */
static void apply_message(struct array *arrays, const struct replay_message *m)
{
	array_comma(&arrays[CHANNELS]);
	fputc('"', arrays[CHANNELS].f);
	array_hex(&arrays[CHANNELS], m->channel, strlen(m->channel));
	fputc('"', arrays[CHANNELS].f);
	array_comma(&arrays[TEXTS]);
	fputc('"', arrays[TEXTS].f);
	array_hex(&arrays[TEXTS], m->text, strlen(m->text));
	fputc('"', arrays[TEXTS].f);
}

void postgresql_apply(struct postgresql *p)
{
	const struct postgresql_query *pq = p->first;
	struct replay_cell *cell, *next;
	struct array arrays[ARRAYS];
	const char *fence = NULL;

	for (int i = 0; i < ARRAYS; i++)
		array_open(&arrays[i]);
	HASH_ITER (hh, pq->run->cells, cell, next) {
		if (is_compared(cell))
			apply_cell(arrays, cell);
		else if (cell->written && postgresql_is_fence(cell) && strtoull(cell->value, NULL, 10) > pq->fence)
			fence = cell->value;
	}
	apply_locks(arrays, pq->run);
	for (const struct replay_message *m = pq->run->messages; m; m = m->next)
		apply_message(arrays, m);
	for (int i = 0; i < ARRAYS; i++)
		array_close(&arrays[i]);
	postgresql_send(p, STEP_APPLY, "dflock_apply", 11,
			(const char *const[]){*pq->was ? pq->was : NULL, arrays[KEYS].bytes, arrays[NAMES].bytes,
					      arrays[VERSIONS].bytes, arrays[WRITES].bytes, arrays[VALUES].bytes, fence,
					      arrays[CHANNELS].bytes, arrays[TEXTS].bytes, arrays[LOCKS].bytes,
					      arrays[ALONE].bytes});
	for (int i = 0; i < ARRAYS; i++)
		free(arrays[i].bytes);
}
