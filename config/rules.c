#include "config/config.h"

#include <errno.h>
#include <string.h>

int config_lock_name(const struct config *config, const char *path, char name[LOCK_NAME_BYTES])
{
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule *rule = &config->rules[i];
		size_t head = strlen(rule->name), tail;

		if (!page_rule_matches(rule->kind, rule->pattern, path))
			continue;
		tail = strlen(path + rule->fixed_len);
		if (head + tail >= LOCK_NAME_BYTES)
			return -ENAMETOOLONG;
		memcpy(name, rule->name, head);
		memcpy(name + head, path + rule->fixed_len, tail + 1);
		return 0;
	}
	return -ENOENT;
}
