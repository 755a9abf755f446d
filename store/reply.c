#include "store/reply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ELEMENTS (1 << 20)
#define MAX_DEPTH    7

/* ---- the reader ---- */

/*
 * hiredis 0.14 has no limit for the number of elements, and 1.x has none for the depth (freeing a reply is recursive).
 * So its function that makes arrays is wrapped.
 */
#if HIREDIS_MAJOR >= 1
#define ELEMENTS size_t
#else
#define ELEMENTS int
#endif
static redisReplyObjectFunctions bounded;
static void *(*create_array)(const redisReadTask *task, ELEMENTS elements);

static void *create_bounded_array(const redisReadTask *task, ELEMENTS elements)
{
	int depth = 1;

	for (const redisReadTask *t = task->parent; t; t = t->parent)
		depth++;
	return depth > MAX_DEPTH || elements > MAX_ELEMENTS ? NULL : create_array(task, elements);
}

redisReader *reply_reader_new(void)
{
	redisReader *reader = redisReaderCreate();

	if (reader) {
		bounded = *reader->fn;
		create_array = bounded.createArray;
		bounded.createArray = create_bounded_array;
		reader->fn = &bounded;
	}
	return reader;
}

/* ---- pieces ---- */

bool reply_number(const char *text, uint64_t *out)
{
	uint64_t n = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(n, 10u, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
			return false;
	}
	*out = n;
	return true;
}

static bool signed_number(const char *text, int64_t *out)
{
	bool minus = *text == '-';
	uint64_t n;

	if (!reply_number(text + minus, &n) || n > INT64_MAX)
		return false;
	*out = minus ? -(int64_t)n : (int64_t)n;
	return true;
}

static bool is_made_of(const char *text, const char *chars, size_t min, size_t max)
{
	size_t n = strlen(text);

	return n >= min && n <= max && strspn(text, chars) == n;
}

bool reply_is_token(const char *text)
{
	return is_made_of(text, "0123456789abcdef", STORE_TOKEN_BYTES - 1, STORE_TOKEN_BYTES - 1);
}

static bool is_printable_word(const char *text, size_t max)
{
	size_t n = 0;

	for (; text[n]; n++)
		if (text[n] <= ' ' || text[n] > '~')
			return false;
	return n > 0 && n <= max;
}

bool reply_is_host(const char *text)
{
	return is_printable_word(text, STORE_HOST_BYTES - 1);
}

bool reply_is_file(const char *text)
{
	return is_printable_word(text, STORE_FILE_BYTES - 1);
}

bool reply_is_incarnation(const char *text)
{
	return is_made_of(text, "0123456789abcdef-", 1, STORE_INC_BYTES - 1);
}

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
	return reply->type == REDIS_REPLY_ARRAY ? reply_text(reply, 0) : NULL;
}

const char *const reply_space_word[WIRE_SPACES] = {[WIRE_FLOCK] = "flock", [WIRE_RECORD] = "record"};
const char *const reply_mode_word[WIRE_MODES] = {[WIRE_SHARED] = "shared", [WIRE_EXCLUSIVE] = "exclusive"};

bool reply_mode(const char *text, enum wire_mode *mode)
{
	for (*mode = 0; *mode < WIRE_MODES; ++*mode)
		if (strcmp(text, reply_mode_word[*mode]) == 0)
			return true;
	return false;
}

bool reply_space(const char *text, enum wire_space *space)
{
	for (*space = 0; *space < WIRE_SPACES; ++*space)
		if (strcmp(text, reply_space_word[*space]) == 0)
			return true;
	return false;
}

/* host, beat, age: the words that hosts and blockers have in common. */
static bool parse_host(const redisReply *list, size_t i, struct store_blocker *out)
{
	const char *host = reply_text(list, i), *beat = reply_text(list, i + 1), *age = reply_text(list, i + 2);

	*out = (struct store_blocker){.waiter = false};
	if (!host || !reply_is_host(host) || !beat || !reply_number(beat, &out->beat) || !age ||
	    !signed_number(age, &out->age_ms))
		return false;
	strcpy(out->host, host);
	return true;
}

