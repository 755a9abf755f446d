/*
 * See internal.h, struct engine: PostgreSQL. The rules run here (store/replay/replay.h); the functions of schema.sql load and commit.
 *
 * One query at a time, in the order in which they were asked, each until its answer: load, run, perhaps load more, commit in one statement.
 * What was not committed because something had changed is run again from the beginning.
 *
 * Why a rule is one step, whatever else happens:
 * - What it read first is of one snapshot. If it wrote nothing, needed no second load, and said nothing, it was done at that
 *   snapshot. Else apply() compares: no cell that it read has changed, nor was anything removed since.
 * - It is answered when the commit was confirmed. If the connection breaks, the time is over, or a notice said that a standby has not
 *   confirmed, the query ends with STORE_UNREACHABLE: "maybe granted". The server may execute the statement later, as store.h allows.
 * - A keeper that is stopped (SIGSTOP) between two statements keeps no lock of a cell. What it sends when it goes on is compared like
 *   all else. One that is stopped for long has lost its session by then (idle_session_timeout).
 * - Everything here is called from the loop. Whatever calls `done` of a query may come back here, or close the connection: so that is
 *   always the last thing, or p->conn and p->step are looked at again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgresql/postgresql.h"

/* ---- the queries ---- */

static struct postgresql_query *postgresql_take(struct postgresql *p)
{
	struct postgresql_query *pq = p->first;

	p->first = pq->next;
	if (!p->first)
		p->last = &p->first;
	return pq;
}

static void postgresql_run(struct postgresql *p);

/* Begins the first query, unless something is under way. */
static void postgresql_next(struct postgresql *p)
{
	struct postgresql_query *pq = p->first;

	if (!p->conn || p->step != STEP_NONE || (pq && pq->run))
		return;
	if (p->look && !(pq && pq->tries)) { /* else it would begin the query's time anew */
		p->look = false;
		postgresql_send(p, STEP_LOOK, "select format, dflock.clean(50000, 500) from dflock.about", 0, NULL);
		return;
	}
	if (!pq)
		return;
	pq->loads = 0;
	pq->was[0] = '\0';
	pq->fence = 0;
	pq->run = store_need(replay_begin(p->replay, pq->q.script, pq->q.keys, pq->q.argc, pq->q.argv));
	postgresql_run(p);
}

static void postgresql_answer(struct postgresql *p)
{
	struct postgresql_query *pq = postgresql_take(p);
	redisReply *answer = pq->run->answer;
	bool alone = pq->alone;
	char line[REPLY_LINE_BYTES];

	pq->run->answer = NULL;
	replay_end(pq->run);
	uv_timer_stop(&p->limit);
	if (answer->type == REDIS_REPLY_ERROR) {
		snprintf(line, sizeof(line), "the rule failed: %.300s", answer->str);
		query_end(&pq->q, STORE_ERROR, line);
	} else {
		query_answer(&pq->q, answer);
	}
	freeReplyObject(answer);
	if (p->conn && alone)
		postgresql_send(p, STEP_UNLOCK, "select pg_advisory_unlock_all()::text", 0, NULL);
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
		uv_poll_start(p->poll, UV_READABLE | UV_WRITABLE, p->on_ready); /* from the loop */
	return 0;
}

/* Something had changed: from its beginning. */
static void postgresql_again(struct postgresql *p)
{
	replay_end(p->first->run);
	p->first->run = NULL;
	p->first->tries++;
	postgresql_next(p);
}

/* ---- answers ---- */

/* The first row says of which memory the others are, and when that was. */
static bool postgresql_on_moment(struct postgresql *p, const PGresult *result)
{
	struct postgresql_query *pq = p->first;
	char was[sizeof(pq->was)], known[sizeof(p->identity)];

	if (PQntuples(result) == 0 || PQgetlength(result, 0, 1) != 0) {
		store_reject(p->store, "its table dflock.about has not one row: stop all hosts, and make it anew");
		return false;
	}
	snprintf(was, sizeof(was), "%s", PQgetvalue(result, 0, 2));
	if (!*pq->was)
		strcpy(pq->was, was);
	strcpy(known, p->identity);
	postgresql_remember(p, was);
	/* Of its table the number, which has 8 digits: the channels of a schema that was made anew have other names. */
	if (strncmp(known, p->identity, strlen(p->system) + 8) != 0) {
		store_fail(p->store, "its schema was made anew");
		return false;
	}
	strcpy(pq->run->identity, p->identity);
	pq->run->now_us = postgresql_number(result, 0, 3);
	return true;
}

