/* See picture.h. */

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
	struct config *own; /* the rules alone; NULL: too many to be compared */
	char digest[RULESET_DIGEST_BYTES];
	char *error; /* why the store's answer is not known; NULL: it is */
	struct store_rules rules;
	struct config *others[STORE_MAX_RULESETS]; /* of rules.sets; NULL: not known, or no rules */
};

struct elsewhere *elsewhere_new(const struct config *config)
{
	struct elsewhere *e = calloc(1, sizeof(*e));
	char *text = ruleset_text(config);

	if (e && text) {
		ruleset_digest(text, e->digest);
		ruleset_parse(text, strlen(text), &e->own);
	} else {
		free(e);
		e = NULL;
	}
	free(text);
	return e;
}

void elsewhere_free(struct elsewhere *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < STORE_MAX_RULESETS; i++)
		config_free(e->others[i]);
	config_free(e->own);
	free(e->error);
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
	for (size_t i = 0; i < rules->count; i++)
		ruleset_parse(rules->sets[i].text, rules->sets[i].len, &e->others[i]);
}

/* ---- in a worker ---- */

static json_t *elsewhere_rule(const struct rule *rule)
{
	char text[PATH_MAX + 16];

	snprintf(text, sizeof(text), "%s %s", rule->kind == PAGE_RULE_TREE ? "tree" : "path", rule->pattern);
	return picture_text(text);
}

static json_t *elsewhere_names(const struct config *config, const struct rule *rule)
{
	char names[PATH_MAX + LOCK_NAME_BYTES + CONFIG_STORE_BYTES];

	differ_show_names(config, rule, names, sizeof(names));
	return picture_text(names);
}

static json_t *elsewhere_difference(const struct elsewhere *e, size_t at, const struct difference *d)
{
	const struct store_ruleset *set = &e->rules.sets[at];
	json_t *hosts = json_array();
	int64_t age_ms = 0;

	for (size_t i = 0; i < set->host_count; i++) {
		json_array_append_new(hosts, json_string(set->hosts[i].host));
		if (set->hosts[i].age_ms > age_ms)
			age_ms = set->hosts[i].age_ms;
	}
	return json_pack("{s:s,s:o,s:I,s:I,s:o,s:o,s:o,s:o}", "what", d->keyed ? "keyed" : "renamed", "hosts", hosts,
			 "others", (json_int_t)(set->places > set->host_count ? set->places - set->host_count : 0),
			 "age_ms", (json_int_t)age_ms, "here", elsewhere_rule(d->here), "here_as",
			 elsewhere_names(e->own, d->here), "there", elsewhere_rule(d->there), "there_as",
			 elsewhere_names(e->others[at], d->there));
}

json_t *elsewhere_json(const struct elsewhere *e)
{
	json_t *differences = json_array();
	uint64_t same = e->rules.same, unknown = e->rules.unknown + e->rules.left_out, left_out = 0, all_alone = 0;

	for (size_t i = 0; i < e->rules.count; i++) {
		const struct store_ruleset *set = &e->rules.sets[i];
		struct difference found[ELSEWHERE_PER_SET];
		size_t count, alone, named = 0;

		if (!e->own || !e->others[i] ||
		    differ_find(e->own, e->others[i], found, ELSEWHERE_PER_SET, &count, &alone) < 0) {
			unknown += set->places;
			continue;
		}
		if (!count && !alone)
			same += set->places; /* in another order, or in other places */
		for (; named < count && named < ELSEWHERE_PER_SET && json_array_size(differences) < ELSEWHERE_MAX;
		     named++)
			json_array_append_new(differences, elsewhere_difference(e, i, &found[named]));
		left_out += count - named;
		all_alone += alone;
	}
	return json_pack("{s:I,s:I,s:o,s:I,s:I,s:s}", "same", (json_int_t)same, "unknown", (json_int_t)unknown,
			 "differences", differences, "left_out", (json_int_t)left_out, "alone", (json_int_t)all_alone,
			 "error", e->error ? e->error : "");
}
