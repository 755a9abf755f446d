/* See differ.h. */
#include "config/differ.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIFFER_PAIRS_MAX 250000 /* a status waits for these comparisons */

/* What is known of one rule. Lock names have a '/' in front, so that they can be matched like paths. */
struct differ_rule {
	const struct rule *rule;
	char *path;  /* one that the rule matches, and no rule before it; NULL: none was found */
	char *name;  /* of that path; NULL with it */
	char *names; /* all lock names of the rule, as a pattern of its kind */
};

struct differ_side {
	const struct config *config;
	struct differ_rule *rules;
};

/* ---- one path for each rule ---- */

/* The end of the bracket expression at `p`; NULL if it is none. */
static const char *differ_bracket_end(const char *p)
{
	const char *first = p + 1 + (p[1] == '!' || p[1] == '^');

	for (p = first; *p && (p == first || *p != ']'); p++)
		if (*p == '\\' && p[1])
			p++;
	return *p ? p : NULL;
}

/* A byte that the bracket expression of this length matches; 0: none was found. */
static char differ_bracket_byte(const char *bracket, size_t len)
{
	char pattern[64], path[] = "/?";

	if (len + 2 > sizeof(pattern))
		return '\0';
	snprintf(pattern, sizeof(pattern), "/%.*s", (int)len, bracket);
	for (path[1] = '0'; path[1] <= 'z'; path[1]++)
		if (page_rule_matches(PAGE_RULE_GLOB, pattern, path))
			return path[1];
	return '\0';
}

/* A path that the glob most likely matches. */
static void differ_sample_glob(const char *pattern, char path[PATH_MAX + 2])
{
	const char *end;
	size_t len = 0;

	for (; *pattern && len < PATH_MAX; pattern++) {
		char c = *pattern;

		if (c == '*' || c == '?') {
			c = 'x';
		} else if (c == '[' && (end = differ_bracket_end(pattern))) {
			c = differ_bracket_byte(pattern, (size_t)(end + 1 - pattern));
			pattern = end;
		} else if (c == '\\' && pattern[1]) {
			c = *++pattern;
		}
		if (!c)
			break;
		path[len++] = c;
	}
	path[len] = '\0';
}

static void differ_sample(const struct rule *rule, char path[PATH_MAX + 2])
{
	if (rule->kind == PAGE_RULE_PATH)
		snprintf(path, PATH_MAX + 2, "%s", rule->pattern);
	else if (rule->kind == PAGE_RULE_TREE)
		snprintf(path, PATH_MAX + 2, "%s/x", rule->fixed_len ? rule->pattern : "");
	else
		differ_sample_glob(rule->pattern, path);
}

/* ---- all names of a rule ---- */

/* What follows the fixed part in a glob. */
static const char *differ_rest(const struct rule *rule)
{
	const char *p = rule->pattern;

	for (size_t i = 0; i < rule->fixed_len && *p; i++, p++)
		if (*p == '\\' && p[1])
			p++;
	return p;
}

static char *differ_names(const struct rule *rule)
{
	const char *rest = rule->kind == PAGE_RULE_GLOB ? differ_rest(rule) : "";
	char *names = malloc(2 * strlen(rule->name) + strlen(rest) + 2), *to = names;

	if (!names)
		return NULL;
	*to++ = '/';
	for (const char *from = rule->name; *from; from++) {
		if (rule->kind == PAGE_RULE_GLOB && strchr("*?[\\", *from))
			*to++ = '\\';
		*to++ = *from;
	}
	strcpy(to, rest);
	return names;
}

void differ_show_names(const struct rule *rule, char *out, size_t size)
{
	const char *rest = rule->kind == PAGE_RULE_GLOB   ? differ_rest(rule)
			   : rule->kind == PAGE_RULE_TREE ? "/..."
							  : "";

	snprintf(out, size, "%s%s", rule->name, rest);
}

/* ---- the two sides ---- */

static void differ_side_free(struct differ_side *side)
{
	for (size_t i = 0; side->rules && i < side->config->rule_count; i++) {
		free(side->rules[i].path);
		free(side->rules[i].name);
		free(side->rules[i].names);
	}
	free(side->rules);
}

static int differ_look_at(const struct config *config, struct differ_rule *d)
{
	char path[PATH_MAX + 2], name[LOCK_NAME_BYTES + 1] = "/";

	d->names = differ_names(d->rule);
	differ_sample(d->rule, path);
	if (config_rule(config, path) != d->rule || config_lock_name(config, path, name + 1) != 0)
		return d->names ? 0 : -ENOMEM;
	d->path = strdup(path);
	d->name = strdup(name);
	return d->names && d->path && d->name ? 0 : -ENOMEM;
}

