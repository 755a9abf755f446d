/* The life of a store: up and down, the incarnation record, messages. It hears from the files below it through struct
 * store_news. */
#include "store/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 2000

/* ---- down ---- */

/* Ends the forced opening that waited for a connection, if there is one. */
static void store_end_init(struct store *s, enum store_status status, const char *error)
{
	struct query *init = s->record.init;

	s->record.init = NULL;
	if (init)
		query_end(init, status, error);
}

static void store_on_retry(uv_timer_t *timer)
{
	struct store *s = timer->data;

	s->state = STORE_CONNECTING;
	s->engine->connect(s);
}

static void store_on_failed(struct store *s, const char *why, bool answers)
{
	if (s->state == STORE_DOWN || s->state == STORE_FREED)
		return;
	bool was_up = s->state == STORE_UP;
	s->counts.broken += was_up;
	snprintf(s->error, sizeof(s->error), "%s", why);
	s->answers = answers;
	s->state = STORE_DOWN;
	s->record.rereading = s->record.again = false;
	uv_timer_stop(&s->ping);
	uv_timer_start(&s->retry, store_on_retry, s->retry_ms, 0);
	s->retry_ms = s->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : s->retry_ms * 2;
	s->engine->close(s);
	store_end_init(s, STORE_UNREACHABLE, s->error);
	if (was_up || strcmp(s->error, s->reported) != 0) {
		strcpy(s->reported, s->error);
		s->callbacks.on_down(s->arg, s->error);
	}
}

/* ---- up ---- */

static void store_on_ping(uv_timer_t *timer)
{
	struct store *s = timer->data;

	s->engine->check(s);
}

static void store_up(struct store *s)
{
	uint64_t every_ms = s->ttl_ms < 3 ? 1 : (uint64_t)s->ttl_ms / 3;

	s->state = STORE_UP;
	s->counts.connected++;
	s->retry_ms = RETRY_MIN_MS;
	s->error[0] = s->reported[0] = '\0';
	s->noted = s->risk_unseen = false;
	s->risk[0] = '\0';
	uv_timer_start(&s->ping, store_on_ping, every_ms, every_ms);
	s->callbacks.on_up(s->arg);
	if (s->state == STORE_UP)
		s->engine->up(s);
}

/* ---- the record ---- */

void store_see_fence(struct store *s, uint64_t fence)
{
	if (fence > s->record.fence && fence < UINT64_C(1) << 52)
		s->record.fence = fence;
}

void store_set_record(struct store *s, const struct reply_record *record)
{
	char old[STORE_INC_BYTES];

	s->record.grace = !record->open;
	store_see_fence(s, record->fence);
	if (strcmp(s->record.incarnation, record->incarnation) == 0)
		return;
	strcpy(old, s->record.incarnation);
	strcpy(s->record.incarnation, record->incarnation);
	s->callbacks.on_incarnation(s->arg, old, s->record.incarnation);
}

void store_explain_ttl(const struct store *s, const struct reply_record *record, char line[REPLY_LINE_BYTES])
{
	unsigned shards = s->config->shards;

	if (*record->used_by)
		snprintf(line, REPLY_LINE_BYTES,
			 "hosts still use its %s = %" PRId64 " (%s): `dflock stop` there first, or wait %" PRId64
			 " ms if they are gone",
			 record->shards == shards ? "ttl_ms" : "shards",
			 record->shards == shards ? record->ttl_ms : (int64_t)record->shards, record->used_by,
			 record->ttl_ms);
	else if (record->shards != shards)
		snprintf(line, REPLY_LINE_BYTES,
			 "the store has shards = %u, this keeper is configured with %u: use the same number in every "
			 "configuration; dflock(1), init, says how to change it everywhere%s",
			 record->shards, shards,
			 record->shards > shards ? ". Fewer are only possible with an empty store" : "");
	else
		snprintf(
			line, REPLY_LINE_BYTES,
			"the store's leases have ttl_ms = %" PRId64 ", this keeper is configured with %" PRId64
			": use the same value in every configuration; dflock(1), init, says how to change it everywhere",
			record->ttl_ms, s->ttl_ms);
}

static void store_read_record(struct store *s);

/* It has this ttl_ms and number of shards, or not. */
static void store_on_agreed(struct store *s, bool agrees)
{
	if (s->record.again && (s->state == STORE_UP || s->state == STORE_SHUT))
		store_reread_record(s);
	else if (s->callbacks.on_record)
		s->callbacks.on_record(s->arg, agrees);
}

