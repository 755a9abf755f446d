/* See internal.h. The way of a query: query_transmit() sends it; its reply is kept in query_on_reply(); if its answer
 * binds, the reply waits there for WAIT (acks.h); then query_take_reply() hands it to `done`. */
#include "store/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- what cannot go on ---- */

void *store_need(void *memory)
{
	if (memory)
		return memory;
	fputs("dflockd: out of memory\n", stderr);
	abort();
}

static void __attribute__((format(printf, 3, 0)))
store_tell_failed(struct store *s, bool rejected, const char *format, va_list args)
{
	char why[REPLY_LINE_BYTES];

	vsnprintf(why, sizeof(why), format, args);
	s->news->failed(s, why, rejected);
}

void store_fail(struct store *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	store_tell_failed(s, false, format, args);
	va_end(args);
}

void store_reject(struct store *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	store_tell_failed(s, true, format, args);
	va_end(args);
}

/* ---- what is asked ---- */

const char *query_bad_name(const char *name)
{
	return *name && strlen(name) < LOCK_NAME_BYTES ? NULL : "the lock name is empty or too long";
}

const char *query_bad_lock(const char *name, const char *token)
{
	const char *bad = query_bad_name(name);

	return bad || word_is_token(token) ? bad : "the token is not 32 lower-case hex digits";
}

static void query_set_word(struct query *q, int i, char *text)
{
	free(q->argv[i]);
	q->argv[i] = store_need(text);
}

static void query_take_word(struct query *q, char *text)
{
	if (q->argc == QUERY_ARGS)
		abort();
	query_set_word(q, q->argc++, text);
}

void query_word(struct query *q, const char *word)
{
	query_take_word(q, strdup(word));
}

void query_words(struct query *q, ...)
{
	const char *word;
	va_list words;

	va_start(words, q);
	while ((word = va_arg(words, const char *)))
		query_word(q, word);
	va_end(words);
}

void query_add(struct query *q, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	query_take_word(q, text);
}

static struct query *query_new(struct store *s)
{
	struct query *q = store_need(calloc(1, sizeof(*q)));

	q->store = s;
	q->script = -1;
	return q;
}

struct query *query_command(struct store *s, const char *command, void *arg)
{
	struct query *q = query_new(s);

	query_word(q, command);
	q->arg = arg;
	return q;
}

struct query *query_script(struct store *s, enum script_id script, const char *name, void *arg)
{
	struct query *q = query_new(s);

	q->arg = arg;
	q->script = (int)script;
	q->binding = scripts[script].binding && config_acknowledgements(s->config) > 0;
	q->may = scripts[script].may | REPLY_MAY(STORE_OK) | REPLY_MAY(STORE_INCARNATION);
	query_words(q, "EVALSHA", s->sha[script], scripts[script].lock ? "5" : "2", STORE_KEYS "store",
		    STORE_KEYS "hosts", NULL);
	if (name) {
		query_add(q, STORE_LOCK_KEY "%s", name);
		for (int space = 0; space < WIRE_SPACES; space++)
			query_add(q, STORE_REST_KEY "%s:%s", word_space[space], name);
	}
	query_word(q, s->record.incarnation);
	return q;
}

/* ---- the seat ---- */

/* The next seat is drawn when it is sent first, and sent until it is accepted: it is not known what an unanswered request did. */
void query_seat(struct query *q)
{
	uint64_t *seat = q->store->seat, next = __atomic_load_n(&seat[1], __ATOMIC_ACQUIRE);

	while (!next)
		if (getrandom(&next, sizeof(next), 0) != sizeof(next))
			next = uv_hrtime();
	__atomic_store_n(&seat[1], next, __ATOMIC_RELEASE);
	q->seat = next;
	query_add(q, "%016" PRIx64, seat[0]);
	query_add(q, "%016" PRIx64, next);
}

