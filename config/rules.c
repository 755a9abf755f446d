#include "config/internal.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int config_set_names(struct config *config, const char *dir)
{
	struct rule rule = {.kind = PAGE_RULE_TREE,
			    .on_lost = config->lease.on_lost,
			    .wait_warn_ms = config->lease.wait_warn_ms,
			    .on_refused = config->lease.on_refused,
			    .fixed_len = strlen(dir) + 1};

	rule.pattern = strdup(dir);
	rule.name = strdup(CONFIG_NAMES);
	if (!rule.pattern || !rule.name) {
		free(rule.pattern);
		free(rule.name);
		return -ENOMEM;
	}
	config->names = rule;
	return 0;
}

/* For many rules, one file each: strcmp() takes a tenth of the time of the matcher, which reads memory that others change. */
static bool rules_match(const struct rule *rule, const char *path)
{
	return rule->kind == PAGE_RULE_PATH ? strcmp(rule->pattern, path) == 0
					    : page_rule_matches(rule->kind, rule->pattern, path);
}

const struct rule *config_rule(const struct config *config, const char *path)
{
	const struct rule *names = &config->names;

	if (names->pattern && page_rule_matches(names->kind, names->pattern, path))
		return names;
	for (size_t i = 0; i < config->rule_count; i++)
		if (rules_match(&config->rules[i], path))
			return &config->rules[i];
	return NULL;
}

/* `file` stands for a lock without a file. The length of the lock's name in *len, and the rest that begins with it; 0:
 * none, and the name is the whole of `file`. Users make these files, so it may be any text. */
static int64_t rules_named_rest(const char *file, size_t *len)
{
	const char *mark = strrchr(file, CONFIG_NAMES_REST);
	int64_t ms = 0;

	*len = strlen(file);
	if (!mark || mark == file || mark[1] == '0')
		return 0;
	for (const char *p = mark + 1; *p; p++) {
		if (*p < '0' || *p > '9')
			return 0;
		ms = ms * 10 + (*p - '0');
		if (ms > CONFIG_RULE_MAX_MS)
			return 0;
	}
	if (ms)
		*len = (size_t)(mark - file);
	return ms;
}

struct rule config_rule_for(const struct config *config, const char *path)
{
	const struct rule *rule = config_rule(config, path);
	struct rule values =
		rule ? *rule : (struct rule){.on_lost = config->lease.on_lost, .on_refused = config->lease.on_refused};
	size_t len;

	if (rule == &config->names)
		values.at_least_ms = rules_named_rest(path + rule->fixed_len, &len);
	return values;
}

void rules_fixed_path(const struct rule *rule, char out[PATH_MAX])
{
	const char *from = rule->pattern;
	size_t len = 0;

	while (len < rule->fixed_len && len < PATH_MAX - 1 && *from) {
		if (rule->kind == PAGE_RULE_GLOB && *from == '\\' && from[1])
			from++;
		out[len++] = *from++;
	}
	out[len] = '\0';
}

/* The next rule that gives a file this lock name, and that file in `path`. *next: 0 at first. `beside`: only those in other stores than this
 * one's; NULL: all. NULL: there is none. */
static const struct rule *rules_of_name(const struct config *config, const char *name, const struct rule *beside,
					size_t *next, char path[PATH_MAX])
{
	const size_t rules = strlen(name) < LOCK_NAME_BYTES ? config->rule_count : 0;

	while (*next < rules) {
		const struct rule *rule = &config->rules[(*next)++];
		size_t head, fixed;

		if (beside && rule->store == beside->store)
			continue;
		head = strlen(rule->name);
		if (strncmp(rule->name, name, head) != 0)
			continue;
		rules_fixed_path(rule, path);
		fixed = strlen(path);
		/* Another rule that matches this path gives it a name of its own, and is looked at itself. */
		if (snprintf(path + fixed, PATH_MAX - fixed, "%s", name + head) < (int)(PATH_MAX - fixed) &&
		    config_rule(config, path) == rule)
			return rule;
	}
	return NULL;
}

int config_path_of(const struct config *config, const char *name, char path[PATH_MAX])
{
	size_t next = 0;

	return rules_of_name(config, name, NULL, &next, path) ? 0 : -ENOENT;
}

const char *config_redis_key_of(const struct config *config, const char *name)
{
	const struct rule *rule = config->rules;

	/* Such a rule is for one path. */
	for (; rule < config->rules + config->rule_count; rule++)
		if (rule->redis_key && strcmp(rule->name, name) == 0 && config_rule(config, rule->pattern) == rule)
			return rule->redis_key;
	return NULL;
}

size_t config_store_of(const struct config *config, const char *name)
{
	char path[PATH_MAX];
	size_t next = 0;
	const struct rule *rule = rules_of_name(config, name, NULL, &next, path);

	return rule ? rule->store : 0;
}

const struct rule *rules_in_two_stores(const struct config *config, const struct rule *rule)
{
	/* A name in a tree that no file has, so no other rule is about it alone. */
	const char *rest = rule->kind == PAGE_RULE_TREE ? "/." : "";
	char path[PATH_MAX + 2], name[LOCK_NAME_BYTES + 2], back[PATH_MAX];
	const struct rule *other;
	size_t next = 0;

	if (rule->kind == PAGE_RULE_GLOB)
		return NULL;
	snprintf(name, sizeof(name), "%s%s", rule->name, rest);
	other = rules_of_name(config, name, rule, &next, back);
	if (!other)
		return NULL;
	rules_fixed_path(rule, path);
	strcat(path, rest);
	return config_rule(config, path) == rule ? other : NULL;
}

int config_lock_name(const struct config *config, const char *path, char name[LOCK_NAME_BYTES])
{
	const struct rule *rule = config_rule(config, path);
	size_t head, tail;

	if (!rule)
		return -ENOENT;
	head = strlen(rule->name);
	tail = strlen(path + rule->fixed_len);
	if (rule == &config->names)
		rules_named_rest(path + rule->fixed_len, &tail);
	if (head + tail >= LOCK_NAME_BYTES)
		return -ENAMETOOLONG;
	memcpy(name, rule->name, head);
	memcpy(name + head, path + rule->fixed_len, tail);
	name[head + tail] = '\0';
	return 0;
}
