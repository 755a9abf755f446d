/*
 * See internal.h, struct engine: PostgreSQL. The rules run here (store/replay/replay.h); the functions of schema.sql load and commit.
 *
 * One query at a time, in the order in which they were asked, each until its answer: load, run, perhaps load more, commit in one
 * statement, so that a keeper that stops in between holds no lock of the database. What was not committed because something had
 * changed is run again from the beginning. An answer is given when COMMIT was answered. If the connection breaks before, it is not
 * known whether the commit came about: the query ends with STORE_UNREACHABLE, "maybe granted".
 *
 * Connecting, with its look-ups and Kerberos, blocks in libpq: in a thread. All else goes by the loop.
 */
#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "store/replay/replay.h"

#define FORMAT "1"

struct postgresql_query {
	struct query q;
	struct postgresql_query *next;
	struct replay_run *run; /* NULL: it waits for its turn */
	unsigned loads;
	bool again;  /* something had changed */
	bool locked; /* it has dflock.load_alone()'s lock */
};

enum postgresql_step { STEP_NONE, STEP_CHECK, STEP_FORGET, STEP_LOAD, STEP_APPLY, STEP_UNLOCK };

struct postgresql;

/* Lives as long as its thread. */
struct attempt {
	uv_work_t work;
	struct postgresql *at; /* NULL: it was given up */
	char *info, *password, *settings, *listen;
	PGconn *conns[2]; /* for queries, for messages */
};

struct postgresql {
	struct store *store;
	struct replay *replay;
	struct attempt *attempt;   /* NULL: none is under way */
	PGconn *conn, *listening;  /* both or none */
	uv_poll_t *poll, *news;    /* ditto */
	enum postgresql_step step; /* what was sent */
	struct postgresql_query *first, **last;
	uv_timer_t limit;
	bool lost;    /* a notice said that a commit may not be kept */
	int64_t seen; /* the largest position in the server's log at which something was committed */
};

static struct postgresql *postgresql_of(const struct store *s)
{
	return s->at;
}