static void store_on_record(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store *s = q->store;
	struct reply_record record;
	char line[REPLY_LINE_BYTES];
	bool inits = s->record.init && q->arg == s->record.init;

	(void)status;
	s->record.rereading = false;
	if (s->state == STORE_DOWN || s->state == STORE_FREED)
		return;
	if (!reply) {
		store_reject(s, "%s", error);
	} else if (inits && s->record.init_how == STORE_OPEN_MAY && reply_is(reply, "MAY")) {
		store_end_init(s, STORE_OK, NULL);
		store_read_record(s);
	} else if (reply_parse_record(reply, &record) != 0) {
		query_nonsense(q);
	} else if (record.twice) {
		query_twice(q);
	} else if (s->record.init && !inits) {
		store_read_record(s);
	} else if (record.refused_ttl) {
		store_explain_ttl(s, &record, line);
		s->record.ttl_refused = true;
		store_reject(s, "%s", line);
		store_on_agreed(s, false);
	} else {
		s->record.ttl_refused = false;
		if (!inits)
			query_sat(q);
		store_set_record(s, &record);
		if (s->state == STORE_CONNECTING && s->shut)
			s->state = STORE_SHUT;
		else if (s->state == STORE_CONNECTING)
			store_up(s);
		store_end_init(s, STORE_OK, NULL);
		store_on_agreed(s, true);
	}
}

const char *const store_open_words[] = {
	[STORE_OPEN_WATCHED] = "open", [STORE_OPEN_NEW] = "new",    [STORE_OPEN_FORCED] = "init",
	[STORE_OPEN_TAKE] = "take",    [STORE_OPEN_TAKEN] = "open", [STORE_OPEN_MAY] = "may"};

static void store_read_record(struct store *s)
{
	struct query *q = query_script(s, SCRIPT_STORE, NULL, s->record.init);

	query_word(q, s->record.init ? store_open_words[s->record.init_how] : "begin");
	query_common(q);
	query_word(q, "");
	query_add(q, "%" PRIu64, s->record.fence);
	if (!s->record.init) {
		query_word(q, s->host);
		query_seat(q);
	}
	query_send_early(q, store_on_record);
}

void store_reread_record(struct store *s)
{
	s->record.again = s->record.rereading || s->state == STORE_CONNECTING;
	if ((s->state != STORE_UP && s->state != STORE_SHUT) || s->record.rereading)
		return;
	s->record.rereading = true;
	store_read_record(s);
}

void store_init_later(struct store *s, struct query *q, enum store_open how, query_done *done)
{
	q->done = done;
	s->record.init = q;
	s->record.init_how = how;
	if (s->state == STORE_DOWN)
		uv_timer_start(&s->retry, store_on_retry, 1, 0);
}

/* ---- messages ---- */

static void store_on_message(struct store *s, const char *text, size_t len)
{
	struct store_message message;

	if (s->state != STORE_UP)
		return;
	switch (message_parse(text, len, s->record.incarnation, &message)) {
	case 0:
		message.provisional = s->provisional;
		s->callbacks.on_message(s->arg, &message);
		break;
	case -ESTALE: /* a grant from before the store lost its memory: it is void */
		break;
	default:
		if (!s->noted && s->callbacks.on_note)
			s->callbacks.on_note(s->arg, "a malformed message came through the store and was ignored: is "
						     "a keeper of another version, or something else, using it?");
		s->noted = true;
	}
}

/* ---- life ---- */

static void store_on_closed(uv_handle_t *handle)
{
	struct store *s = handle->data;

	if (--s->open_handles)
		return;
	free(s);
}

