/* See words.h. */
#include "store/words.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "wire/text.h"

const char *const word_space[WIRE_SPACES] = {[WIRE_FLOCK] = "flock", [WIRE_RECORD] = "record"};
const char *const word_mode[WIRE_MODES] = {[WIRE_SHARED] = "shared", [WIRE_EXCLUSIVE] = "exclusive"};
static const char *const word_flag[] = {"0", "1"}, *const word_waits[] = {"holds", "waits"};
static const char *const word_broken[STORE_BROKENS] = {
	[STORE_BROKEN_DONE] = "done",           [STORE_BROKEN_GONE] = "gone",
	[STORE_BROKEN_NOT_YOURS] = "not-yours", [STORE_BROKEN_UNSTOPPABLE] = "unstoppable",
	[STORE_BROKEN_YOUNGER] = "younger",     [STORE_BROKEN_UNSURE] = "unsure",
	[STORE_BROKEN_LATE] = "late",           [STORE_BROKEN_FAILED] = "failed",
	[STORE_BROKEN_FORBIDDEN] = "forbidden",
};
static const char *const word_key_state[STORE_KEY_STATES] = {
	[STORE_KEY_BACK] = "back",    [STORE_KEY_EXTRA] = "extra", [STORE_KEY_TAKEN] = "theirs",
	[STORE_KEY_EXPIRED] = "free", [STORE_KEY_OTHER] = "other", [STORE_KEY_LOST] = "lost",
};

/* The kinds whose words are the members of a list; the others have none. */
#define LIST(list)                                                                                                     \
	{                                                                                                              \
		list, sizeof(list) / sizeof(*(list))                                                                   \
	}
static const struct {
	const char *const *words;
	size_t count;
} word_lists[] = {
	[WORD_FLAG] = LIST(word_flag), [WORD_WAITS] = LIST(word_waits),   [WORD_SPACE] = LIST(word_space),
	[WORD_MODE] = LIST(word_mode), [WORD_BROKEN] = LIST(word_broken), [WORD_KEY_STATE] = LIST(word_key_state),
	[WORD_JOB] = {NULL, 0},
};

/* ---- single words ---- */

bool word_number(const char *text, uint64_t *out)
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

static bool word_is_made_of(const char *text, const char *chars, size_t min, size_t max)
{
	size_t n = strlen(text);

	return n >= min && n <= max && strspn(text, chars) == n;
}

static bool word_is_printable(const char *text, size_t size)
{
	size_t n = 0;

	for (; text[n]; n++)
		if (text[n] <= ' ' || text[n] > '~')
			return false;
	return n > 0 && n < size;
}

bool word_is_token(const char *text)
{
	return word_is_made_of(text, "0123456789abcdef", STORE_TOKEN_BYTES - 1, STORE_TOKEN_BYTES - 1);
}

bool word_is_host(const char *text)
{
	return word_is_printable(text, STORE_HOST_BYTES);
}

bool word_is_file(const char *text)
{
	return word_is_printable(text, STORE_FILE_BYTES);
}

bool word_is_key(const char *text)
{
	return (strncmp(text, "string ", 7) == 0 || strncmp(text, "redisson ", 9) == 0) &&
	       strlen(text) < STORE_KEY_BYTES;
}

/* ---- jobs ---- */

static void job_set_command(struct store_job *job, const char *command)
{
	size_t n = strnlen(command, JOB_COMMAND_BYTES - 1);

	memmove(job->command, command, n);
	job->command[n] = '\0';
	text_make_printable(job->command, n);
}

void job_format(char text[JOB_TEXT_BYTES], const struct store_job *job)
{
	struct store_job clean = *job;

	job_set_command(&clean, job->command);
	text[0] = '\0';
	if (clean.pid > 0)
		snprintf(text, JOB_TEXT_BYTES, "%d %" PRId64 " %s", clean.pid, clean.since > 0 ? clean.since : 0,
			 clean.command);
}

bool job_parse(const char *text, struct store_job *out)
{
	char copy[JOB_TEXT_BYTES], *since, *command;
	uint64_t pid, seconds;
	size_t n = strlen(text);

	*out = (struct store_job){.pid = 0};
	if (n >= sizeof(copy))
		return false;
	memcpy(copy, text, n + 1);
	since = strchr(copy, ' ');
	command = since ? strchr(since + 1, ' ') : NULL;
	if (!command)
		return false;
	*since++ = *command++ = '\0';
	if (!word_number(copy, &pid) || pid == 0 || pid > INT_MAX || !word_number(since, &seconds) ||
	    seconds > INT64_MAX)
		return false;
	out->pid = (int)pid;
	out->since = (int64_t)seconds;
	job_set_command(out, command);
	return true;
}

