/* The calls of store.h that are one question to the store; walk.c has those that visit every lock. */
#include "store/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is asked ---- */

/* NULL: fine. Else what is wrong with it: what the store would make of such words is anybody's guess. */
static const char *bad_lock(const char *name, const char *token)
{
	if (!*name || strlen(name) >= LOCK_NAME_BYTES)
		return "the lock name is empty or too long";
	if (!reply_is_token(token))
		return "the token is not 32 lower-case hex digits";
	return NULL;
}

static const char *bad_acquire(const struct store *s, const struct store_acquire *a)
{
	const char *bad = bad_lock(a->name, a->token);

	if (bad)
		return bad;
	if (!reply_is_host(s->host))
		return "the host's id is empty, too long or has blanks";
	if (!reply_is_file(a->file))
		return "the file is empty, too long or has blanks";
	if ((unsigned)a->range.space >= WIRE_SPACES || (unsigned)a->range.mode >= WIRE_MODES || a->range.from < 0 ||
	    a->range.from >= a->range.to)
		return "the range is empty or negative";
	return NULL;
}

/* ---- what was answered ---- */

static void on_verdict(struct request *r, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = r->store;
	struct store_reply answer = {.status = status, .error = error};

	if (reply && reply_parse(reply, r->may, &answer) != 0) {
		answer = (struct store_reply){.status = STORE_UNREACHABLE};
		answer.error = request_nonsense(r);
	}
	if (r->script == SCRIPT_ACQUIRE && answer.status < STORE_UNREACHABLE && answer.status != STORE_INCARNATION)
		s->grace = answer.status == STORE_GRACE;
	if (answer.status == STORE_INCARNATION)
		store_reread_record(s);
	r->cb.reply(r->arg, &answer);
}

static void ask(struct request *r, unsigned may, store_reply_cb *cb, void *arg)
{
	r->may = may | REPLY_MAY(STORE_OK) | REPLY_MAY(STORE_INCARNATION);
	r->cb.reply = cb;
	r->arg = arg;
	request_send(r, on_verdict);
}

/* Not asked at all, because of what is `bad` with it. */
static void refuse(struct request *r, const char *bad, store_reply_cb *cb, void *arg)
{
	r->cb.reply = cb;
	r->arg = arg;
	request_refuse(r, on_verdict, STORE_ERROR, bad);
}

/* ---- leases ---- */

void store_acquire(struct store *s, const struct store_acquire *a, store_reply_cb *cb, void *arg)
{
	struct request *r = request_script(s, SCRIPT_ACQUIRE, a->name);
	const char *bad = bad_acquire(s, a);

	if (bad) {
		refuse(r, bad, cb, arg);
		return;
	}
	request_word(r, s->host);
	request_word(r, a->file);
	request_word(r, a->token);
	request_word(r, reply_space_word[a->range.space]);
	request_word(r, reply_mode_word[a->range.mode]);
	request_add(r, REPLY_OFFSET, a->range.from);
	request_add(r, REPLY_OFFSET, a->range.to);
	request_word(r, a->ask ? "1" : "0");
	request_word(r, a->pass ? "1" : "0");
	request_word(r, a->beat ? "1" : "0");
	request_word(r, a->grow ? "1" : "0");
	for (size_t i = 0; i < a->dead_count && i < STORE_MAX_BLOCKERS; i++) {
		request_word(r, a->dead[i].host);
		request_add(r, "%" PRIu64, a->dead[i].beat);
	}
	ask(r, REPLY_MAY(STORE_WAIT) | REPLY_MAY(STORE_BUSY) | REPLY_MAY(STORE_GRACE) | REPLY_MAY(STORE_LIMIT), cb,
	    arg);
}

/* release, shrink, confirm: their scripts take the token, or the host before it and the fence behind it. */
static void ask_about(struct store *s, enum script_id script, const char *name, const char *token,
		      const uint64_t *fence, store_reply_cb *cb, void *arg)
{
	struct request *r = request_script(s, script, name);
	const char *bad = bad_lock(name, token);

	if (bad) {
		refuse(r, bad, cb, arg);
		return;
	}
	if (fence)
		request_word(r, s->host);
	request_word(r, token);
	if (fence)
		request_add(r, "%" PRIu64, *fence);
	ask(r, script == SCRIPT_RELEASE ? 0 : REPLY_MAY(STORE_GONE), cb, arg);
}

void store_release(struct store *s, const char *name, const char *token, store_reply_cb *cb, void *arg)
{
	ask_about(s, SCRIPT_RELEASE, name, token, NULL, cb, arg);
}

void store_shrink(struct store *s, const char *name, const char *token, store_reply_cb *cb, void *arg)
{
	ask_about(s, SCRIPT_SHRINK, name, token, NULL, cb, arg);
}

void store_confirm(struct store *s, const char *name, const char *token, uint64_t fence, store_reply_cb *cb, void *arg)
{
	ask_about(s, SCRIPT_CONFIRM, name, token, &fence, cb, arg);
}

void store_reclaim(struct store *s, const char *name, const char *file, const char *token, uint64_t fence,
		   const struct store_range *range, store_reply_cb *cb, void *arg)
{
	struct request *r = request_script(s, SCRIPT_RECLAIM, name);
	const char *bad = bad_lock(name, token);

	if (bad) {
		refuse(r, bad, cb, arg);
		return;
	}
	request_word(r, s->host);
	request_word(r, token);
	request_add(r, "%" PRIu64, fence);
	request_word(r, file);
	request_word(r, reply_space_word[range->space]);
	request_word(r, reply_mode_word[range->mode]);
	request_add(r, REPLY_OFFSET, range->from);
	request_add(r, REPLY_OFFSET, range->to);
	ask(r, REPLY_MAY(STORE_GONE), cb, arg);
}