/* Of several requests with the same seat the first one counts. */
void query_sat(const struct query *q)
{
	uint64_t *seat = q->store->seat;

	if (seat[1] != q->seat)
		return;
	__atomic_store_n(&seat[0], q->seat, __ATOMIC_RELEASE);
	__atomic_store_n(&seat[1], 0, __ATOMIC_RELEASE);
}

void query_twice(const struct query *q)
{
	struct store *s = q->store;

	store_reject(s, "another keeper uses the id of this host (%s)", s->host);
	if (s->callbacks.on_twice)
		s->callbacks.on_twice(s->arg);
}

/* It was sent: with replicas the answer counts, and the time ends, when enough of them have it. */
static void query_count(struct query *q, enum store_status status)
{
	struct store_counts *counts = &q->store->counts;

	if (!q->sent_ns)
		return;
	counts->unanswered += status == STORE_UNREACHABLE;
	counts->errors += status == STORE_ERROR;
	if (status != STORE_UNREACHABLE)
		histogram_observe(&counts->took, (int64_t)(uv_hrtime() - q->sent_ns));
}

void query_free(struct query *q)
{
	for (int i = 0; i < q->argc; i++)
		free(q->argv[i]);
	freeReplyObject(q->reply);
	free(q);
}

void query_end(struct query *q, enum store_status status, const char *error)
{
	query_count(q, status);
	q->done(q, NULL, status, error);
	query_free(q);
}

/* ---- the answer ---- */

static int query_transmit(struct query *q);

/* The server has forgotten the script (SCRIPT FLUSH, a new server behind a proxy): EVAL brings it back. */
static bool query_send_whole(struct query *q)
{
	if (q->script < 0 || q->sent_whole)
		return false;
	q->sent_whole = true;
	query_set_word(q, 0, strdup("EVAL"));
	query_set_word(q, 1, script_text((enum script_id)q->script, q->store->redis7));
	return query_transmit(q) == 0;
}

/* What the error says, and what to do. */
static enum reply_error query_explain(const struct query *q, char line[REPLY_LINE_BYTES])
{
	char command[REPLY_WORD_BYTES];
	unsigned at;

	if (q->script < 0 || !reply_denied_line(q->reply->str, &at) ||
	    !script_command((enum script_id)q->script, q->store->redis7, at, command, sizeof(command)))
		return reply_explain(q->reply->str, line);
	return reply_explain_script(q->reply->str, command, line);
}

static void query_take_error(struct query *q)
{
	struct store *s = q->store;
	char line[REPLY_LINE_BYTES];

	switch (query_explain(q, line)) {
	case REPLY_ERROR_NOSCRIPT:
		if (query_send_whole(q))
			return;
		break;
	case REPLY_ERROR_UNREACHABLE:
		store_reject(s, "%s", line);
		query_end(q, STORE_UNREACHABLE, line);
		return;
	case REPLY_ERROR_HERE:
		break;
	}
	query_end(q, STORE_ERROR, line);
}

/* Frees the query, unless it is sent again. */
static void query_take_reply(struct query *q)
{
	if (q->reply->type == REDIS_REPLY_ERROR) {
		query_take_error(q);
		return;
	}
	query_count(q, STORE_OK);
	q->done(q, q->reply, STORE_OK, NULL);
	query_free(q);
}

static void query_on_reply(void *arg, const redisReply *reply)
{
	struct query *q = arg;

	if (!reply) {
		if (q->binding)
			acks_forget(&q->store->acks, &q->entry);
		query_end(q, STORE_UNREACHABLE, q->store->error);
		return;
	}
	freeReplyObject(q->reply); /* that was NOSCRIPT */
	q->reply = link_keep_reply(q->store->commands);
	if (!q->binding)
		query_take_reply(q);
}

static int query_transmit(struct query *q)
{
	struct link *link = q->store->commands; /* NULL: an earlier reply of the same read has brought the store down */
	int ret = link ? link_send(link, q->argc, (const char *const *)q->argv, query_on_reply, q) : -ENOTCONN;

	if (ret == 0 && !q->sent_ns) { /* NOSCRIPT: it is sent again, and is the same question */
		q->sent_ns = uv_hrtime();
		q->store->counts.asked[q->script < 0 ? SCRIPTS : q->script]++;
	}
	if (ret == 0 && q->binding)
		acks_await(&q->store->acks, &q->entry);
	return ret;
}