/* ---- answers ---- */

static int parse_blockers(const redisReply *reply, struct store_reply *out)
{
	const char *arrival = reply_text(reply, 1), *rest = out->status == STORE_REST ? reply_text(reply, 2) : "0";

	if (!arrival || !reply_number(arrival, &out->arrival) || !rest || !signed_number(rest, &out->rest_ms) ||
	    out->rest_ms < 0)
		return -EPROTO;
	for (size_t i = out->status == STORE_REST ? 3 : 2; i < reply->elements; i += 4) {
		if (out->blocker_count == STORE_MAX_BLOCKERS)
			return -EPROTO;
		struct store_blocker *blocker = &out->blockers[out->blocker_count++];
		const char *what = reply_text(reply, i + 3);
		if (!parse_host(reply, i, blocker) || !what)
			return -EPROTO;
		blocker->waiter = strcmp(what, "waits") == 0;
		if (!blocker->waiter && strcmp(what, "holds") != 0)
			return -EPROTO;
	}
	return 0;
}

bool reply_is_key(const char *text)
{
	return (strncmp(text, "string ", 7) == 0 || strncmp(text, "redisson ", 9) == 0) &&
	       strlen(text) < STORE_KEY_BYTES;
}

static int parse_grant(const redisReply *reply, struct store_reply *out)
{
	const char *fence = reply_text(reply, 1), *mode = reply_text(reply, 2);
	uint64_t from, to;

	if (reply->elements == 1)
		return 0;
	if (!fence || !reply_number(fence, &out->fence) || !mode || !reply_mode(mode, &out->mode))
		return -EPROTO;
	if (reply->elements == 3)
		return 0;
	out->key = reply_text(reply, 3);
	if (reply->elements == 4)
		return out->key && reply_is_key(out->key) ? 0 : -EPROTO;
	out->key = NULL;
	if (!reply_text(reply, 3) || !reply_number(reply_text(reply, 3), &from) || !reply_text(reply, 4) ||
	    !reply_number(reply_text(reply, 4), &to) || to > INT64_MAX || from >= to)
		return -EPROTO;
	out->from = (int64_t)from;
	out->to = (int64_t)to;
	return 0;
}

static int parse_taken(const redisReply *reply, struct store_reply *out)
{
	const char *arrival = reply_text(reply, 1), *left = reply_text(reply, 2), *client = reply_text(reply, 3);

	if (!arrival || !reply_number(arrival, &out->arrival) || !left || !signed_number(left, &out->taken_ms) ||
	    !client || (*client && !is_printable_word(client, STORE_CLIENT_BYTES - 1)))
		return -EPROTO;
	strcpy(out->client, client);
	return 0;
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
	const char *verdict = verdict_of(reply);

	*out = (struct store_reply){.status = STORE_ERROR};
	for (size_t i = 0; verdict && i < sizeof(verdicts) / sizeof(*verdicts); i++) {
		if (strcmp(verdict, verdicts[i].verdict) != 0 || !(may & REPLY_MAY(verdicts[i].status)))
			continue;
		out->status = verdicts[i].status;
		if (out->status == STORE_WAIT || out->status == STORE_BUSY || out->status == STORE_REST)
			return parse_blockers(reply, out);
		if (out->status == STORE_GIVEN_UP)
			return reply_text(reply, 1) && reply_number(reply_text(reply, 1), &out->arrival) ? 0 : -EPROTO;
		if (out->status == STORE_TAKEN)
			return parse_taken(reply, out);
		if (out->status == STORE_OK)
			return parse_grant(reply, out);
		return 0;
	}
	return -EPROTO;
}

