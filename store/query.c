/* See internal.h. */
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

static bool store_comes_before(const struct addrinfo *a, const struct addrinfo *b)
{
	return a->ai_addrlen != b->ai_addrlen ? a->ai_addrlen < b->ai_addrlen
					      : memcmp(a->ai_addr, b->ai_addr, a->ai_addrlen) < 0;
}

/* The next one after `from`; NULL: the first of all. NULL: there is none. */
static const struct addrinfo *store_next_address(const struct addrinfo *list, const struct addrinfo *from)
{
	const struct addrinfo *next = NULL;

	for (const struct addrinfo *a = list; a; a = a->ai_next)
		if ((!from || store_comes_before(from, a)) && (!next || store_comes_before(a, next)))
			next = a;
	return next;
}

const struct addrinfo *store_address(const struct addrinfo *list, unsigned attempt)
{
	const struct addrinfo *a = NULL;
	unsigned count = 0;

	if (!attempt)
		return list;
	while ((a = store_next_address(list, a)))
		count++;
	for (unsigned i = 0; i <= attempt % count; i++)
		a = store_next_address(list, a);
	return a;
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

static void query_take_word(struct query *q, char *text)
{
	if (q->argc == QUERY_ARGS)
		abort();
	q->argv[q->argc++] = store_need(text);
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
	struct query *q = store_need(calloc(1, s->engine->query_bytes));

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
	q->may = scripts[script].may | REPLY_MAY(STORE_OK) | REPLY_MAY(STORE_INCARNATION);
	query_add(q, "%sstore", s->keys);
	query_add(q, "%shosts", s->keys);
	if (name) {
		query_add(q, "%s" STORE_LOCK "%s", s->keys, name);
		for (int space = 0; space < WIRE_SPACES; space++)
			query_add(q, "%s" STORE_REST "%s:%s", s->keys, word_space[space], name);
	}
	q->keys = q->argc;
	query_word(q, s->record.incarnation);
	return q;
}

void query_common(struct query *q)
{
	const struct store *s = q->store;

	if (s->config->shards > 1)
		query_add(q, "%" PRId64 "/%u", s->ttl_ms, s->config->shards);
	else
		query_add(q, "%" PRId64, s->ttl_ms);
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

/* The time ends when the answer binds. */
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
	free(q);
}

void query_end(struct query *q, enum store_status status, const char *error)
{
	query_count(q, status);
	q->done(q, NULL, status, error);
	query_free(q);
}

void query_answer(struct query *q, const redisReply *reply)
{
	query_count(q, STORE_OK);
	q->done(q, reply, STORE_OK, NULL);
	query_free(q);
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

/* ---- sending ---- */

static void query_clear(struct query_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

void query_init(struct store *s)
{
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
	int ret = q->store->engine->ask(q);
	if (ret) {
		query_refuse(q, done, STORE_UNREACHABLE, uv_strerror(ret));
		return;
	}
	q->sent_ns = uv_hrtime();
	q->store->counts.asked[q->script < 0 ? SCRIPTS : q->script]++;
}

void query_send(struct query *q, query_done *done)
{
	if (q->store->state == STORE_UP)
		query_send_early(q, done);
	else
		query_refuse(q, done, STORE_UNREACHABLE, q->store->error);
}
