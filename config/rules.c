#include "config/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int config_set_names(struct config *config, const char *dir)
{
	struct rule rule = {.kind = PAGE_RULE_TREE,
			    .on_lost = config->lease.on_lost,
			    .wait_warn_ms = config->lease.wait_warn_ms,
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

const struct rule *config_rule(const struct config *config, const char *path)
{
	const struct rule *names = &config->names;

	if (names->pattern && page_rule_matches(names->kind, names->pattern, path))
		return names;
	for (size_t i = 0; i < config->rule_count; i++)
		if (page_rule_matches(config->rules[i].kind, config->rules[i].pattern, path))
			return &config->rules[i];
	return NULL;
}

enum on_lost config_on_lost(const struct config *config, const char *path)
{
	const struct rule *rule = config_rule(config, path);

	return rule ? rule->on_lost : config->lease.on_lost;
}

int64_t config_at_least_ms(const struct config *config, const char *path)
{
	const struct rule *rule = config_rule(config, path);

	return rule ? rule->at_least_ms : 0;
}

int64_t config_wait_warn_ms(const struct config *config, const char *path)
{
	const struct rule *rule = config_rule(config, path);

	return rule ? rule->wait_warn_ms : 0;
}

int config_lock_name(const struct config *config, const char *path, char name[LOCK_NAME_BYTES])
{
	const struct rule *rule = config_rule(config, path);
	size_t head, tail;

	if (!rule)
		return -ENOENT;
	head = strlen(rule->name);
	tail = strlen(path + rule->fixed_len);
	if (head + tail >= LOCK_NAME_BYTES)
		return -ENAMETOOLONG;
	memcpy(name, rule->name, head);
	memcpy(name + head, path + rule->fixed_len, tail + 1);
	return 0;
}