/* NULL: it is no text, as a field of a whole hash may be that somebody else has written. */
static const char *postgresql_text(const PGresult *result, int row, int column)
{
	const char *text = PQgetvalue(result, row, column);

	return strlen(text) == (size_t)PQgetlength(result, row, column) ? text : NULL;
}

static void postgresql_on_loaded(struct postgresql *p, const PGresult *result)
{
	struct replay_run *run = p->first->run;

	if (!postgresql_on_moment(p, result))
		return;
	for (int row = 1; row < PQntuples(result); row++) {
		const char *key = postgresql_text(result, row, 0), *name = postgresql_text(result, row, 1);
		const char *value = PQgetisnull(result, row, 2) ? NULL : PQgetvalue(result, row, 2);

		if (key && name)
			replay_put(run, key, name, value, (size_t)PQgetlength(result, row, 2),
				   (uint64_t)postgresql_number(result, row, 3));
	}
	for (struct replay_cell *w = run->wanted; w; w = w->next_wanted)
		replay_put(run, w->key, w->name, NULL, 0, 0);
	for (struct replay_cell *w = run->wanted; w; w = w->next_wanted)
		if (postgresql_is_fence(w) && w->value && postgresql_takes_fence(&p->first->q))
			p->first->fence = strtoull(w->value, NULL, 10) + 1;
	postgresql_run(p);
}

static void postgresql_on_applied(struct postgresql *p, const PGresult *result)
{
	if (p->lost) {
		store_fail(p->store, "a wait for a standby was cancelled: what was committed may not be kept");
	} else if (PQntuples(result) == 1 && !PQgetisnull(result, 0, 0)) {
		store_see_number(p->store, (uint64_t)postgresql_number(result, 0, 0)); /* of the transaction */
		postgresql_answer(p);
	} else {
		postgresql_again(p);
	}
}

static void postgresql_connected(struct postgresql *p)
{
	uv_timer_stop(&p->store->retry);
	p->turn--; /* it served: the next attempt begins with it */
	p->store->news->connected(p->store);
}

/* Of another transaction, or of a lock that did not come: it was rolled back. */
static bool postgresql_goes_on(struct postgresql *p, enum postgresql_step step, const char *code)
{
	bool waited = strcmp(code, "55P03") == 0;

	if (step == STEP_LOOK && (waited || strcmp(code, "57014") == 0)) { /* cleaning takes too long */
		postgresql_next(p);
		return true;
	}
	if ((step != STEP_LOAD && step != STEP_APPLY) || (!waited && strncmp(code, "40", 2) != 0))
		return false;
	postgresql_again(p); /* a second try that waited for another lock has load()'s: `alone` stays */
	return true;
}

static void postgresql_on_result(struct postgresql *p, const PGresult *result)
{
	enum postgresql_step step = p->step;
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	p->step = STEP_NONE;
	if (step != STEP_LOAD && step != STEP_APPLY) /* else the query goes on */
		uv_timer_stop(&p->limit);
	if (PQresultStatus(result) != PGRES_TUPLES_OK) {
		if (!code || !postgresql_goes_on(p, step, code))
			postgresql_explain(p, result);
	} else if (step == STEP_LOAD) {
		postgresql_on_loaded(p, result);
	} else if (step == STEP_APPLY) {
		postgresql_on_applied(p, result);
	} else if (step == STEP_LOOK || step == STEP_UNLOCK) {
		postgresql_next(p);
	} else if (postgresql_greeted(p, step, result)) {
		postgresql_connected(p);
	}
}

/* Of several statements the last one's answer counts, or the first error. */
static void postgresql_read(struct postgresql *p)
{
	while (p->conn && p->step != STEP_NONE && !PQisBusy(p->conn)) {
		PGresult *result = PQgetResult(p->conn), *all = p->result;

		if (!result && !all)
			break;
		if (!result) {
			p->result = NULL;
			postgresql_on_result(p, all);
			PQclear(all);
		} else if (all && PQresultStatus(all) == PGRES_FATAL_ERROR) {
			PQclear(result);
		} else {
			PQclear(all);
			p->result = result;
		}
	}
}

