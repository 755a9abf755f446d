/* The calls of store.h that are one query to the store; walk.c has the calls that visit every lock. */
#include "store/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is asked ---- */

static bool is_key(const char *key, const struct store_range *range)
{
	return word_is_key(key) && range->mode == WIRE_EXCLUSIVE && range->from == 0 && range->to == INT64_MAX;
}

static const char *bad_acquire(const struct store *s, const struct store_acquire *a)
{
	const char *bad = query_bad_lock(a->name, a->token);

	if (bad)
		return bad;
	if (!word_is_host(s->host))
		return "the host's id is empty, too long or has blanks";
	if (!word_is_file(a->file))
		return "the file is empty, too long or has blanks";
	if ((unsigned)a->range.space >= WIRE_SPACES || (unsigned)a->range.mode >= WIRE_MODES || a->range.from < 0 ||
	    a->range.from >= a->range.to)
		return "the range is empty or negative";
	if (a->rest_ms < 0 ||
	    (a->rest_ms > 0 && (a->range.mode != WIRE_EXCLUSIVE || a->range.from != 0 || a->range.to != INT64_MAX)))
		return "only an exclusive lock of the whole range can begin a rest";
	if (a->key && !is_key(a->key, &a->range))
		return "only an exclusive lock of the whole range can be the lock of a key, whose format must be known";
	return NULL;
}

/* ---- what was answered ---- */

static void on_verdict(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = q->store;
	struct store_reply answer = {.status = status, .error = error};

	if (reply && reply_parse(reply, q->may, &answer) != 0) {
		answer = (struct store_reply){.status = STORE_UNREACHABLE};
		answer.error = query_nonsense(q);
	}
	if (q->script == SCRIPT_ACQUIRE && answer.status < STORE_UNREACHABLE && answer.status != STORE_INCARNATION)
		s->record.grace = answer.status == STORE_GRACE;
	if (answer.status == STORE_INCARNATION)
		store_reread_record(s);
	else if (q->seat && answer.status < STORE_UNREACHABLE && answer.status != STORE_GIVEN_UP)
		query_sat(q);
	store_see_fence(s, answer.fence);
	q->cb.reply(q->arg, &answer);
}

/* bad NULL: it is sent. Else nothing is; the caller gets STORE_ERROR with this text. */
static void ask_script(struct query *q, const char *bad, store_reply_cb *cb)
{
	q->cb.reply = cb;
	if (bad)
		query_refuse(q, on_verdict, STORE_ERROR, bad);
	else
		query_send(q, on_verdict);
}

/* Space, mode, from, to. */
static void add_range(struct query *q, const struct store_range *range)
{
	query_words(q, word_space[range->space], word_mode[range->mode], NULL);
	query_add(q, WORD_OFFSET, range->from);
	query_add(q, WORD_OFFSET, range->to);
}

/* ---- leases ---- */

static void add_acquire(struct query *q, const struct store_acquire *a)
{
	query_words(q, q->store->host, a->file, a->token, NULL);
	add_range(q, &a->range);
	query_words(q,
		    !a->ask     ? "0"
		    : a->insist ? "2"
				: "1",
		    a->pass ? "1" : "0", a->beat ? "1" : "0", a->grow ? "1" : "0", NULL);
	query_add(q, "%" PRId64, a->rest_ms);
	query_words(q, a->job ? a->job : "", a->key ? a->key : "", NULL);
	for (size_t i = 0; i < a->dead_count && i < STORE_MAX_BLOCKERS; i++) {
		query_word(q, a->dead[i].host);
		query_add(q, "%" PRIu64, a->dead[i].beat);
	}
}

void store_acquire(struct store *s, const struct store_acquire *a, store_reply_cb *cb, void *arg)
{
	struct query *q = query_script(s, SCRIPT_ACQUIRE, a->name, arg);
	const char *bad = bad_acquire(s, a);

	if (!bad)
		add_acquire(q, a);
	ask_script(q, bad, cb);
}

static struct query *ask_release(struct store *s, const char *name, const char *token, bool unused, void *arg)
{
	struct query *q = query_script(s, SCRIPT_RELEASE, name, arg);

	query_words(q, token, unused ? "1" : "0", s->host, NULL);
	return q;
}

void store_release(struct store *s, const char *name, const char *token, bool unused, store_reply_cb *cb, void *arg)
{
	ask_script(ask_release(s, name, token, unused, arg), query_bad_lock(name, token), cb);
}

struct store_shot {
	struct store *store;
	struct query *q;
	void *shot; /* the engine's */
	bool sent;
};

