/* See elsewhere.h. */
#include "keeper/callers/elsewhere.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/differ.h"
#include "config/ruleset.h"
#include "keeper/callers/picture.h"
#include "store/store.h"

#define ELSEWHERE_PER_SET 8  /* differences that are named for one set of rules */
#define ELSEWHERE_MAX     24 /* in all */

struct elsewhere {
	char *own; /* ruleset_text() */
	char digest[RULESET_DIGEST_BYTES];
	char *error; /* why the store's answer is not known; NULL: it is */
	struct store_rules rules;
	char *texts[STORE_MAX_RULESETS]; /* copies: rules.sets[].text is the store's */
};

struct elsewhere *elsewhere_new(const struct config *config)
{
	struct elsewhere *e = calloc(1, sizeof(*e));

	if (e)
		e->own = ruleset_text(config);
	if (e && e->own) {
		ruleset_digest(e->own, e->digest);
		return e;
	}
	free(e);
	return NULL;
}

void elsewhere_free(struct elsewhere *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < STORE_MAX_RULESETS; i++)
		free(e->texts[i]);
	free(e->error);
	free(e->own);
	free(e);
}

const char *elsewhere_digest(const struct elsewhere *e)
{
	return e->digest;
}

void elsewhere_take(struct elsewhere *e, const struct store_rules *rules, const char *error)
{
	if (!rules) {
		e->error = strdup(error ? error : "");
		return;
	}
	e->rules = *rules;
	for (size_t i = 0; i < rules->count; i++) {
		e->texts[i] = rules->sets[i].len < RULESET_BYTES ? malloc(rules->sets[i].len + 1) : NULL;
		if (e->texts[i])
			memcpy(e->texts[i], rules->sets[i].text, rules->sets[i].len);
		e->rules.sets[i].text = e->texts[i];
	}
}

/* ---- in a worker ---- */

static json_t *elsewhere_rule(const struct rule *rule)
{
	char text[PATH_MAX + 16];

	if (!rule)
		return json_string("");
	snprintf(text, sizeof(text), "%s %s", rule->kind == PAGE_RULE_TREE ? "tree" : "path", rule->pattern);
	return picture_bytes(text);
}

static json_t *elsewhere_names(const struct rule *rule)
{
	char names[PATH_MAX + LOCK_NAME_BYTES];

	if (!rule)
		return json_string("");
	differ_show_names(rule, names, sizeof(names));
	return picture_bytes(names);
}

static json_t *elsewhere_difference(const struct store_ruleset *set, const struct difference *d)
{
	static const char *const words[] = {[DIFFER_RENAMED] = "renamed",
					    [DIFFER_KEYED] = "keyed",
					    [DIFFER_ONLY_HERE] = "only_here",
					    [DIFFER_ONLY_THERE] = "only_there"};
	json_t *hosts = json_array();
	int64_t age_ms = 0;

	for (size_t i = 0; i < set->host_count; i++) {
		json_array_append_new(hosts, json_string(set->hosts[i].host));
		if (set->hosts[i].age_ms > age_ms)
			age_ms = set->hosts[i].age_ms;
	}
	return json_pack("{s:s,s:o,s:I,s:I,s:o,s:o,s:o,s:o}", "what", words[d->what], "hosts", hosts, "others",
			 (json_int_t)(set->places > set->host_count ? set->places - set->host_count : 0), "age_ms",
			 (json_int_t)age_ms, "here", elsewhere_rule(d->here), "here_as", elsewhere_names(d->here),
			 "there", elsewhere_rule(d->there), "there_as", elsewhere_names(d->there));
}

struct comparison {
	json_t *differences;
	uint64_t same, unknown, left_out;
};

static void elsewhere_compare(const struct store_ruleset *set, const struct config *own, struct comparison *all)
{
	struct difference found[ELSEWHERE_PER_SET];
	struct config *other = NULL;
	size_t count, named = 0;

	if (!set->text || !own || ruleset_parse(set->text, set->len, &other) < 0 ||
	    differ_find(own, other, found, ELSEWHERE_PER_SET, &count) < 0) {
		all->unknown += set->places;
	} else {
		if (!count)
			all->same += set->places; /* in another order, or in other places */
		for (; named < count && named < ELSEWHERE_PER_SET; named++) {
			if (json_array_size(all->differences) == ELSEWHERE_MAX)
				break;
			json_array_append_new(all->differences, elsewhere_difference(set, &found[named]));
		}
		all->left_out += count - named;
	}
	config_free(other);
}

json_t *elsewhere_json(const struct elsewhere *e)
{
	struct comparison all = {
		.differences = json_array(), .same = e->rules.same, .unknown = e->rules.unknown + e->rules.left_out};
	struct config *own = NULL;

	ruleset_parse(e->own, strlen(e->own), &own); /* NULL: too many rules to be compared */
	for (size_t i = 0; i < e->rules.count; i++)
		elsewhere_compare(&e->rules.sets[i], own, &all);
	config_free(own);
	return json_pack("{s:I,s:I,s:o,s:I,s:s}", "same", (json_int_t)all.same, "unknown", (json_int_t)all.unknown,
			 "differences", all.differences, "left_out", (json_int_t)all.left_out, "error",
			 e->error ? e->error : "");
}