/* The first line of what libpq says. */
static void postgresql_fail(struct postgresql *p, bool answers, const char *what, const char *said)
{
	int len = (int)strcspn(said, "\n");

	if (answers)
		store_reject(p->store, "%s: %.*s", what, len, said);
	else
		store_fail(p->store, "%s: %.*s", what, len, said);
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

/* bytes NULL: null. */
static void array_bytes(struct array *t, const char *bytes, size_t len)
{
	array_comma(t);
	if (!bytes) {
		fputs("NULL", t->f);
		return;
	}
	fputs("\"\\\\x", t->f);
	for (size_t i = 0; i < len; i++)
		fprintf(t->f, "%02x", (unsigned char)bytes[i]);
	fputc('"', t->f);
}

static void array_close(struct array *t)
{
	fputc('}', t->f);
	if (fclose(t->f) != 0)
		store_need(NULL);
}

/* ---- sending ---- */

static void postgresql_on_ready(uv_poll_t *poll, int status, int events);
static void postgresql_on_limit(uv_timer_t *timer);

static void postgresql_send(struct postgresql *p, enum postgresql_step step, const char *sql, int count,
			    const char *const *values)
{
	p->step = step;
	if (!PQsendQueryParams(p->conn, sql, count, NULL, values, NULL, NULL, 1)) {
		postgresql_fail(p, false, "cannot send", PQerrorMessage(p->conn));
		return;
	}
	uv_timer_start(&p->limit, postgresql_on_limit, (uint64_t)p->store->config->connect_ms, 0);
	if (PQflush(p->conn) < 0)
		postgresql_fail(p, false, "cannot send", PQerrorMessage(p->conn));
	else
		uv_poll_start(p->poll, UV_READABLE | UV_WRITABLE, postgresql_on_ready);
}

static void postgresql_on_limit(uv_timer_t *timer)
{
	struct postgresql *p = timer->data;

	store_fail(p->store, "no answer within %" PRId64 " ms", p->store->config->connect_ms);
}

static void postgresql_load(struct postgresql *p)
{
	struct array keys, names;

	array_open(&keys);
	array_open(&names);
	for (const struct replay_cell *w = p->first->run->wanted; w; w = w->next_wanted) {
		array_bytes(&keys, w->key, strlen(w->key));
		array_bytes(&names, w->name, strlen(w->name));
	}
	array_close(&keys);
	array_close(&names);
	/* The second try is alone among second tries: many that want the same would else undo each other's work. */
	bool alone = p->first->again && !p->first->locked;
	p->first->loads++;
	p->first->locked = p->first->locked || alone;
	postgresql_send(p, STEP_LOAD,
			alone ? "select * from dflock.load_alone($1::bytea[], $2::bytea[])"
			      : "select * from dflock.load($1::bytea[], $2::bytea[])",
			2, (const char *const[]){keys.bytes, names.bytes});
	free(keys.bytes);
	free(names.bytes);
}

enum { KEYS, NAMES, VERSIONS, WRITES, VALUES, CHANNELS, TEXTS, ARRAYS };

/* A channel has at most 63 bytes, a payload is text: messages may be any bytes. */
static void postgresql_channel(const char *channel, char name[64])
{
	uint64_t hash = 14695981039346656037u;

	for (const char *c = channel; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	snprintf(name, 64, "dflock_%016" PRIx64, hash);
}

static void postgresql_add_message(struct array *arrays, const struct replay_message *m)
{
	char name[64];

	postgresql_channel(m->channel, name);
	array_comma(&arrays[CHANNELS]);
	fputs(name, arrays[CHANNELS].f);
	array_comma(&arrays[TEXTS]);
	for (const char *c = m->text; *c; c++)
		fprintf(arrays[TEXTS].f, "%02x", (unsigned char)*c);
}

static void postgresql_apply(struct postgresql *p)
{
	const struct replay_run *run = p->first->run;
	struct replay_cell *cell, *next;
	struct array arrays[ARRAYS];
	const char *values[ARRAYS + 1] = {*run->identity ? run->identity : NULL}; /* of what was never loaded */

	for (int i = 0; i < ARRAYS; i++)
		array_open(&arrays[i]);
	HASH_ITER (hh, run->cells, cell, next) {
		if (!cell->read && !cell->written)
			continue;
		if (cell->name[0] == '?' || cell->name[0] == '>')
			continue;
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
	for (const struct replay_message *m = run->messages; m; m = m->next)
		postgresql_add_message(arrays, m);
	for (int i = 0; i < ARRAYS; i++) {
		array_close(&arrays[i]);
		values[i + 1] = arrays[i].bytes;
	}
	postgresql_send(p, STEP_APPLY,
			"select dflock.apply($1, $2::bytea[], $3::bytea[], $4::bigint[], $5::boolean[], $6::bytea[], "
			"$7::text[], $8::text[])",
			ARRAYS + 1, values);
	for (int i = 0; i < ARRAYS; i++)
		free(arrays[i].bytes);
}

/* ---- the queries ---- */

static void postgresql_next(struct postgresql *p);

static struct postgresql_query *postgresql_take(struct postgresql *p)
{
	struct postgresql_query *pq = p->first;

	p->first = pq->next;
	if (!p->first)
		p->last = &p->first;
	return pq;
}

static void postgresql_answer(struct postgresql *p)
{
	struct postgresql_query *pq = postgresql_take(p);
	struct replay_run *run = pq->run;
	bool locked = pq->locked;
	char line[REPLY_LINE_BYTES];

	if (run->answer->type == REDIS_REPLY_ERROR) {
		snprintf(line, sizeof(line), "the rule failed: %.300s", run->answer->str);
		query_end(&pq->q, STORE_ERROR, line);
	} else {
		query_answer(&pq->q, run->answer);
	}
	replay_end(run);
	if (p->conn && locked)
		postgresql_send(p, STEP_UNLOCK, "select pg_advisory_unlock(dflock.alone())", 0, NULL);
	else
		postgresql_next(p);
}

static void postgresql_run(struct postgresql *p)
{
	struct postgresql_query *pq = p->first;

	if (replay_step(pq->run) == REPLAY_LOAD)
		postgresql_load(p);
	else if (pq->run->writes || pq->run->messages || pq->loads > 1)
		postgresql_apply(p);
	else /* all that it read is of one moment */
		postgresql_answer(p);
}

/* Begins the first query, unless something is under way. */
static void postgresql_next(struct postgresql *p)
{
	struct postgresql_query *pq = p->first;

	if (!p->conn || p->step != STEP_NONE || !pq || pq->run)
		return;
	pq->loads = 0;
	pq->run = store_need(replay_begin(p->replay, pq->q.script, pq->q.keys, pq->q.argc, pq->q.argv));
	postgresql_run(p);
}

static int postgresql_ask(struct query *q)
{
	struct postgresql_query *pq = (struct postgresql_query *)q;
	struct postgresql *p = postgresql_of(q->store);

	if (!p->conn)
		return -ENOTCONN;
	pq->next = NULL;
	*p->last = pq;
	p->last = &pq->next;
	if (p->first == pq)
		uv_poll_start(p->poll, UV_READABLE | UV_WRITABLE, postgresql_on_ready); /* from the loop */
	return 0;
}

/* ---- answers ---- */

static int64_t postgresql_number(const PGresult *result, int row, int column)
{
	int64_t n = 0;

	if (PQgetlength(result, row, column) == 8)
		for (int i = 0; i < 8; i++)
			n = (int64_t)((uint64_t)n << 8 | (unsigned char)PQgetvalue(result, row, column)[i]);
	return n;
}

static void postgresql_on_loaded(struct postgresql *p, const PGresult *result)
{
	struct replay_run *run = p->first->run;

	for (int row = 0; row < PQntuples(result); row++) {
		char key[STORE_KEY_BYTES + LOCK_NAME_BYTES], name[STORE_KEY_BYTES + LOCK_NAME_BYTES];
		const char *value = PQgetisnull(result, row, 2) ? NULL : PQgetvalue(result, row, 2);

		snprintf(key, sizeof(key), "%.*s", PQgetlength(result, row, 0), PQgetvalue(result, row, 0));
		snprintf(name, sizeof(name), "%.*s", PQgetlength(result, row, 1), PQgetvalue(result, row, 1));
		if (*name)
			replay_put(run, key, name, value, (size_t)PQgetlength(result, row, 2),
				   (uint64_t)postgresql_number(result, row, 3));
		else if (value) {
			snprintf(run->identity, sizeof(run->identity), "%.*s", PQgetlength(result, row, 2), value);
			run->now_us = postgresql_number(result, row, 3);
		}
	}
	for (struct replay_cell *w = run->wanted; w; w = w->next_wanted)
		replay_put(run, w->key, w->name, NULL, 0, 0);
	postgresql_run(p);
}

static void postgresql_again(struct postgresql *p)
{
	replay_end(p->first->run);
	p->first->run = NULL;
	p->first->again = true;
	postgresql_next(p);
}

static void postgresql_on_applied(struct postgresql *p, const PGresult *result)
{
	if (p->lost) {
		store_fail(p->store, "a wait for a standby was cancelled: what was committed may not be kept");
	} else if (PQntuples(result) == 1 && !PQgetisnull(result, 0, 0)) {
		p->seen = postgresql_number(result, 0, 0);
		postgresql_answer(p);
	} else {
		postgresql_again(p);
	}
}

static void postgresql_connected(struct postgresql *p)
{
	uv_timer_stop(&p->store->retry);
	p->store->news->connected(p->store);
}

/* What the columns of the check must be: the schema's format, in recovery, fsync, synchronous_commit, the process. */
static const char *postgresql_wrong(const struct postgresql *p, const PGresult *result)
{
	static const struct {
		const char *want, *wrong;
	} columns[] = {
		{FORMAT, "its schema is of another version: run the schema.sql of this version of dflock"},
		{"false", "it is a standby, which may only be read: set the address of the primary"},
		{"on", "fsync is off, so that it would lose locks with its power: switch it on"},
		{"on", "synchronous_commit is not on for this role: switch it on"},
		{NULL, "a pooler is between, which does not pass on messages: set the address of the server itself"},
	};
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", PQbackendPID(p->conn));
	if (PQntuples(result) != 1)
		return "its table dflock.about has not one row: run schema.sql in an empty database";
	for (int i = 0; i < (int)(sizeof(columns) / sizeof(*columns)); i++)
		if (strcmp(PQgetvalue(result, 0, i), columns[i].want ? columns[i].want : pid) != 0)
			return columns[i].wrong;
	return NULL;
}

/*
 * A server whose log is not as far as it was has another memory, though cluster and timeline may be the same: its folder was
 * restored. Then the memory gets another name, for every host.
 */
static void postgresql_on_checked(struct postgresql *p, const PGresult *result)
{
	const char *wrong = postgresql_wrong(p, result);

	if (wrong)
		store_reject(p->store, "%s", wrong);
	else if (postgresql_number(result, 0, 5) < p->seen)
		postgresql_send(p, STEP_FORGET, "select dflock.forget()", 0, NULL);
	else
		postgresql_connected(p);
}

/* What to do about errors that an installation has. */
static void postgresql_on_error(struct postgresql *p, const PGresult *result)
{
	static const struct {
		const char *code, *what;
	} known[] = {
		{"42P01", "it has no schema of dflock's, or half of one (run schema.sql)"},
		{"42883", "it has no schema of dflock's, or half of one (run schema.sql)"},
		{"3F000", "it has no schema of dflock's, or half of one (run schema.sql)"},
		{"42501", "the role lacks a right (run schema.sql with it as role)"},
		{"25006", "it may only be read (set the address of the primary)"},
	};
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE), *what = "the server says";

	for (size_t i = 0; code && i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(code, known[i].code) == 0)
			what = known[i].what;
	postgresql_fail(p, true, what, PQresultErrorMessage(result));
}

static void postgresql_on_result(struct postgresql *p, PGresult *result)
{
	enum postgresql_step step = p->step;
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	p->step = STEP_NONE;
	uv_timer_stop(&p->limit);
	if (PQresultStatus(result) == PGRES_TUPLES_OK && step == STEP_CHECK)
		postgresql_on_checked(p, result);
	else if (PQresultStatus(result) == PGRES_TUPLES_OK && step == STEP_FORGET) {
		p->seen = 0;
		postgresql_connected(p);
	} else if (PQresultStatus(result) == PGRES_TUPLES_OK && step == STEP_LOAD)
		postgresql_on_loaded(p, result);
	else if (PQresultStatus(result) == PGRES_TUPLES_OK && step == STEP_APPLY)
		postgresql_on_applied(p, result);
	else if (PQresultStatus(result) == PGRES_TUPLES_OK && step == STEP_UNLOCK)
		postgresql_next(p);
	else if (step == STEP_LOAD && p->first->again && code && strcmp(code, "55P03") == 0) {
		p->first->locked = false; /* another one keeps it for too long */
		postgresql_again(p);
	} else if (step == STEP_APPLY && code && (strncmp(code, "40", 2) == 0 || strcmp(code, "55P03") == 0))
		postgresql_again(p); /* a deadlock, or a lock that did not come: rolled back */
	else
		postgresql_on_error(p, result);
}

static void postgresql_on_ready(uv_poll_t *poll, int status, int events)
{
	struct postgresql *p = poll->data;
	int left = PQflush(p->conn);
	PGresult *result, *more;

	(void)events;
	if (status < 0 || left < 0 || !PQconsumeInput(p->conn)) {
		postgresql_fail(p, false, "the connection broke", PQerrorMessage(p->conn));
		return;
	}
	uv_poll_start(poll, UV_READABLE | (left ? UV_WRITABLE : 0), postgresql_on_ready);
	if (p->step == STEP_NONE)
		postgresql_next(p);
	while (p->conn && p->step != STEP_NONE && !PQisBusy(p->conn)) {
		result = PQgetResult(p->conn);
		if (!result)
			break;
		while ((more = PQgetResult(p->conn))) /* there is none: the statements are single ones */
			PQclear(more);
		postgresql_on_result(p, result);
		PQclear(result);
	}
}

static void postgresql_on_news(uv_poll_t *poll, int status, int events)
{
	struct postgresql *p = poll->data;
	PGnotify *n;

	(void)events;
	if (status < 0 || !PQconsumeInput(p->listening)) {
		postgresql_fail(p, false, "the connection for messages broke", PQerrorMessage(p->listening));
		return;
	}
	while (p->listening && (n = PQnotifies(p->listening))) {
		char text[4096];
		size_t len = strlen(n->extra) / 2;

		for (size_t i = 0; i < len && len < sizeof(text); i++) {
			unsigned byte = 0;
			sscanf(n->extra + 2 * i, "%2x", &byte);
			text[i] = (char)byte;
		}
		PQfreemem(n);
		if (len >= sizeof(text))
			continue;
		text[len] = '\0';
		p->store->news->message(p->store, text, len);
	}
}

/* ---- connecting ---- */

static void postgresql_on_notice(void *arg, const PGresult *result)
{
	struct postgresql *p = arg;
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	/* "canceling wait for synchronous replication" */
	p->lost = p->lost || (code && strcmp(code, "01000") == 0);
}

static void postgresql_in_thread(uv_work_t *work)
{
	static const char *const names[] = {"dbname", "password", "fallback_application_name", NULL};
	struct attempt *a = work->data;

	for (int i = 0; i < 2; i++) {
		a->conns[i] = PQconnectdbParams(names, (const char *[]){a->info, a->password, "dflock", NULL}, 1);
		if (PQstatus(a->conns[i]) == CONNECTION_OK)
			PQclear(PQexec(a->conns[i], a->settings));
	}
	if (PQstatus(a->conns[1]) == CONNECTION_OK)
		PQclear(PQexec(a->conns[1], a->listen));
}

static void postgresql_attempt_free(struct attempt *a)
{
	for (int i = 0; i < 2; i++)
		PQfinish(a->conns[i]);
	free(a->info);
	if (a->password)
		explicit_bzero(a->password, strlen(a->password));
	free(a->password);
	free(a->settings);
	free(a->listen);
	free(a);
}

/* A keeper that hangs in the middle of something keeps no lock for longer than others wait for an answer. */
static struct attempt *postgresql_attempt_new(struct postgresql *p)
{
	struct attempt *a = store_need(calloc(1, sizeof(*a)));
	int64_t ms = p->store->config->connect_ms;
	char channel[STORE_KEY_BYTES], name[64];

	a->work.data = a;
	a->at = p;
	a->info = store_need(strdup(p->store->config->postgresql));
	if (p->store->config->password)
		a->password = store_need(strdup(p->store->config->password));
	snprintf(channel, sizeof(channel), STORE_HOST_CHANNEL "%s", p->store->host);
	postgresql_channel(channel, name);
	if (asprintf(&a->listen, "listen %s", name) < 0 ||
	    asprintf(&a->settings,
		     "set statement_timeout = %" PRId64 "; set lock_timeout = %" PRId64
		     "; set idle_in_transaction_session_timeout = %" PRId64,
		     ms - ms / 4, ms / 2, ms) < 0)
		store_need(NULL);
	return a;
}

static uv_poll_t *postgresql_poll(struct postgresql *p, PGconn *conn)
{
	uv_poll_t *poll = store_need(calloc(1, sizeof(*poll)));

	uv_poll_init(p->store->loop, poll, PQsocket(conn));
	poll->data = p;
	return poll;
}

static void postgresql_on_thread(uv_work_t *work, int status)
{
	struct attempt *a = work->data;
	struct postgresql *p = a->at;

	(void)status;
	if (!p) {
		postgresql_attempt_free(a);
		return;
	}
	p->attempt = NULL;
	for (int i = 0; i < 2; i++)
		if (PQstatus(a->conns[i]) != CONNECTION_OK) {
			postgresql_fail(p, false, "cannot connect",
					a->conns[i] ? PQerrorMessage(a->conns[i]) : "no memory");
			postgresql_attempt_free(a);
			return;
		}
	p->conn = a->conns[0];
	p->listening = a->conns[1];
	a->conns[0] = a->conns[1] = NULL;
	postgresql_attempt_free(a);
	p->lost = false;
	snprintf(p->store->version, sizeof(p->store->version), "PostgreSQL %d", PQserverVersion(p->conn) / 10000);
	PQsetNoticeReceiver(p->conn, postgresql_on_notice, p);
	PQsetnonblocking(p->conn, 1);
	p->poll = postgresql_poll(p, p->conn);
	p->news = postgresql_poll(p, p->listening);
	uv_poll_start(p->news, UV_READABLE, postgresql_on_news);
	postgresql_send(
		p, STEP_CHECK,
		"select format::text, pg_is_in_recovery()::text, current_setting('fsync'), "
		"current_setting('synchronous_commit'), pg_backend_pid()::text, "
		"case when pg_is_in_recovery() then 0 else pg_current_wal_insert_lsn() - '0/0'::pg_lsn end::bigint "
		"from dflock.about",
		0, NULL);
}

static void postgresql_on_connect_limit(uv_timer_t *timer)
{
	struct store *s = timer->data;

	store_fail(s, "no connection within %" PRId64 " ms", s->config->connect_ms);
}

static void postgresql_connect(struct store *s)
{
	struct postgresql *p = postgresql_of(s);
	struct attempt *a = postgresql_attempt_new(p);

	p->attempt = a;
	uv_timer_start(&s->retry, postgresql_on_connect_limit, (uint64_t)s->config->connect_ms, 0);
	if (uv_queue_work(s->loop, &a->work, postgresql_in_thread, postgresql_on_thread) != 0)
		store_need(NULL);
}

static void postgresql_on_poll_closed(uv_handle_t *handle)
{
	free(handle);
}

static void postgresql_close(struct store *s)
{
	struct postgresql *p = postgresql_of(s);
	uv_poll_t *polls[] = {p->poll, p->news};
	PGconn *conns[] = {p->conn, p->listening};

	if (p->attempt)
		p->attempt->at = NULL;
	p->attempt = NULL;
	p->conn = p->listening = NULL;
	p->poll = p->news = NULL;
	p->step = STEP_NONE;
	uv_timer_stop(&p->limit);
	for (int i = 0; i < 2; i++)
		if (conns[i]) {
			uv_poll_stop(polls[i]);
			uv_close((uv_handle_t *)polls[i], postgresql_on_poll_closed);
			PQfinish(conns[i]);
		}
	while (p->first) {
		struct postgresql_query *pq = postgresql_take(p);

		if (pq->run)
			replay_end(pq->run);
		query_end(&pq->q, STORE_UNREACHABLE, s->error);
	}
}

/* ---- life ---- */

static void postgresql_up(struct store *s)
{
	(void)s;
}

/* What the configuration leaves out must not come from the program that started the keeper: PGHOST, PGPORT and so on. */
static void postgresql_forget_environment(void)
{
	for (char **at = environ; *at;) {
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*at, "="), *at);
		if (strncmp(name, "PG", 2) == 0 && unsetenv(name) == 0)
			at = environ;
		else
			at++;
	}
}