static void on_told(struct request *r, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = r->store;

	(void)reply;
	if (status == STORE_ERROR && s->callbacks.on_note)
		s->callbacks.on_note(s->arg, error);
}

static void publish(struct store *s, const char *host, const char *message)
{
	struct request *r = request_command(s, "PUBLISH");

	request_add(r, STORE_KEYS "host:%s", host);
	request_word(r, message);
	request_send(r, on_told);
}

void store_tell_in_use(struct store *s, const char *host, const char *name, const char *asker_token,
		       const struct store_range *in_use)
{
	char message[REPLY_MESSAGE_BYTES];

	if (s->state != STORE_UP || bad_lock(name, asker_token) || !reply_is_host(host) ||
	    reply_format_in_use(message, s->host, name, asker_token, in_use) != 0)
		return; /* the asker's own limit ends its question */
	publish(s, host, message);
}

void store_tell_chase(struct store *s, const char *host, const struct store_chase *chase)
{
	char message[REPLY_MESSAGE_BYTES];

	if (s->state == STORE_UP && reply_is_host(host) && reply_format_chase(message, chase) == 0)
		publish(s, host, message);
}

/* ---- this host ---- */

void store_beat(struct store *s, store_reply_cb *cb, void *arg)
{
	struct request *r = request_script(s, SCRIPT_BEAT, NULL);

	request_word(r, s->host);
	ask(r, 0, cb, arg);
}

static void on_tried(struct request *r, const redisReply *reply, enum store_status status, const char *error)
{
	(void)reply;
	r->cb.reply(r->arg, &(struct store_reply){.status = status, .error = error});
}

/* Nothing put at the beginning of a key that does not exist: it stays so, but Redis takes it for a write. */
void store_try_write(struct store *s, store_reply_cb *cb, void *arg)
{
	struct request *r = request_command(s, "SETRANGE");

	request_word(r, STORE_KEYS "try");
	request_word(r, "0");
	request_word(r, "");
	r->cb.reply = cb;
	r->arg = arg;
	request_send(r, on_tried);
}

void store_leave(struct store *s, store_reply_cb *cb, void *arg)
{
	struct request *r = request_script(s, SCRIPT_LEAVE, NULL);

	request_word(r, s->host);
	request_word(r, ""); /* whatever its beat is */
	ask(r, 0, cb, arg);
}

/* ---- all hosts ---- */

static void on_hosts(struct request *r, const redisReply *reply, enum store_status status, const char *error)
{
	struct store_blocker *hosts = NULL;
	size_t count = 0;

	(void)error;
	if (reply && reply_parse_hosts(reply, &hosts, &count) != 0) {
		request_nonsense(r);
		status = STORE_UNREACHABLE;
	}
	r->cb.hosts(r->arg, status, hosts, count);
	free(hosts);
}

void store_hosts(struct store *s, store_hosts_cb *cb, void *arg)
{
	struct request *r = request_script(s, SCRIPT_HOSTS, NULL);

	r->cb.hosts = cb;
	r->arg = arg;
	request_send(r, on_hosts);
}

/* ---- grace ---- */

/* The answer KNOWN: what the store knows of an earlier memory. NULL: it is another answer. */
static const char *known_text(const redisReply *reply)
{
	if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_STRING ||
	    strcmp(reply->element[0]->str, "KNOWN") != 0)
		return NULL;
	return reply->element[1]->str;
}

static void on_opened(struct request *r, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = r->store;
	struct store_reply answer = {.status = status, .error = error};
	struct reply_record record;
	char line[REPLY_LINE_BYTES];

	if (known_text(reply)) {
		answer.status = STORE_ERROR;
		answer.error = known_text(reply);
		r->cb.reply(r->arg, &answer);
		return;
	}
	if (reply && reply_parse_record(reply, &record) != 0) {
		on_verdict(r, reply, status, error); /* INC, or nonsense */
		return;
	}
	if (reply && record.refused_ttl) {
		store_explain_ttl(s, record.ttl_ms, line);
		answer.status = STORE_ERROR;
		answer.error = line;
	} else if (reply) {
		store_set_record(s, &record);
	}
	r->cb.reply(r->arg, &answer);
}

void store_open(struct store *s, enum store_open how, const char *earlier, store_reply_cb *cb, void *arg)
{
	static const char *const words[] = {
		[STORE_OPEN_WATCHED] = "open", [STORE_OPEN_NEW] = "new", [STORE_OPEN_FORCED] = "init"};
	struct request *r = request_script(s, SCRIPT_STORE, NULL);

	request_word(r, words[how]);
	request_add(r, "%" PRId64, s->ttl_ms);
	request_word(r, earlier);
	r->may = REPLY_MAY(STORE_INCARNATION);
	r->cb.reply = cb;
	r->arg = arg;
	/* A store that is down because its record has another ttl_ms: this is how it gets another one. */
	if (how == STORE_OPEN_FORCED && s->ttl_refused && !s->init)
		store_init_later(s, r, on_opened);
	else
		request_send(r, on_opened);
}