bool reply_has_keys(const redisReply *reply)
{
	const char *verdict = verdict_of(reply);

	return verdict && strcmp(verdict, "KEYS") == 0;
}

static bool parse_key_state(const char *text, enum store_key_state *state)
{
	static const char *const words[STORE_KEY_STATES] = {
		[STORE_KEY_BACK] = "back",    [STORE_KEY_EXTRA] = "extra", [STORE_KEY_TAKEN] = "theirs",
		[STORE_KEY_EXPIRED] = "free", [STORE_KEY_OTHER] = "other", [STORE_KEY_LOST] = "lost",
	};

	for (*state = 0; *state < STORE_KEY_STATES; ++*state)
		if (text && strcmp(text, words[*state]) == 0)
			return true;
	return false;
}

int reply_parse_keys(const redisReply *reply, struct store_key_news **keys, size_t *count)
{
	*count = 0;
	*keys = NULL;
	if (reply->elements % 3 != 1)
		return -EPROTO;
	*keys = calloc(reply->elements / 3 + 1, sizeof(**keys));
	if (!*keys)
		return -ENOMEM;
	for (size_t i = 1; i < reply->elements; i += 3) {
		struct store_key_news *news = &(*keys)[(*count)++];
		const char *token = reply_text(reply, i + 1);

		news->name = reply_text(reply, i + 2);
		if (!parse_key_state(reply_text(reply, i), &news->state) || !token || !reply_is_token(token) ||
		    !news->name || !*news->name || strlen(news->name) >= LOCK_NAME_BYTES) {
			free(*keys);
			*keys = NULL;
			*count = 0;
			return -EPROTO;
		}
		strcpy(news->token, token);
	}
	return 0;
}

bool reply_is_twice(const redisReply *reply)
{
	const char *verdict = verdict_of(reply);

	return verdict && strcmp(verdict, "TWICE") == 0;
}

int reply_parse_record(const redisReply *reply, struct reply_record *out)
{
	const char *verdict = verdict_of(reply);
	const char *first = verdict ? reply_text(reply, 1) : NULL, *second = verdict ? reply_text(reply, 2) : NULL;

	*out = (struct reply_record){.twice = reply_is_twice(reply)};
	if (out->twice)
		return 0;
	if (!first)
		return -EPROTO;
	if (strcmp(verdict, "TTL") == 0) {
		out->refused_ttl = true;
		for (size_t i = 0; second && second[i] && i < sizeof(out->used_by) - 1; i++)
			out->used_by[i] = (char)(second[i] >= ' ' && second[i] <= '~' ? second[i] : '?');
		return signed_number(first, &out->ttl_ms) ? 0 : -EPROTO;
	}
	if (strcmp(verdict, "OK") != 0 || !reply_is_incarnation(first) || !second)
		return -EPROTO;
	strcpy(out->incarnation, first);
	out->open = strcmp(second, "1") == 0;
	return 0;
}

int reply_parse_hosts(const redisReply *reply, struct store_blocker **hosts, size_t *count)
{
	const char *verdict = verdict_of(reply);

	*hosts = NULL;
	*count = 0;
	if (!verdict || strcmp(verdict, "OK") != 0 || reply->elements % 3 != 1)
		return -EPROTO;
	*hosts = calloc(reply->elements / 3 + 1, sizeof(**hosts));
	if (!*hosts)
		return -ENOMEM;
	for (size_t i = 1; i < reply->elements; i += 3) {
		if (!parse_host(reply, i, &(*hosts)[(*count)++])) {
			free(*hosts);
			*hosts = NULL;
			*count = 0;
			return -EPROTO;
		}
	}
	return 0;
}

