#include "store/reply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/words.h"

/* ---- pieces ---- */

const char *reply_text(const redisReply *list, size_t i)
{
	if (i >= list->elements)
		return NULL;
	const redisReply *e = list->element[i];
	if (e->type != REDIS_REPLY_STRING || strlen(e->str) != e->len)
		return NULL;
	return e->str;
}

static const char *verdict_of(const redisReply *reply)
{
	return reply && reply->type == REDIS_REPLY_ARRAY ? reply_text(reply, 0) : NULL;
}

bool reply_is(const redisReply *reply, const char *verdict)
{
	const char *said = verdict_of(reply);

	return said && strcmp(said, verdict) == 0;
}

/* Reads the words of a list from `first` on. False: one is missing, or is none of its kind. */
static bool reply_take(const redisReply *list, size_t first, const struct word_field *row, void *out)
{
	for (; row->kind; row++) {
		const char *text = reply_text(list, first++);

		if (!text || !word_take(row, text, out))
			return false;
	}
	return true;
}

#define HOST(kind, member)  WORD_FIELD(kind, struct store_blocker, member)
#define REPLY(kind, member) WORD_FIELD(kind, struct store_reply, member)
#define ENTRY(kind, member) WORD_FIELD(kind, struct store_entry, member)
#define KEY(kind, member)   WORD_FIELD(kind, struct store_key_news, member)

/* ---- answers ---- */

static int reply_parse_blockers(const redisReply *reply, struct store_reply *out)
{
	static const struct word_field arrival[] = {REPLY(WORD_NUMBER, arrival), {WORD_END, 0}},
				       rest[] = {REPLY(WORD_MS, rest_ms), {WORD_END, 0}},
				       blocker[] = {HOST(WORD_HOST, host),
						    HOST(WORD_NUMBER, beat),
						    HOST(WORD_SIGNED, age_ms),
						    HOST(WORD_WAITS, waiter),
						    {WORD_END, 0}};
	bool rests = out->status == STORE_REST;

	if (!reply_take(reply, 1, arrival, out) || (rests && !reply_take(reply, 2, rest, out)))
		return -EPROTO;
	for (size_t i = rests ? 3 : 2; i < reply->elements; i += 4)
		if (out->blocker_count == STORE_MAX_BLOCKERS ||
		    !reply_take(reply, i, blocker, &out->blockers[out->blocker_count++]))
			return -EPROTO;
	return 0;
}

static int reply_parse_grant(const redisReply *reply, struct store_reply *out)
{
	static const struct word_field grant[] = {REPLY(WORD_NUMBER, fence), REPLY(WORD_MODE, mode), {WORD_END, 0}},
				       more[] = {REPLY(WORD_FROM, from), REPLY(WORD_TO, to), {WORD_END, 0}};

	if (reply->elements == 1)
		return 0;
	if (!reply_take(reply, 1, grant, out))
		return -EPROTO;
	if (reply->elements == 3)
		return 0;
	if (reply->elements > 4)
		return reply_take(reply, 3, more, out) ? 0 : -EPROTO;
	out->key = reply_text(reply, 3);
	return out->key && word_is_key(out->key) ? 0 : -EPROTO;
}