struct store_shot *store_prepare_release(struct store *s, const char *name, const char *token, bool unused,
					 store_reply_cb *cb, void *arg)
{
	struct store_shot *shot;

	if (s->state != STORE_UP || !s->engine->prepare || query_bad_lock(name, token))
		return NULL;
	struct query *q = ask_release(s, name, token, unused, arg);
	q->cb.reply = cb;
	q->done = on_verdict;
	void *prepared = s->engine->prepare(q);
	if (!prepared) {
		query_free(q);
		return NULL;
	}
	shot = store_need(calloc(1, sizeof(*shot)));
	*shot = (struct store_shot){.store = s, .q = q, .shot = prepared};
	return shot;
}

bool store_shot_fire(struct store_shot *shot)
{
	shot->q->sent_ns = uv_hrtime();
	shot->sent = shot->store->engine->fire(shot->store, shot->shot);
	return shot->sent;
}

void store_shot_free(struct store_shot *shot)
{
	if (shot->sent)
		shot->store->counts.asked[SCRIPT_RELEASE]++;
	else
		query_free(shot->q);
	shot->store->engine->drop(shot->shot);
	free(shot);
}

void store_end_rest(struct store *s, const char *name, enum wire_space space, uint64_t limit, store_reply_cb *cb,
		    void *arg)
{
	struct query *q = query_script(s, SCRIPT_REST, name, arg);

	query_word(q, word_space[space == WIRE_RECORD]);
	query_add(q, "%" PRIu64, limit);
	ask_script(q, query_bad_name(name), cb);
}

void store_shrink(struct store *s, const char *name, const char *token, store_reply_cb *cb, void *arg)
{
	struct query *q = query_script(s, SCRIPT_SHRINK, name, arg);

	query_word(q, token);
	ask_script(q, query_bad_lock(name, token), cb);
}

static struct query *ask_whether(struct store *s, enum script_id script, const char *name, const char *token,
				 uint64_t fence, void *arg)
{
	struct query *q = query_script(s, script, name, arg);

	query_words(q, s->host, token, NULL);
	query_add(q, "%" PRIu64, fence);
	return q;
}

void store_confirm(struct store *s, const char *name, const char *token, uint64_t fence, store_reply_cb *cb, void *arg)
{
	ask_script(ask_whether(s, SCRIPT_CONFIRM, name, token, fence, arg), query_bad_lock(name, token), cb);
}

void store_reclaim(struct store *s, const char *name, const char *file, const char *token, uint64_t fence,
		   const struct store_range *range, const char *key, store_reply_cb *cb, void *arg)
{
	struct query *q = ask_whether(s, SCRIPT_RECLAIM, name, token, fence, arg);

	query_word(q, file);
	add_range(q, range);
	query_word(q, key ? key : "");
	ask_script(q, query_bad_lock(name, token), cb);
}

/* ---- this host ---- */

static void on_beat_answer(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store_reply answer = {.status = STORE_OK};
	struct store_key_news *keys;

	if (reply_is(reply, "TWICE")) {
		q->cb.reply(q->arg, &(struct store_reply){.status = STORE_UNREACHABLE});
		query_twice(q);
		return;
	}
	if (!reply_is(reply, "KEYS")) {
		on_verdict(q, reply, status, error);
		return;
	}
	if (reply_parse_keys(reply, &keys, &answer.key_count) != 0) {
		answer.status = STORE_UNREACHABLE;
		answer.error = query_nonsense(q);
	}
	query_sat(q);
	answer.keys = keys;
	q->cb.reply(q->arg, &answer);
	free(keys);
}

void store_beat(struct store *s, uint64_t mark, size_t keyed, store_reply_cb *cb, void *arg)
{
	struct query *q = query_script(s, SCRIPT_BEAT, NULL, arg);

	query_word(q, s->host);
	query_add(q, "%" PRIu64, mark);
	query_add(q, "%zu", keyed);
	query_seat(q);
	q->cb.reply = cb;
	query_send(q, on_beat_answer);
}

static void on_write_tried(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	(void)reply;
	q->cb.reply(q->arg, &(struct store_reply){.status = status, .error = error});
}

/* Writes nothing at the beginning of a key that does not exist. The key still does not exist afterwards, but this counts as a
 * write. */
void store_try_write(struct store *s, store_reply_cb *cb, void *arg)
{
	struct query *q = query_command(s, "SETRANGE", arg);

	if (s->engine->look)
		s->engine->look(s);
	query_add(q, "%stry", s->keys);
	query_words(q, "0", "", NULL);
	q->cb.reply = cb;
	query_send(q, on_write_tried);
}