/* Without user, passwords and files. */
static void postgresql_name(struct store *s)
{
	PQconninfoOption *options = PQconninfoParse(s->config->postgresql, NULL), *o;
	size_t len = (size_t)snprintf(s->server, sizeof(s->server), "postgresql");

	for (o = options; o && o->keyword; o++)
		if (o->val &&
		    (strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "hostaddr") == 0 ||
		     strcmp(o->keyword, "port") == 0 || strcmp(o->keyword, "dbname") == 0 ||
		     strcmp(o->keyword, "service") == 0) &&
		    len < sizeof(s->server))
			len += (size_t)snprintf(s->server + len, sizeof(s->server) - len, " %s=%s", o->keyword, o->val);
	PQconninfoFree(options);
}

static int postgresql_open(struct store *s)
{
	struct postgresql *p = s->at = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->store = s;
	p->last = &p->first;
	p->replay = replay_new();
	if (!p->replay) {
		free(p);
		return -ENOMEM;
	}
	uv_timer_init(s->loop, &p->limit);
	p->limit.data = p;
	postgresql_forget_environment();
	postgresql_name(s);
	return 0;
}

static void postgresql_on_freed(uv_handle_t *handle)
{
	free(handle->data);
}

static void postgresql_free(struct store *s)
{
	struct postgresql *p = postgresql_of(s);

	replay_free(p->replay);
	uv_close((uv_handle_t *)&p->limit, postgresql_on_freed);
}

ENGINE_SHOWN const struct engine dflock_engine = {
	.version = DFLOCK_VERSION,
	.name = "postgresql",
	.query_bytes = sizeof(struct postgresql_query),
	.open = postgresql_open,
	.connect = postgresql_connect,
	.close = postgresql_close,
	.up = postgresql_up,
	.check = postgresql_up,
	.free = postgresql_free,
	.ask = postgresql_ask,
};
