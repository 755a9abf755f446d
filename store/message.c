#include "store/message.h"

#include <errno.h>
#include <string.h>

#include "store/words.h"

#define FIELD(kind, member)                                                                                            \
	{                                                                                                              \
		kind, offsetof(struct store_message, member)                                                           \
	}
#define RANGE(member)                                                                                                  \
	FIELD(WORD_SPACE, member.space), FIELD(WORD_MODE, member.mode), FIELD(WORD_FROM, member.from),                 \
		FIELD(WORD_TO, member.to)

/* One blank stands between words. The last one is the rest of the text, since a name or a job may have blanks. */
static const struct {
	const char *word;
	struct word_field fields[12];
} message_rows[STORE_MSG_KINDS] = {
	[STORE_MSG_RECALL] = {"recall",
			      {FIELD(WORD_TOKEN, token), FIELD(WORD_HOST, asker), FIELD(WORD_TOKEN, asker_token),
			       RANGE(range), FIELD(WORD_FLAG, ask), FIELD(WORD_NAME, name)}},
	[STORE_MSG_GRANTED] = {"granted",
			       {FIELD(WORD_TOKEN, token), FIELD(WORD_NUMBER, fence),
				FIELD(WORD_INCARNATION, incarnation), FIELD(WORD_NAME, name)}},
	[STORE_MSG_AGAIN] = {"again", {FIELD(WORD_TOKEN, token), FIELD(WORD_NAME, name)}},
	[STORE_MSG_IN_USE] = {"inuse",
			      {FIELD(WORD_TOKEN, token), RANGE(range), FIELD(WORD_HOST, holder),
			       FIELD(WORD_NAME, name)}},
	[STORE_MSG_CHASE] = {"chase",
			     {FIELD(WORD_HOST, chase.host), FIELD(WORD_TOKEN, chase.token), FIELD(WORD_PID, chase.pid),
			      FIELD(WORD_NUMBER, chase.youngest), FIELD(WORD_COUNT, chase.hops), RANGE(chase.range),
			      FIELD(WORD_NAME, name)}},
	[STORE_MSG_BREAK] = {"break",
			     {FIELD(WORD_TOKEN, token), FIELD(WORD_FENCE, fence), FIELD(WORD_NUMBER, limit),
			      FIELD(WORD_HOST, asker), FIELD(WORD_NUMBER, question), FIELD(WORD_NAME, name)}},
	[STORE_MSG_BROKEN] = {"broken",
			      {FIELD(WORD_NUMBER, question), FIELD(WORD_BROKEN, broken), FIELD(WORD_PID_ANY, pid),
			       FIELD(WORD_HOST, holder)}},
	[STORE_MSG_WHO] = {"who", {FIELD(WORD_TOKEN, token), FIELD(WORD_HOST, asker), FIELD(WORD_NAME, name)}},
	[STORE_MSG_HOLDER] = {"holder",
			      {FIELD(WORD_TOKEN, token), FIELD(WORD_HOST, holder), RANGE(range), FIELD(WORD_JOB, job)}},
	[STORE_MSG_HOLDERS] = {"holders",
			       {FIELD(WORD_TOKEN, token), FIELD(WORD_HOST, holder), FIELD(WORD_NUMBER, count)}},
	[STORE_MSG_TWICE] = {"twice", {FIELD(WORD_HOST, holder)}},
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