/* ---- fields ---- */

static bool word_copy(void *at, const char *text, bool good)
{
	if (good)
		strcpy(at, text);
	return good;
}

static bool word_take_text(enum word_kind kind, const char *text, void *at)
{
	switch (kind) {
	case WORD_TOKEN:
		return word_copy(at, text, word_is_token(text));
	case WORD_HOST:
		return word_copy(at, text, word_is_host(text));
	case WORD_FILE:
		return word_copy(at, text, word_is_file(text));
	case WORD_CLIENT:
		return word_copy(at, text, !*text || word_is_printable(text, STORE_CLIENT_BYTES));
	case WORD_INCARNATION:
		return word_copy(at, text, word_is_made_of(text, "0123456789abcdef-", 1, STORE_INC_BYTES - 1));
	default: /* WORD_NAME */
		return word_copy(at, text, *text && strlen(text) < LOCK_NAME_BYTES);
	}
}

static bool word_take_number(enum word_kind kind, const char *text, void *at)
{
	bool minus = kind == WORD_SIGNED && *text == '-', none = kind == WORD_FENCE_ANY && !*text;
	uint64_t n = 0;

	if (!none && !word_number(text + minus, &n))
		return false;
	switch (kind) {
	case WORD_NUMBER:
	case WORD_FENCE:
	case WORD_FENCE_ANY:
		*(uint64_t *)at = n;
		return n || kind != WORD_FENCE;
	case WORD_PID:
	case WORD_PID_ANY:
		*(int *)at = (int)n;
		return n <= INT_MAX && (n || kind != WORD_PID);
	case WORD_COUNT:
		*(unsigned *)at = (unsigned)n;
		return n <= UINT_MAX;
	default: /* WORD_SIGNED, WORD_MS, WORD_FROM, WORD_TO */
		*(int64_t *)at = minus ? -(int64_t)n : (int64_t)n;
		return n <= INT64_MAX && (kind != WORD_TO || ((int64_t *)at)[-1] < (int64_t)n);
	}
}

static bool word_take_listed(enum word_kind kind, const char *text, void *at)
{
	for (unsigned i = 0; i < word_lists[kind].count; i++) {
		if (strcmp(text, word_lists[kind].words[i]) != 0)
			continue;
		if (kind == WORD_FLAG || kind == WORD_WAITS)
			*(bool *)at = i;
		else
			memcpy(at, &i, sizeof(i)); /* an enum */
		return true;
	}
	return false;
}

bool word_take(const struct word_field *field, const char *text, void *out)
{
	void *at = (char *)out + field->at;

	if (field->kind == WORD_JOB)
		return job_parse(text, at);
	if (word_lists[field->kind].words)
		return word_take_listed(field->kind, text, at);
	return field->kind <= WORD_NAME ? word_take_text(field->kind, text, at)
					: word_take_number(field->kind, text, at);
}

int word_put(const struct word_field *field, const void *in, char *text, size_t size)
{
	const void *at = (const char *)in + field->at;
	char job[JOB_TEXT_BYTES];
	unsigned listed = 0;

	switch (field->kind) {
	case WORD_NUMBER:
	case WORD_FENCE:
	case WORD_FENCE_ANY:
		return snprintf(text, size, "%" PRIu64, *(const uint64_t *)at);
	case WORD_SIGNED:
	case WORD_MS:
		return snprintf(text, size, "%" PRId64, *(const int64_t *)at);
	case WORD_FROM:
	case WORD_TO:
		return snprintf(text, size, WORD_OFFSET, *(const int64_t *)at);
	case WORD_PID:
	case WORD_PID_ANY:
	case WORD_COUNT:
		return snprintf(text, size, "%u", *(const unsigned *)at);
	case WORD_JOB:
		job_format(job, at);
		return snprintf(text, size, "%s", job);
	default:
		break;
	}
	if (!word_lists[field->kind].words)
		return snprintf(text, size, "%s", (const char *)at);
	memcpy(&listed, at, field->kind == WORD_FLAG || field->kind == WORD_WAITS ? sizeof(bool) : sizeof(listed));
	return snprintf(text, size, "%s",
			listed < word_lists[field->kind].count ? word_lists[field->kind].words[listed] : "?");
}

/* ---- messages ---- */

#define MESSAGE(kind, member) WORD_FIELD(kind, struct store_message, member)
#define RANGE(member)                                                                                                  \
	MESSAGE(WORD_SPACE, member.space), MESSAGE(WORD_MODE, member.mode), MESSAGE(WORD_FROM, member.from),           \
		MESSAGE(WORD_TO, member.to)

