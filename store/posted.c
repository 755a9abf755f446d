/* The calls of store.h about the rules of hosts. They are for people, so no answer to them, however odd, brings the store
 * down: query_nonsense() is not called here. */
#include "store/internal.h"

#include <inttypes.h>
#include <string.h>

#define RULES_NONSENSE "the answer is none that dflock's scripts give: is this the store of another version?"

/* ---- recording ---- */

static void rules_on_posted(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store_reply answer = {.status = status, .error = error};
	const char *verdict = reply && reply->type == REDIS_REPLY_ARRAY ? reply_text(reply, 0) : NULL;

	if (verdict && strcmp(verdict, "FULL") == 0) {
		answer = (struct store_reply){.status = STORE_LIMIT};
	} else if (reply && (!verdict || strcmp(verdict, "OK") != 0)) {
		answer = (struct store_reply){.status = STORE_ERROR, .error = RULES_NONSENSE};
	}
	q->cb.reply(q->arg, &answer);
}

void store_post_rules(struct store *s, const struct store_posting *posting, store_reply_cb *cb, void *arg)
{
	struct query *q = query_script(s, SCRIPT_POST, NULL, arg);

	query_words(q, posting->place, s->host, posting->digest, posting->text, NULL);
	query_add(q, "%" PRId64, posting->keep_ms);
	q->cb.reply = cb;
	query_send(q, rules_on_posted);
}

/* ---- reading ---- */

static bool rules_parse_hosts(const redisReply *list, struct store_ruleset *set)
{
	for (size_t i = 3; i < list->elements; i += 2) {
		const char *host = reply_text(list, i), *age = reply_text(list, i + 1);
		uint64_t age_ms;

		if (set->host_count == STORE_RULESET_HOSTS || !host || !word_is_host(host) || !age ||
		    !word_number(age, &age_ms) || age_ms > INT64_MAX)
			return false;
		strcpy(set->hosts[set->host_count].host, host);
		set->hosts[set->host_count++].age_ms = (int64_t)age_ms;
	}
	return true;
}

static bool rules_parse_set(const redisReply *list, struct store_ruleset *set)
{
	const char *places = list->type == REDIS_REPLY_ARRAY ? reply_text(list, 1) : NULL;

	/* The text may be of any bytes; ruleset_parse() judges it. */
	if (!places || !word_number(places, &set->places) || list->elements < 3 ||
	    list->element[2]->type != REDIS_REPLY_STRING)
		return false;
	set->text = list->element[2]->str;
	set->len = list->element[2]->len;
	return rules_parse_hosts(list, set);
}

static bool rules_parse(const redisReply *reply, struct store_rules *out)
{
	const char *words[4];

	*out = (struct store_rules){.count = 0};
	if (reply->type != REDIS_REPLY_ARRAY)
		return false;
	for (size_t i = 0; i < 4; i++)
		words[i] = reply_text(reply, i);
	if (!words[0] || strcmp(words[0], "OK") != 0 || !words[1] || !word_number(words[1], &out->same) || !words[2] ||
	    !word_number(words[2], &out->unknown) || !words[3] || !word_number(words[3], &out->left_out))
		return false;
	for (size_t i = 4; i < reply->elements; i++)
		if (out->count == STORE_MAX_RULESETS || !rules_parse_set(reply->element[i], &out->sets[out->count++]))
			return false;
	return true;
}

static void rules_on_read(struct query *q, const redisReply *reply, enum store_status status, const char *error)
{
	struct store_rules rules;

	(void)status;
	if (!reply)
		q->cb.rules(q->arg, NULL, error);
	else if (!rules_parse(reply, &rules))
		q->cb.rules(q->arg, NULL, RULES_NONSENSE);
	else
		q->cb.rules(q->arg, &rules, NULL);
}

void store_read_rules(struct store *s, const char *place, const char *digest, store_rules_cb *cb, void *arg)
{
	struct query *q = query_script(s, SCRIPT_RULES, NULL, arg);

	query_words(q, place, digest, NULL);
	q->cb.rules = cb;
	query_send(q, rules_on_read);
}
