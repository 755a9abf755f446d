/* See differ.h. */
#include "config/differ.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define DIFFER_PAIRS_MAX 250000 /* a status waits for these comparisons */

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

void differ_show_names(const struct config *config, const struct rule *rule, char *out, size_t size)
{
	const char *store = config->stores[rule->store].name, *rest = rule->kind == PAGE_RULE_TREE ? "/..." : "";

	if (rule->kind == PAGE_RULE_GLOB) {
		rest = rule->pattern;
		for (size_t i = 0; i < rule->fixed_len && *rest; i++, rest++)
			if (*rest == '\\' && rest[1])
				rest++;
	}
	snprintf(out, size, "%s%s%s%s%s", rule->name, rest, *store ? " (store " : "", store, *store ? ")" : "");
}

/* ---- comparing ---- */

struct differ_list {
	struct difference *out;
	size_t max, count, alone;
	bool related; /* the two hosts have a lock name in common */
};

static void differ_add(struct differ_list *list, bool keyed, const struct rule *here, const struct rule *there)
{
	for (size_t i = 0; i < list->count && i < list->max; i++)
		if (list->out[i].keyed == keyed && list->out[i].here == here && list->out[i].there == there)
			return;
	if (list->count < list->max)
		list->out[list->count] = (struct difference){keyed, here, there};
	list->count++;
}

static bool differ_in_key(const struct rule *a, const struct rule *b)
{
	return a->redis_key && b->redis_key ? strcmp(a->redis_key, b->redis_key) != 0 : a->redis_key || b->redis_key;
}

/* May a rule of the other host be for a part of the files of a tree or glob? */
static bool differ_is_around(const struct rule *rule, const struct config *others)
{
	for (size_t i = 0; i < others->rule_count; i++)
		if (rule->kind != PAGE_RULE_PATH && strncmp(others->rules[i].name, rule->name, strlen(rule->name)) == 0)
			return true;
	return false;
}

/* At one path of the rule, and at the path that has its lock name on the other host. `here`: the rule is this host's. */
static void differ_compare_rule(const struct config *mine, const struct rule *rule, const struct config *others,
				bool here, bool keyed, struct differ_list *list)
{
	char path[PATH_MAX + 2], back[PATH_MAX], name[LOCK_NAME_BYTES], other_name[LOCK_NAME_BYTES] = "";
	const struct rule *at_path, *of_name, *other;
	bool renamed;

	differ_sample(rule, path);
	if (config_rule(mine, path) != rule || config_lock_name(mine, path, name) != 0)
		return; /* another rule hides it */
	at_path = config_rule(others, path);
	of_name = config_path_of(others, name, back) == 0 ? config_rule(others, back) : NULL;
	other = keyed || !at_path ? of_name : at_path;
	renamed = (at_path && config_lock_name(others, path, other_name) == 0 && strcmp(name, other_name) != 0) ||
		  (other && strcmp(mine->stores[rule->store].name, others->stores[other->store].name) != 0);
	if (keyed ? other && differ_in_key(rule, other) : renamed)
		differ_add(list, keyed, here ? rule : other, here ? other : rule);
	list->related |= of_name || (at_path && !renamed);
	list->alone += !keyed && !at_path && !of_name && !differ_is_around(rule, others);
}

int differ_find(const struct config *here, const struct config *there, struct difference *out, size_t max,
		size_t *count, size_t *alone)
{
	struct differ_list list = {.out = out, .max = max};

	if (there->rule_count && here->rule_count > DIFFER_PAIRS_MAX / there->rule_count)
		return -E2BIG;
	for (int keyed = 0; keyed < 2; keyed++) {
		for (size_t i = 0; i < here->rule_count; i++)
			differ_compare_rule(here, &here->rules[i], there, true, keyed, &list);
		for (size_t i = 0; i < there->rule_count; i++)
			differ_compare_rule(there, &there->rules[i], here, false, keyed, &list);
	}
	*count = list.count;
	*alone = list.related ? list.alone : 0;
	return 0;
}
