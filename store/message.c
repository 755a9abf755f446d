#include "store/message.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "store/reply.h"

/*
 * The messages:
 *   recall ASKED_TOKEN ASKER_HOST ASKER_TOKEN SPACE MODE FROM TO ASK NAME
 *   granted TOKEN FENCE INCARNATION NAME
 *   again TOKEN NAME
 *   inuse TOKEN SPACE MODE FROM TO HOLDER_HOST NAME
 *   chase HOST TOKEN PID YOUNGEST HOPS SPACE MODE FROM TO NAME
 *   break TOKEN FENCE LIMIT ASKER_HOST QUESTION NAME
 *   broken QUESTION HOW PID HOLDER_HOST
 *   who TOKEN ASKER_HOST NAME
 *   holder TOKEN HOLDER_HOST SPACE MODE FROM TO JOB
 *   holders TOKEN HOLDER_HOST COUNT
 *   twice HOST
 * One blank stands between words. The name, or the job, is the rest of the text, since it may have blanks. The answer
 * "broken" has none: its host stands there.
 */
#define MAX_WORDS 10

/* SPACE MODE FROM TO */
static bool message_take_range(char *const word[], struct store_range *out)
{
	uint64_t from, to;

	if (!reply_space(word[0], &out->space) || !reply_mode(word[1], &out->mode) || !reply_number(word[2], &from) ||
	    !reply_number(word[3], &to) || to > INT64_MAX || from >= to)
		return false;
	out->from = (int64_t)from;
	out->to = (int64_t)to;
	return true;
}

static bool message_take_recall(char *const word[], struct store_message *out)
{
	out->kind = STORE_MSG_RECALL;
	if (!reply_is_token(word[1]) || !reply_is_host(word[2]) || !reply_is_token(word[3]) ||
	    !message_take_range(word + 4, &out->range) || (strcmp(word[8], "0") != 0 && strcmp(word[8], "1") != 0))
		return false;
	strcpy(out->token, word[1]);
	strcpy(out->asker, word[2]);
	strcpy(out->asker_token, word[3]);
	out->ask = word[8][0] == '1';
	return true;
}

static bool message_take_granted(char *const word[], struct store_message *out)
{
	out->kind = STORE_MSG_GRANTED;
	if (!reply_is_token(word[1]) || !reply_number(word[2], &out->fence) || !reply_is_incarnation(word[3]))
		return false;
	strcpy(out->token, word[1]);
	return true;
}

static bool message_take_again(char *const word[], struct store_message *out)
{
	out->kind = STORE_MSG_AGAIN;
	if (!reply_is_token(word[1]))
		return false;
	strcpy(out->token, word[1]);
	return true;
}

static bool message_take_in_use(char *const word[], struct store_message *out)
{
	out->kind = STORE_MSG_IN_USE;
	if (!reply_is_token(word[1]) || !message_take_range(word + 2, &out->range) || !reply_is_host(word[6]))
		return false;
	strcpy(out->token, word[1]);
	strcpy(out->holder, word[6]);
	return true;
}

static bool message_take_chase(char *const word[], struct store_message *out)
{
	struct store_chase *chase = &out->chase;
	uint64_t pid, hops;

	out->kind = STORE_MSG_CHASE;
	if (!reply_is_host(word[1]) || !reply_is_token(word[2]) || !reply_number(word[3], &pid) || pid == 0 ||
	    pid > INT_MAX || !reply_number(word[4], &chase->youngest) || !reply_number(word[5], &hops) ||
	    hops > UINT_MAX || !message_take_range(word + 6, &chase->range))
		return false;
	strcpy(chase->host, word[1]);
	strcpy(chase->token, word[2]);
	chase->pid = (int)pid;
	chase->hops = (unsigned)hops;
	return true;
}