/* ---- messages ---- */

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void postgresql_hear(struct postgresql *p, const char *hex)
{
	char text[MESSAGE_BYTES];
	size_t len = strlen(hex) / 2;

	if (len >= sizeof(text))
		return;
	for (size_t i = 0; i < len; i++) {
		int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return;
		text[i] = (char)(high << 4 | low);
	}
	text[len] = '\0';
	p->store->news->message(p->store, text, len);
}

static void postgresql_on_ready(uv_poll_t *poll, int status, int events)
{
	struct postgresql *p = poll->data;
	int left = PQflush(p->conn);
	PGnotify *n;

	(void)events;
	if (status < 0 || left < 0 || !PQconsumeInput(p->conn)) {
		postgresql_fail(p, false, "the connection broke", PQerrorMessage(p->conn));
		return;
	}
	uv_poll_start(poll, UV_READABLE | (left ? UV_WRITABLE : 0), postgresql_on_ready);
	if (p->step == STEP_NONE)
		postgresql_next(p);
	postgresql_read(p);
	while (p->conn && (n = PQnotifies(p->conn))) {
		postgresql_hear(p, n->extra);
		PQfreemem(n);
	}
}

static void postgresql_on_notice(void *arg, const PGresult *result)
{
	struct postgresql *p = arg;
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	/* "canceling wait for synchronous replication" */
	p->lost = p->lost || (p->step == STEP_APPLY && code && strncmp(code, "01", 2) == 0);
}

/* ---- life ---- */

static void postgresql_on_attempt(struct postgresql *p, const char *error)
{
	if (error) {
		postgresql_fail(p, false, "cannot connect", error);
		return;
	}
	p->lost = p->look = false;
	PQsetNoticeReceiver(p->conn, postgresql_on_notice, p);
	PQsetnonblocking(p->conn, 1);
	p->poll = store_need(calloc(1, sizeof(*p->poll)));
	uv_poll_init(p->store->loop, p->poll, PQsocket(p->conn));
	p->poll->data = p;
	p->on_ready = postgresql_on_ready;
	postgresql_greet(p);
}

static void postgresql_on_connect_limit(uv_timer_t *timer)
{
	struct store *s = timer->data;

	store_fail(s, "no connection within %" PRId64 " ms", s->config->connect_ms);
}

static void postgresql_connect(struct store *s)
{
	uv_timer_start(&s->retry, postgresql_on_connect_limit, (uint64_t)s->config->connect_ms, 0);
	postgresql_attempt(postgresql_of(s), postgresql_on_attempt);
}

static void postgresql_on_poll_closed(uv_handle_t *handle)
{
	free(handle);
}

static void postgresql_close(struct store *s)
{
	struct postgresql *p = postgresql_of(s);
	PGconn *conn = p->conn;

	postgresql_give_up(p);
	p->conn = NULL;
	p->step = STEP_NONE;
	PQclear(p->result);
	p->result = NULL;
	uv_timer_stop(&p->limit);
	if (p->poll) {
		uv_poll_stop(p->poll);
		uv_close((uv_handle_t *)p->poll, postgresql_on_poll_closed);
		p->poll = NULL;
	}
	PQfinish(conn);
	while (p->first) {
		struct postgresql_query *pq = postgresql_take(p);

		if (pq->run)
			replay_end(pq->run);
		query_end(&pq->q, STORE_UNREACHABLE, s->error);
	}
}

static void postgresql_up(struct store *s)
{
	(void)s;
}

/* A server that does not answer this any more counts as broken; and rows are cleaned now and then. */
static void postgresql_check(struct store *s)
{
	struct postgresql *p = postgresql_of(s);

	p->look = true;
	postgresql_next(p);
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
	struct postgresql *p = handle->data;

	p->store = NULL;
	if (!p->left) /* else the last attempt frees it */
		free(p);
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
	.check = postgresql_check,
	.free = postgresql_free,
	.ask = postgresql_ask,
};