int reply_parse(const redisReply *reply, unsigned may, struct store_reply *out)
{
	static const struct {
		const char *verdict;
		enum store_status status;
	} verdicts[] = {
		{"OK", STORE_OK},           {"WAIT", STORE_WAIT},   {"BUSY", STORE_BUSY},
		{"GONE", STORE_GONE},       {"GRACE", STORE_GRACE}, {"LIMIT", STORE_LIMIT},
		{"INC", STORE_INCARNATION}, {"REST", STORE_REST},   {"GIVENUP", STORE_GIVEN_UP},
		{"TAKEN", STORE_TAKEN},
	};
	static const struct word_field rows[STORE_ERROR][4] = {
		[STORE_GIVEN_UP] = {REPLY(WORD_NUMBER, arrival)},
		[STORE_TAKEN] = {REPLY(WORD_NUMBER, arrival), REPLY(WORD_SIGNED, taken_ms), REPLY(WORD_CLIENT, client)},
	};
	const char *verdict = verdict_of(reply);

	*out = (struct store_reply){.status = STORE_ERROR};
	for (size_t i = 0; verdict && i < sizeof(verdicts) / sizeof(*verdicts); i++) {
		if (strcmp(verdict, verdicts[i].verdict) != 0 || !(may & REPLY_MAY(verdicts[i].status)))
			continue;
		out->status = verdicts[i].status;
		if (out->status == STORE_WAIT || out->status == STORE_BUSY || out->status == STORE_REST)
			return reply_parse_blockers(reply, out);
		if (out->status == STORE_OK)
			return reply_parse_grant(reply, out);
		return reply_take(reply, 1, rows[out->status], out) ? 0 : -EPROTO;
	}
	return -EPROTO;
}

/* The rows of a list from its second element on, `words` each, as items of `size` bytes. 0, -EPROTO or -ENOMEM. */
static int reply_parse_rows(const redisReply *reply, const struct word_field *row, size_t words, size_t size,
			    void **items, size_t *count)
{
	*count = 0;
	*items = NULL;
	if (reply->elements % words != 1)
		return -EPROTO;
	*items = calloc(reply->elements / words + 1, size);
	if (!*items)
		return -ENOMEM;
	for (size_t i = 1; i < reply->elements; i += words)
		if (!reply_take(reply, i, row, (char *)*items + (*count)++ * size))
			goto bad;
	return 0;
bad:
	free(*items);
	*items = NULL;
	*count = 0;
	return -EPROTO;
}

int reply_parse_keys(const redisReply *reply, struct store_key_news **keys, size_t *count)
{
	static const struct word_field row[] = {
		KEY(WORD_KEY_STATE, state), KEY(WORD_TOKEN, token), KEY(WORD_NAME, name), {WORD_END, 0}};

	return reply_parse_rows(reply, row, 3, sizeof(**keys), (void **)keys, count);
}

bool reply_parse_common(const char *text, int64_t *ttl_ms, unsigned *shards)
{
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	char ttl[24];
	uint64_t ms, count = 1;

	if (len >= sizeof(ttl))
		return false;
	memcpy(ttl, text, len);
	ttl[len] = '\0';
	if (!word_number(ttl, &ms) || ms > INT64_MAX || (slash && !word_number(slash + 1, &count)) || count > UINT_MAX)
		return false;
	*ttl_ms = (int64_t)ms;
	*shards = (unsigned)count;
	return true;
}

int reply_parse_record(const redisReply *reply, struct reply_record *out)
{
	static const struct word_field incarnation = {WORD_INCARNATION, offsetof(struct reply_record, incarnation)},
				       fence[] = {{WORD_NUMBER, offsetof(struct reply_record, fence)}, {WORD_END, 0}};
	const char *first = verdict_of(reply) ? reply_text(reply, 1) : NULL,
		   *second = first ? reply_text(reply, 2) : NULL;

	*out = (struct reply_record){.twice = reply_is(reply, "TWICE")};
	if (out->twice)
		return 0;
	if (!first)
		return -EPROTO;
	if (reply_is(reply, "TTL")) {
		out->refused_ttl = true;
		for (size_t i = 0; second && second[i] && i < sizeof(out->used_by) - 1; i++)
			out->used_by[i] = (char)(second[i] >= ' ' && second[i] <= '~' ? second[i] : '?');
		return reply_parse_common(first, &out->ttl_ms, &out->shards) ? 0 : -EPROTO;
	}
	if (!reply_is(reply, "OK") || !word_take(&incarnation, first, out) || !second ||
	    (reply->elements > 3 && !reply_take(reply, 3, fence, out)))
		return -EPROTO;
	out->open = strcmp(second, "1") == 0;
	return 0;
}