static int differ_side_init(struct differ_side *side, const struct config *config)
{
	int ret = 0;

	side->config = config;
	side->rules = calloc(config->rule_count + 1, sizeof(*side->rules));
	if (!side->rules)
		return -ENOMEM;
	for (size_t i = 0; i < config->rule_count && ret == 0; i++) {
		side->rules[i].rule = &config->rules[i];
		ret = differ_look_at(config, &side->rules[i]);
	}
	return ret;
}

/* ---- comparing ---- */

struct differ_list {
	struct difference *out;
	size_t max, count;
	bool related; /* the two sides have a lock name in common */
};

static void differ_add(struct differ_list *list, enum differ_what what, const struct rule *here,
		       const struct rule *there)
{
	for (size_t i = 0; i < list->count && i < list->max; i++)
		if (list->out[i].what == what && list->out[i].here == here && list->out[i].there == there)
			return;
	if (list->count < list->max)
		list->out[list->count] = (struct difference){what, here, there};
	list->count++;
}

/* Has a rule of that side a lock name in common with this one? */
static bool differ_is_shared(const struct differ_side *side, const struct differ_rule *d)
{
	for (size_t i = 0; i < side->config->rule_count; i++) {
		const struct differ_rule *other = &side->rules[i];

		if ((d->name && page_rule_matches(other->rule->kind, other->names, d->name)) ||
		    (other->name && page_rule_matches(d->rule->kind, d->names, other->name)))
			return true;
	}
	return false;
}

/* At the path of `d`, a rule of the side `mine`. `here`: that is this host. */
static void differ_compare_rule(const struct differ_side *other, const struct differ_rule *d, bool here,
				struct differ_list *list)
{
	const struct rule *rule = d->path ? config_rule(other->config, d->path) : NULL;
	char name[LOCK_NAME_BYTES] = "";

	if (rule && config_lock_name(other->config, d->path, name) == 0 && strcmp(name, d->name + 1) != 0)
		differ_add(list, DIFFER_RENAMED, here ? d->rule : rule, here ? rule : d->rule);
	else if (rule)
		list->related = true;
}

/* A lock name with a redis_key belongs to one path, and its rule to that path alone. */
static void differ_compare_keys(const struct differ_side *mine, const struct differ_side *other, bool here,
				struct differ_list *list)
{
	for (size_t i = 0; i < mine->config->rule_count; i++) {
		const struct differ_rule *d = &mine->rules[i];

		if (!d->rule->redis_key || !d->name)
			continue;
		for (size_t j = 0; j < other->config->rule_count; j++) {
			const struct rule *rule = other->rules[j].rule;

			if (page_rule_matches(rule->kind, other->rules[j].names, d->name) &&
			    (!rule->redis_key || strcmp(rule->redis_key, d->rule->redis_key) != 0))
				differ_add(list, DIFFER_KEYED, here ? d->rule : rule, here ? rule : d->rule);
		}
	}
}

static void differ_compare_names(const struct differ_side *mine, const struct differ_side *other, bool here,
				 struct differ_list *list)
{
	for (size_t i = 0; i < mine->config->rule_count; i++) {
		const struct differ_rule *d = &mine->rules[i];

		/* Where the other side has the path itself, differ_compare_rule() has said all. */
		if (!d->path || config_rule(other->config, d->path) || differ_is_shared(other, d))
			continue;
		differ_add(list, here ? DIFFER_ONLY_HERE : DIFFER_ONLY_THERE, here ? d->rule : NULL,
			   here ? NULL : d->rule);
	}
}

static void differ_compare(const struct differ_side *here, const struct differ_side *there, struct differ_list *list)
{
	for (size_t i = 0; i < here->config->rule_count; i++) {
		differ_compare_rule(there, &here->rules[i], true, list);
		list->related = list->related || differ_is_shared(there, &here->rules[i]);
	}
	for (size_t i = 0; i < there->config->rule_count; i++)
		differ_compare_rule(here, &there->rules[i], false, list);
	differ_compare_keys(here, there, true, list);
	differ_compare_keys(there, here, false, list);
	if (!list->related)
		return;
	differ_compare_names(here, there, true, list);
	differ_compare_names(there, here, false, list);
}

int differ_find(const struct config *here, const struct config *there, struct difference *out, size_t max,
		size_t *count)
{
	struct differ_side a = {.config = here}, b = {.config = there};
	struct differ_list list = {.out = out, .max = max};
	int ret;

	*count = 0;
	if (there->rule_count && here->rule_count > DIFFER_PAIRS_MAX / there->rule_count)
		return -E2BIG;
	ret = differ_side_init(&a, here);
	if (ret == 0)
		ret = differ_side_init(&b, there);
	if (ret == 0)
		differ_compare(&a, &b, &list);
	differ_side_free(&a);
	differ_side_free(&b);
	*count = list.count;
	return ret;
}