const char *query_nonsense(struct query *q)
{
	store_reject(q->store,
		     "the answer to %s is none that dflock's scripts give: is this the store of another version?",
		     q->script < 0 ? q->argv[0] : scripts[q->script].name);
	return q->store->error;
}

const struct store_counts *store_counts(const struct store *s)
{
	return &s->counts;
}

const char *store_operation_name(size_t operation)
{
	return operation < SCRIPTS ? scripts[operation].name : "other";
}

_Static_assert(STORE_OPERATIONS == SCRIPTS + 1, "one for each script, and one for all commands");

/* ---- the replicas ---- */

static void query_acknowledged(struct acks_entry *entry, bool enough)
{
	struct query *q = (struct query *)((char *)entry - offsetof(struct query, entry));

	if (enough)
		query_take_reply(q);
	else
		query_end(q, STORE_UNREACHABLE, q->store->error);
}

/* `reply` NULL: the link is being closed. The queries without a reply have had their NULL before this one. */
static void query_on_acks(void *arg, const redisReply *reply)
{
	struct store *s = arg;
	char line[REPLY_LINE_BYTES];
	bool enough = reply && acks_are_enough(s->config, reply, line);

	if (reply && !enough)
		store_reject(s, "%s", line);
	acks_answered(&s->acks, enough);
}

static void query_ask_acks(void *arg)
{
	struct store *s = arg;
	char count[16], limit[24];

	snprintf(count, sizeof(count), "%d", config_acknowledgements(s->config));
	snprintf(limit, sizeof(limit), "%lld", (long long)acks_limit_ms(s->config));
	/* The scripts have gone out, so only memory can be missing, and without this WAIT their answers would be waited
	 * for for ever. */
	if (link_send(s->commands, 3, (const char *const[]){"WAIT", count, limit}, query_on_acks, s) != 0)
		store_need(NULL);
}

/* ---- sending ---- */

static void query_clear(struct query_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

void query_init(struct store *s)
{
	static const struct acks_events events = {.ask = query_ask_acks, .acknowledged = query_acknowledged};

	acks_init(&s->acks, &events, s);
	query_clear(&s->refused);
}

void query_end_refused(struct store *s)
{
	struct query *q = s->refused.first, *next;

	query_clear(&s->refused);
	for (; q; q = next) {
		next = q->next;
		query_end(q, q->status, q->error);
	}
}

static void query_on_soon(uv_timer_t *timer)
{
	query_end_refused(timer->data);
}

void query_refuse(struct query *q, query_done *done, enum store_status status, const char *error)
{
	struct store *s = q->store;

	q->done = done;
	q->status = status;
	snprintf(q->error, sizeof(q->error), "%s", error);
	q->next = NULL;
	*s->refused.last = q;
	s->refused.last = &q->next;
	/* Not 0 ms: a caller that asks again from its callback would keep the loop in its timers. */
	if (s->state != STORE_FREED && !uv_is_active((uv_handle_t *)&s->soon))
		uv_timer_start(&s->soon, query_on_soon, 1, 0);
}

void query_send_early(struct query *q, query_done *done)
{
	q->done = done;
	int ret = query_transmit(q);
	if (ret)
		query_refuse(q, done, STORE_UNREACHABLE, uv_strerror(ret));
}

struct link_shot *query_prepare(struct query *q, query_done *done)
{
	q->done = done;
	return link_shot_new(q->argc, (const char *const *)q->argv, query_on_reply, q);
}

void query_send(struct query *q, query_done *done)
{
	if (q->store->state == STORE_UP)
		query_send_early(q, done);
	else
		query_refuse(q, done, STORE_UNREACHABLE, q->store->error);
}