int reply_parse_hosts(const redisReply *reply, struct store_blocker **hosts, size_t *count)
{
	static const struct word_field row[] = {
		HOST(WORD_HOST, host), HOST(WORD_NUMBER, beat), HOST(WORD_SIGNED, age_ms), {WORD_END, 0}};

	*hosts = NULL;
	*count = 0;
	return reply_is(reply, "OK") ? reply_parse_rows(reply, row, 3, sizeof(**hosts), (void **)hosts, count)
				     : -EPROTO;
}

static bool reply_parse_entry(const redisReply *list, bool waiter, struct store_entry *out)
{
	static const struct word_field row[] = {
		ENTRY(WORD_HOST, host),         ENTRY(WORD_FILE, file),       ENTRY(WORD_TOKEN, token),
		ENTRY(WORD_SPACE, range.space), ENTRY(WORD_MODE, range.mode), ENTRY(WORD_FROM, range.from),
		ENTRY(WORD_TO, range.to),       ENTRY(WORD_FENCE_ANY, fence), {WORD_END, 0}};
	const char *job;

	*out = (struct store_entry){.waiter = waiter};
	if (list->type != REDIS_REPLY_ARRAY || !reply_take(list, 0, row, out))
		return false;
	job = reply_text(list, 8);
	out->old = job && strcmp(job, "-") == 0;
	if (job)
		job_parse(job, &out->job); /* what is no job is not known */
	return true;
}

static bool reply_parse_aside(const redisReply *rests, const redisReply *client, struct store_aside *aside)
{
	static const struct word_field row[] = {{WORD_MS, offsetof(struct store_aside, rest_ms[WIRE_FLOCK])},
						{WORD_MS, offsetof(struct store_aside, rest_ms[WIRE_RECORD])},
						{WORD_END, 0}};
	static const struct word_field token[] = {{WORD_CLIENT, offsetof(struct store_aside, client)},
						  {WORD_SIGNED, offsetof(struct store_aside, client_ms)},
						  {WORD_END, 0}};

	if (rests->type != REDIS_REPLY_ARRAY || client->type != REDIS_REPLY_ARRAY || !reply_take(rests, 0, row, aside))
		return false;
	aside->key = client->elements ? reply_text(client, 2) : NULL;
	return client->elements == 0 || (reply_take(client, 0, token, aside) && *aside->client);
}

int reply_parse_entries(const redisReply *reply, struct store_entry **entries, size_t *count, struct store_aside *aside)
{
	const redisReply *leases, *waiters;

	*entries = NULL;
	*count = 0;
	if (!reply_is(reply, "OK") || reply->elements != 5)
		return -EPROTO;
	leases = reply->element[1];
	waiters = reply->element[2];
	if (leases->type != REDIS_REPLY_ARRAY || waiters->type != REDIS_REPLY_ARRAY ||
	    !reply_parse_aside(reply->element[3], reply->element[4], aside))
		return -EPROTO;
	*entries = calloc(leases->elements + waiters->elements + 1, sizeof(**entries));
	if (!*entries)
		return -ENOMEM;
	for (size_t i = 0; i < leases->elements + waiters->elements; i++) {
		bool waiter = i >= leases->elements;
		const redisReply *row = waiter ? waiters->element[i - leases->elements] : leases->element[i];

		if (!reply_parse_entry(row, waiter, &(*entries)[i]))
			goto bad;
	}
	*count = leases->elements + waiters->elements;
	return 0;
bad:
	free(*entries);
	*entries = NULL;
	return -EPROTO;
}

int reply_parse_scan(const redisReply *reply, char cursor[REPLY_CURSOR_BYTES], const redisReply **keys)
{
	uint64_t number;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return -EPROTO;
	const char *text = reply_text(reply, 0);
	*keys = reply->element[1];
	if (!text || !word_number(text, &number) || (*keys)->type != REDIS_REPLY_ARRAY)
		return -EPROTO;
	snprintf(cursor, REPLY_CURSOR_BYTES, "%" PRIu64, number);
	return 0;
}