static const char *const broken_word[STORE_BROKENS] = {
	[STORE_BROKEN_DONE] = "done",           [STORE_BROKEN_GONE] = "gone",
	[STORE_BROKEN_NOT_YOURS] = "not-yours", [STORE_BROKEN_UNSTOPPABLE] = "unstoppable",
	[STORE_BROKEN_YOUNGER] = "younger",     [STORE_BROKEN_UNSURE] = "unsure",
	[STORE_BROKEN_LATE] = "late",           [STORE_BROKEN_FAILED] = "failed",
	[STORE_BROKEN_FORBIDDEN] = "forbidden",
};

static bool message_take_break(char *const word[], struct store_message *out)
{
	out->kind = STORE_MSG_BREAK;
	if (!reply_is_token(word[1]) || !reply_number(word[2], &out->fence) || !out->fence ||
	    !reply_number(word[3], &out->limit) || !reply_is_host(word[4]) || !reply_number(word[5], &out->question))
		return false;
	strcpy(out->token, word[1]);
	strcpy(out->asker, word[4]);
	return true;
}

static bool message_take_broken(char *const word[], struct store_message *out)
{
	uint64_t pid;

	out->kind = STORE_MSG_BROKEN;
	for (out->broken = 0; out->broken < STORE_BROKENS; out->broken++)
		if (strcmp(word[2], broken_word[out->broken]) == 0)
			break;
	if (out->broken == STORE_BROKENS || !reply_number(word[1], &out->question) || !reply_number(word[3], &pid) ||
	    pid > INT_MAX)
		return false;
	out->pid = (int)pid;
	if (!reply_is_host(out->name))
		return false;
	strcpy(out->holder, out->name);
	*out->name = '\0';
	return true;
}

static bool message_take_twice(char *const word[], struct store_message *out)
{
	(void)word;
	out->kind = STORE_MSG_TWICE;
	if (!reply_is_host(out->name))
		return false;
	strcpy(out->holder, out->name);
	*out->name = '\0';
	return true;
}

static bool message_take_who(char *const word[], struct store_message *out)
{
	out->kind = STORE_MSG_WHO;
	if (!reply_is_token(word[1]) || !reply_is_host(word[2]))
		return false;
	strcpy(out->token, word[1]);
	strcpy(out->asker, word[2]);
	return true;
}

static bool message_take_answer(char *const word[], struct store_message *out)
{
	if (!reply_is_token(word[1]) || !reply_is_host(word[2]))
		return false;
	strcpy(out->token, word[1]);
	strcpy(out->holder, word[2]);
	return true;
}

static bool message_take_holder(char *const word[], struct store_message *out)
{
	out->kind = STORE_MSG_HOLDER;
	return message_take_answer(word, out) && message_take_range(word + 3, &out->range) &&
	       job_parse(out->name, &out->job);
}

static bool message_take_holders(char *const word[], struct store_message *out)
{
	out->kind = STORE_MSG_HOLDERS;
	return message_take_answer(word, out) && reply_number(out->name, &out->count);
}

/* Cuts `count` words off the front of the text, which changes. Returns the rest; NULL: there are fewer words. */
static char *message_cut_words(char *text, char **word, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		word[i] = text;
		text = strchr(text, ' ');
		if (!text)
			return NULL;
		*text++ = '\0';
	}
	return text;
}