struct store *store_new(uv_loop_t *loop, const struct config_store *config, int64_t ttl_ms, const char *host,
			const struct store_callbacks *callbacks, void *arg)
{
	static const struct store_news news = {
		.failed = store_on_failed, .connected = store_read_record, .message = store_on_message};
	char why[REPLY_LINE_BYTES];
	const struct engine *engine = store_engine(config, why, sizeof(why));
	struct store *s = engine ? calloc(1, sizeof(*s)) : NULL;

	if (!s)
		return NULL;
	*s = (struct store){.loop = loop,
			    .config = config,
			    .ttl_ms = ttl_ms,
			    .callbacks = *callbacks,
			    .arg = arg,
			    .news = &news,
			    .engine = engine,
			    .retry_ms = RETRY_MIN_MS,
			    .counts.took.kind = HISTOGRAM_TRIPS,
			    .record.grace = true};
	query_init(s);
	snprintf(s->host, sizeof(s->host), "%s", host);
	s->seat = s->own_seat;
	s->seen = s->own_seen;
	if (s->engine->open(s) != 0) {
		free(s);
		return NULL;
	}
	strcpy(s->error, "not connected yet");
	strcpy(s->keys, STORE_KEYS);
	uv_timer_t *timers[] = {&s->retry, &s->ping, &s->soon};
	for (size_t i = 0; i < 3; i++) {
		uv_timer_init(loop, timers[i]);
		timers[i]->data = s;
		s->open_handles++;
	}
	uv_timer_start(&s->retry, store_on_retry, 0, 0);
	return s;
}

void store_be_shard(struct store *s, unsigned shard)
{
	s->shard = shard;
	snprintf(s->keys, sizeof(s->keys), "dflock:{%u}:", shard);
	s->shut = true;
	uv_timer_stop(&s->retry);
}

void store_reach(struct store *s)
{
	if (s->state == STORE_DOWN && !uv_is_active((uv_handle_t *)&s->retry))
		uv_timer_start(&s->retry, store_on_retry, 0, 0);
}

void store_rest(struct store *s)
{
	strcpy(s->error, "not connected");
	strcpy(s->reported, s->error);
	s->state = s->state == STORE_UP ? STORE_SHUT : s->state; /* not broken */
	store_fail(s, "%s", s->error);
	uv_timer_stop(&s->retry);
	s->retry_ms = RETRY_MIN_MS;
}

void store_admit(struct store *s)
{
	s->shut = false;
	if (s->state == STORE_SHUT)
		store_up(s);
}

void store_shut(struct store *s, const char *why)
{
	s->shut = true;
	if (s->state == STORE_UP)
		store_fail(s, "%s", why);
}

void store_keep_seat(struct store *s, uint64_t seat[2])
{
	s->seat = seat;
}

void store_keep_seen(struct store *s, uint64_t seen[2])
{
	s->seen = seen;
}

void store_see_number(struct store *s, uint64_t number)
{
	if (number > s->seen[STORE_SEEN_NUMBER])
		__atomic_store_n(&s->seen[STORE_SEEN_NUMBER], number, __ATOMIC_RELEASE);
}

void store_see_memory(struct store *s, const char *memory)
{
	uint64_t hash = 14695981039346656037u;

	for (const char *c = memory; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	if (s->seen[STORE_SEEN_MEMORY] == hash)
		return;
	__atomic_store_n(&s->seen[STORE_SEEN_NUMBER], 0, __ATOMIC_RELEASE);
	__atomic_store_n(&s->seen[STORE_SEEN_MEMORY], hash, __ATOMIC_RELEASE);
}

void store_free(struct store *s)
{
	s->state = STORE_FREED;
	strcpy(s->error, "the connection was given up");
	s->engine->close(s);
	store_end_init(s, STORE_UNREACHABLE, s->error);
	while (s->refused.first) /* a callback may have added one */
		query_end_refused(s);
	s->engine->free(s);
	uv_close((uv_handle_t *)&s->retry, store_on_closed);
	uv_close((uv_handle_t *)&s->ping, store_on_closed);
	uv_close((uv_handle_t *)&s->soon, store_on_closed);
}

bool store_is_up(const struct store *s)
{
	return s->state == STORE_UP;
}

const char *store_incarnation(const struct store *s)
{
	return s->record.incarnation;
}

bool store_in_grace(const struct store *s)
{
	return s->record.grace;
}

const char *store_trouble(const struct store *s)
{
	return s->state != STORE_UP && s->answers ? "cannot be used" : "is not reachable";
}

const char *store_last_error(const struct store *s)
{
	return s->error;
}

const char *store_version(const struct store *s)
{
	return s->version;
}

const char *store_risk(const struct store *s)
{
	return s->risk_unseen ? NULL : s->risk;
}

const char *store_engine_name(const struct store *s)
{
	return s->engine->name;
}

const char *store_server(const struct store *s)
{
	return s->server;
}