/* {host, file, token, space, mode, from, to, fence, job} */
static bool parse_entry(const redisReply *row, struct store_entry *out)
{
	const char *host, *file, *token, *space, *mode, *from, *to, *fence, *job;
	uint64_t first, end;

	if (row->type != REDIS_REPLY_ARRAY)
		return false;
	host = reply_text(row, 0);
	file = reply_text(row, 1);
	token = reply_text(row, 2);
	fence = reply_text(row, 7);
	space = reply_text(row, 3);
	mode = reply_text(row, 4);
	from = reply_text(row, 5);
	to = reply_text(row, 6);
	job = reply_text(row, 8);
	if (!host || !reply_is_host(host) || !file || !reply_is_file(file) || !token || !reply_is_token(token) ||
	    !space || !reply_space(space, &out->range.space) || !mode || !reply_mode(mode, &out->range.mode) || !from ||
	    !reply_number(from, &first) || !to || !reply_number(to, &end) || end > INT64_MAX || first >= end ||
	    !fence || (*fence && !reply_number(fence, &out->fence)))
		return false;
	strcpy(out->host, host);
	strcpy(out->file, file);
	strcpy(out->token, token);
	out->old = job && strcmp(job, "-") == 0;
	if (job)
		job_parse(job, &out->job); /* what is no job is not known */
	out->range.from = (int64_t)first;
	out->range.to = (int64_t)end;
	return true;
}

static bool parse_entries(const redisReply *rows, bool waiters, struct store_entry *out, size_t *count)
{
	for (size_t i = 0; i < rows->elements; i++, (*count)++) {
		out[*count] = (struct store_entry){.waiter = waiters};
		if (!parse_entry(rows->element[i], &out[*count]))
			return false;
	}
	return true;
}

static bool parse_rests(const redisReply *rests, int64_t rest_ms[WIRE_SPACES])
{
	for (size_t space = 0; space < WIRE_SPACES; space++) {
		const char *left = rests->type == REDIS_REPLY_ARRAY ? reply_text(rests, space) : NULL;

		if (!left || !signed_number(left, &rest_ms[space]) || rest_ms[space] < 0)
			return false;
	}
	return true;
}

static bool parse_client(const redisReply *client, struct store_aside *aside)
{
	const char *token, *left;

	if (client->type != REDIS_REPLY_ARRAY)
		return false;
	if (client->elements == 0)
		return true;
	token = reply_text(client, 0);
	left = reply_text(client, 1);
	if (!token || !is_printable_word(token, STORE_CLIENT_BYTES - 1) || !left ||
	    !signed_number(left, &aside->client_ms))
		return false;
	strcpy(aside->client, token);
	return true;
}

int reply_parse_entries(const redisReply *reply, struct store_entry **entries, size_t *count, struct store_aside *aside)
{
	const char *verdict = verdict_of(reply);
	const redisReply *leases, *waiters;

	*entries = NULL;
	*count = 0;
	if (!verdict || strcmp(verdict, "OK") != 0 || reply->elements != 5)
		return -EPROTO;
	leases = reply->element[1];
	waiters = reply->element[2];
	if (leases->type != REDIS_REPLY_ARRAY || waiters->type != REDIS_REPLY_ARRAY ||
	    !parse_rests(reply->element[3], aside->rest_ms) || !parse_client(reply->element[4], aside))
		return -EPROTO;
	*entries = calloc(leases->elements + waiters->elements + 1, sizeof(**entries));
	if (!*entries)
		return -ENOMEM;
	if (parse_entries(leases, false, *entries, count) && parse_entries(waiters, true, *entries, count))
		return 0;
	free(*entries);
	*entries = NULL;
	*count = 0;
	return -EPROTO;
}

int reply_parse_scan(const redisReply *reply, char cursor[REPLY_CURSOR_BYTES], const redisReply **keys)
{
	uint64_t number;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		return -EPROTO;
	const char *text = reply_text(reply, 0);
	*keys = reply->element[1];
	if (!text || !reply_number(text, &number) || (*keys)->type != REDIS_REPLY_ARRAY)
		return -EPROTO;
	snprintf(cursor, REPLY_CURSOR_BYTES, "%" PRIu64, number);
	return 0;
}
