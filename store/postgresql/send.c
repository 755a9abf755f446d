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

/* ---- load ---- */

/* Can this rule grant? Then it needs a fence of its own. */
static bool takes_fence(const struct query *q)
{
	return q->keys >= 5 && q->script >= 0 && q->script != SCRIPT_DUMP && q->script != SCRIPT_CONFIRM;
}

void postgresql_load(struct postgresql *p)
{
	struct postgresql_query *pq = p->first;
	struct array keys, names;
	char *alone = NULL;

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
		const char *what = pq->q.argv[pq->q.keys > 2 ? 2 : 0];
		struct array text;

		text.f = store_need(open_memstream(&text.bytes, &text.len));
		fputs("\\x", text.f);
		array_hex(&text, what, strlen(what));
		if (fclose(text.f) != 0)
			store_need(NULL);
		alone = text.bytes;
		pq->alone = true;
	}
	pq->loads++;
	postgresql_send(p, STEP_LOAD, "select * from dflock.load($1::bytea[], $2::bytea[], $3::boolean, $4::bytea)", 4,
			(const char *const[]){keys.bytes, names.bytes, takes_fence(&pq->q) ? "t" : "f", alone});
	free(keys.bytes);
	free(names.bytes);
	free(alone);
}

/* ---- apply ---- */

enum { KEYS, NAMES, VERSIONS, WRITES, VALUES, CHANNELS, TEXTS, ARRAYS };

static bool is_fence(const struct replay_cell *cell)
{
	return strcmp(cell->key, STORE_KEYS "store") == 0 && strcmp(cell->name, "=fence") == 0;
}

/* It is a sequence: dflock.fence, dflock.arrivals. */
static bool is_sequence(const struct replay_cell *cell)
{
	return is_fence(cell) || (strcmp(cell->key, STORE_KEYS "store") == 0 && strcmp(cell->name, "=arrivals") == 0);
}

static void apply_cell(struct array *arrays, const struct replay_cell *cell)
{
	if ((!cell->read && !cell->written) || cell->name[0] == '?' || cell->name[0] == '>' || is_sequence(cell))
		return;
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
		apply_cell(arrays, cell);
		if (cell->written && is_fence(cell))
			fence = cell->value;
	}
	for (const struct replay_message *m = pq->run->messages; m; m = m->next)
		apply_message(arrays, m);
	for (int i = 0; i < ARRAYS; i++)
		array_close(&arrays[i]);
	postgresql_send(p, STEP_APPLY,
			"select dflock.apply($1, $2::bytea[], $3::bytea[], $4::bigint[], $5::boolean[], $6::bytea[], "
			"$7::bigint, $8::text[], $9::text[])",
			9,
			(const char *const[]){*pq->was ? pq->was : NULL, arrays[KEYS].bytes, arrays[NAMES].bytes,
					      arrays[VERSIONS].bytes, arrays[WRITES].bytes, arrays[VALUES].bytes, fence,
					      arrays[CHANNELS].bytes, arrays[TEXTS].bytes});
	for (int i = 0; i < ARRAYS; i++)
		free(arrays[i].bytes);
}