/* One blank stands between words. The last one is the rest of the text, since a name or a job may have blanks. */
static const struct {
	const char *word;
	struct word_field fields[12];
} message_rows[STORE_MSG_KINDS] = {
	[STORE_MSG_RECALL] = {"recall",
			      {MESSAGE(WORD_TOKEN, token), MESSAGE(WORD_HOST, asker), MESSAGE(WORD_TOKEN, asker_token),
			       RANGE(range), MESSAGE(WORD_FLAG, ask), MESSAGE(WORD_NAME, name)}},
	[STORE_MSG_GRANTED] = {"granted",
			       {MESSAGE(WORD_TOKEN, token), MESSAGE(WORD_NUMBER, fence),
				MESSAGE(WORD_INCARNATION, incarnation), MESSAGE(WORD_NAME, name)}},
	[STORE_MSG_AGAIN] = {"again", {MESSAGE(WORD_TOKEN, token), MESSAGE(WORD_NAME, name)}},
	[STORE_MSG_IN_USE] = {"inuse",
			      {MESSAGE(WORD_TOKEN, token), RANGE(range), MESSAGE(WORD_HOST, holder),
			       MESSAGE(WORD_NAME, name)}},
	[STORE_MSG_CHASE] = {"chase",
			     {MESSAGE(WORD_HOST, chase.host), MESSAGE(WORD_TOKEN, chase.token),
			      MESSAGE(WORD_PID, chase.pid), MESSAGE(WORD_NUMBER, chase.youngest),
			      MESSAGE(WORD_COUNT, chase.hops), RANGE(chase.range), MESSAGE(WORD_NAME, name)}},
	[STORE_MSG_BREAK] = {"break",
			     {MESSAGE(WORD_TOKEN, token), MESSAGE(WORD_FENCE, fence), MESSAGE(WORD_NUMBER, limit),
			      MESSAGE(WORD_HOST, asker), MESSAGE(WORD_NUMBER, question), MESSAGE(WORD_NAME, name)}},
	[STORE_MSG_BROKEN] = {"broken",
			      {MESSAGE(WORD_NUMBER, question), MESSAGE(WORD_BROKEN, broken), MESSAGE(WORD_PID_ANY, pid),
			       MESSAGE(WORD_HOST, holder)}},
	[STORE_MSG_WHO] = {"who", {MESSAGE(WORD_TOKEN, token), MESSAGE(WORD_HOST, asker), MESSAGE(WORD_NAME, name)}},
	[STORE_MSG_HOLDER] = {"holder",
			      {MESSAGE(WORD_TOKEN, token), MESSAGE(WORD_HOST, holder), RANGE(range),
			       MESSAGE(WORD_JOB, job)}},
	[STORE_MSG_HOLDERS] = {"holders",
			       {MESSAGE(WORD_TOKEN, token), MESSAGE(WORD_HOST, holder), MESSAGE(WORD_NUMBER, count)}},
	[STORE_MSG_TWICE] = {"twice", {MESSAGE(WORD_HOST, holder)}},
};

/* Cuts a word off the front of the text, which changes. Returns the rest; NULL: there is no blank. */
static char *message_cut(char *text)
{
	char *blank = strchr(text, ' ');

	if (!blank)
		return NULL;
	*blank = '\0';
	return blank + 1;
}

int message_parse(const char *text, size_t len, const char *incarnation, struct store_message *out)
{
	char copy[MESSAGE_BYTES], *word = copy, *rest;

	memset(out, 0, sizeof(*out));
	if (len >= sizeof(copy) || memchr(text, '\0', len))
		return -EINVAL;
	memcpy(copy, text, len);
	copy[len] = '\0';
	rest = message_cut(copy);
	while (out->kind < STORE_MSG_KINDS && strcmp(copy, message_rows[out->kind].word) != 0)
		out->kind++;
	if (!rest || out->kind == STORE_MSG_KINDS)
		return -EINVAL;
	for (const struct word_field *f = message_rows[out->kind].fields; f->kind; f++) {
		word = rest;
		rest = f[1].kind ? message_cut(word) : word;
		if (!rest || !word_take(f, word, out))
			return -EINVAL;
	}
	return out->kind == STORE_MSG_GRANTED && strcmp(out->incarnation, incarnation) != 0 ? -ESTALE : 0;
}

int message_format(char text[MESSAGE_BYTES], const struct store_message *m)
{
	size_t len = strlen(strcpy(text, message_rows[m->kind].word));
	struct store_message again;

	for (const struct word_field *f = message_rows[m->kind].fields; f->kind && len + 2 < MESSAGE_BYTES; f++) {
		text[len++] = ' ';
		len += (size_t)word_put(f, m, text + len, MESSAGE_BYTES - len);
	}
	return len < MESSAGE_BYTES && message_parse(text, len, m->incarnation, &again) == 0 ? 0 : -EINVAL;
}