int message_parse(const char *text, size_t len, const char *incarnation, struct store_message *out)
{
	static const struct {
		const char *kind;
		size_t words;
		bool (*parse)(char *const word[], struct store_message *out);
	} kinds[] = {{"recall ", 9, message_take_recall},   {"granted ", 4, message_take_granted},
		     {"again ", 2, message_take_again},     {"inuse ", 7, message_take_in_use},
		     {"who ", 3, message_take_who},         {"holder ", 7, message_take_holder},
		     {"holders ", 3, message_take_holders}, {"chase ", 10, message_take_chase},
		     {"break ", 6, message_take_break},     {"broken ", 4, message_take_broken},
		     {"twice ", 1, message_take_twice}};
	char copy[MESSAGE_BYTES], *word[MAX_WORDS];

	*out = (struct store_message){.kind = STORE_MSG_RECALL};
	if (len >= sizeof(copy) || memchr(text, '\0', len))
		return -EINVAL;
	memcpy(copy, text, len);
	copy[len] = '\0';
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strncmp(copy, kinds[i].kind, strlen(kinds[i].kind)) != 0)
			continue;
		const char *name = message_cut_words(copy, word, kinds[i].words);
		if (!name || !*name || strlen(name) >= sizeof(out->name))
			return -EINVAL;
		strcpy(out->name, name);
		if (!kinds[i].parse(word, out))
			return -EINVAL;
		return out->kind == STORE_MSG_GRANTED && strcmp(word[3], incarnation) != 0 ? -ESTALE : 0;
	}
	return -EINVAL;
}

int message_format_in_use(char message[MESSAGE_BYTES], const char *host, const char *name, const char *asker_token,
			  const struct store_range *in_use)
{
	int n = snprintf(message, MESSAGE_BYTES, "inuse %s %s %s " REPLY_OFFSET " " REPLY_OFFSET " %s %s", asker_token,
			 reply_space_word[in_use->space], reply_mode_word[in_use->mode], in_use->from, in_use->to, host,
			 name);

	return n < MESSAGE_BYTES ? 0 : -ENAMETOOLONG;
}

int message_format_who(char message[MESSAGE_BYTES], const char *host, const char *name, const char *token)
{
	int n = snprintf(message, MESSAGE_BYTES, "who %s %s %s", token, host, name);

	return n < MESSAGE_BYTES ? 0 : -ENAMETOOLONG;
}

int message_format_holder(char message[MESSAGE_BYTES], const char *host, const char *token,
			  const struct store_range *range, const struct store_job *job)
{
	char text[JOB_TEXT_BYTES];
	int n;

	job_format(text, job);
	n = snprintf(message, MESSAGE_BYTES, "holder %s %s %s %s " REPLY_OFFSET " " REPLY_OFFSET " %s", token, host,
		     reply_space_word[range->space], reply_mode_word[range->mode], range->from, range->to, text);
	return n < MESSAGE_BYTES ? 0 : -ENAMETOOLONG;
}

int message_format_holders(char message[MESSAGE_BYTES], const char *host, const char *token, uint64_t count)
{
	int n = snprintf(message, MESSAGE_BYTES, "holders %s %s %" PRIu64, token, host, count);

	return n < MESSAGE_BYTES ? 0 : -ENAMETOOLONG;
}

int message_format_chase(char message[MESSAGE_BYTES], const struct store_chase *chase)
{
	int n = snprintf(message, MESSAGE_BYTES,
			 "chase %s %s %d %" PRIu64 " %u %s %s " REPLY_OFFSET " " REPLY_OFFSET " %s", chase->host,
			 chase->token, chase->pid, chase->youngest, chase->hops, reply_space_word[chase->range.space],
			 reply_mode_word[chase->range.mode], chase->range.from, chase->range.to, chase->name);

	return n < MESSAGE_BYTES ? 0 : -ENAMETOOLONG;
}

int message_format_break(char message[MESSAGE_BYTES], const char *asker, const struct store_break *what)
{
	int n = snprintf(message, MESSAGE_BYTES, "break %s %" PRIu64 " %" PRIu64 " %s %" PRIu64 " %s", what->token,
			 what->fence, what->limit, asker, what->question, what->name);

	return n < MESSAGE_BYTES ? 0 : -ENAMETOOLONG;
}

void message_format_broken(char message[MESSAGE_BYTES], const char *holder, uint64_t question, enum store_broken broken,
			   int pid)
{
	snprintf(message, MESSAGE_BYTES, "broken %" PRIu64 " %s %d %.*s", question, broken_word[broken], pid,
		 STORE_HOST_BYTES - 1, holder);
}
