#include "config/config.h"

#include <errno.h>
#include <string.h>

const struct rule *config_rule(const struct config *config, const char *path)
{
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