void store_leave(struct store *s, store_reply_cb *cb, void *arg)
{
	struct query *q = query_script(s, SCRIPT_LEAVE, NULL, arg);

	query_words(q, s->host, "", NULL); /* with any beat */
	ask_script(q, NULL, cb);
}

/* ---- keys of clients ---- */

void store_watch_key(struct store *s, const char *key)
{
	if (s->engine->watch)
		s->engine->watch(s, key);
}

void store_unwatch_key(struct store *s, const char *key)
{
	if (s->engine->unwatch)
		s->engine->unwatch(s, key);
}

/* ---- all hosts ---- */

static void on_hosts_answer(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store_blocker *hosts = NULL;
	size_t count = 0;

	(void)error;
	if (reply && reply_parse_hosts(reply, &hosts, &count) != 0) {
		query_nonsense(q);
		status = STORE_UNREACHABLE;
	}
	q->cb.hosts(q->arg, status, hosts, count);
	free(hosts);
}

void store_hosts(struct store *s, store_hosts_cb *cb, void *arg)
{
	struct query *q = query_script(s, SCRIPT_HOSTS, NULL, arg);

	q->cb.hosts = cb;
	query_send(q, on_hosts_answer);
}

/* ---- one lock ---- */

static void on_entries_answer(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store_entry *entries = NULL;
	struct store_aside aside = {.rest_ms = {0}};
	size_t count = 0;

	(void)error;
	if (reply && reply_parse_entries(reply, &entries, &count, &aside) != 0) {
		query_nonsense(q);
		status = STORE_UNREACHABLE;
	}
	q->cb.entries(q->arg, status, entries, count, &aside);
	free(entries);
}

void store_entries(struct store *s, const char *name, const char *key, store_entries_cb *cb, void *arg)
{
	struct query *q = query_script(s, SCRIPT_DUMP, name, arg);

	query_word(q, key ? key : "");
	q->cb.entries = cb;
	query_send(q, on_entries_answer);
}

/* ---- messages to hosts ---- */

static void on_published(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = q->store;

	(void)reply;
	if (status == STORE_ERROR && s->callbacks.on_note)
		s->callbacks.on_note(s->arg, error);
}

void store_tell(struct store *s, const char *host, const struct store_message *message)
{
	struct store_message m = *message;
	char text[MESSAGE_BYTES];
	struct query *q;

	strcpy(m.asker, s->host);
	strcpy(m.holder, s->host);
	if (s->state != STORE_UP || !word_is_host(host) || message_format(text, &m) != 0)
		return;
	q = query_command(s, "PUBLISH", NULL);
	query_add(q, "%s" STORE_HOST "%s", s->keys, host);
	query_word(q, text);
	query_send(q, on_published);
}

/* ---- grace ---- */

static void on_opened(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = q->store;
	struct store_reply answer = {.status = status, .error = error};
	struct reply_record record;
	char line[REPLY_LINE_BYTES];

	if (reply_is(reply, "KNOWN") && reply_text(reply, 1)) { /* what the store knows of an earlier memory */
		answer.status = STORE_ERROR;
		answer.error = reply_text(reply, 1);
		q->cb.reply(q->arg, &answer);
		return;
	}
	if (reply && reply_parse_record(reply, &record) != 0) {
		on_verdict(q, reply, status, error); /* INC, or nonsense */
		return;
	}
	if (reply && record.refused_ttl) {
		store_explain_ttl(s, &record, line);
		answer.status = STORE_ERROR;
		answer.error = line;
	} else if (reply) {
		store_set_record(s, &record);
	}
	q->cb.reply(q->arg, &answer);
}

static void on_may_open(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	if (reply_is(reply, "MAY"))
		q->cb.reply(q->arg, &(struct store_reply){.status = STORE_OK});
	else
		on_opened(q, reply, status, error);
}

void store_open(struct store *s, enum store_open how, const char *earlier, store_reply_cb *cb, void *arg)
{
	const bool early = how != STORE_OPEN_WATCHED && how != STORE_OPEN_NEW;
	query_done *done = how == STORE_OPEN_MAY ? on_may_open : on_opened;
	struct query *q = query_script(s, SCRIPT_STORE, NULL, arg);

	query_word(q, store_open_words[how]);
	query_common(q);
	query_word(q, earlier);
	query_add(q, "%" PRIu64, s->record.fence);
	q->may = REPLY_MAY(STORE_INCARNATION);
	q->cb.reply = cb;
	/* The store is down because its record has another ttl_ms: this call is how the record gets this one. */
	if (early && how != STORE_OPEN_TAKEN && s->record.ttl_refused && !s->record.init)
		store_init_later(s, q, how, done);
	else if (early && s->state == STORE_SHUT)
		query_send_early(q, done);
	else
		query_send(q, done);
}
