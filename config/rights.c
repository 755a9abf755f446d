#include "config/rights.h"

#include <stdbool.h>

enum needed {
	NEEDED_ALWAYS,
	NEEDED_WITH_DATABASE,
	NEEDED_WITH_REPLICAS,
	NEEDED_WITH_CLUSTER,
	NEEDED_WITH_KEYS,
	NEEDED_KINDS
};

/* Commands of store/, and those that the scripts of store/rules call: Redis checks these, too. */
static const struct {
	const char *word;
	enum needed needed;
} rights[] = {
	{"client|setname", NEEDED_ALWAYS},
	{"cluster|slots", NEEDED_WITH_CLUSTER},
	{"del", NEEDED_ALWAYS},
	{"eval", NEEDED_ALWAYS}, /* once the server has forgotten the scripts */
	{"evalsha", NEEDED_ALWAYS},
	{"exists", NEEDED_ALWAYS},
	{"get", NEEDED_ALWAYS},
	{"getrange", NEEDED_WITH_KEYS},
	{"hdel", NEEDED_ALWAYS},
	{"hexists", NEEDED_ALWAYS},
	{"hget", NEEDED_ALWAYS},
	{"hgetall", NEEDED_ALWAYS},
	{"hincrby", NEEDED_ALWAYS},
	{"hkeys", NEEDED_ALWAYS},
	{"hlen", NEEDED_ALWAYS},
	{"hmget", NEEDED_ALWAYS},
	{"hrandfield", NEEDED_ALWAYS},
	{"hset", NEEDED_ALWAYS},
	{"hsetnx", NEEDED_WITH_KEYS},
	{"info", NEEDED_ALWAYS},
	{"pexpire", NEEDED_ALWAYS},
	{"ping", NEEDED_ALWAYS},
	{"pttl", NEEDED_ALWAYS},
	{"publish", NEEDED_ALWAYS},
	{"scan", NEEDED_ALWAYS},
	{"script|load", NEEDED_ALWAYS},
	{"select", NEEDED_WITH_DATABASE},
	{"set", NEEDED_ALWAYS},
	{"setrange", NEEDED_ALWAYS},
	{"strlen", NEEDED_ALWAYS},
	{"subscribe", NEEDED_ALWAYS},
	{"time", NEEDED_ALWAYS},
	{"type", NEEDED_WITH_KEYS},
	{"unsubscribe", NEEDED_WITH_KEYS},
	{"wait", NEEDED_WITH_REPLICAS},
};
_Static_assert(sizeof(rights) / sizeof(*rights) <= RIGHTS_MAX, "raise RIGHTS_MAX");

static bool rights_need(const struct config_store *store, enum needed needed)
{
	const bool needs[NEEDED_KINDS] = {[NEEDED_ALWAYS] = true,
					  [NEEDED_WITH_DATABASE] = !store || store->database > 0,
					  [NEEDED_WITH_REPLICAS] = !store || store->replicas > 0,
					  [NEEDED_WITH_CLUSTER] = !store || store->cluster,
					  [NEEDED_WITH_KEYS] = !store || store->keys};

	return needs[needed];
}

size_t rights_of_server(const struct config_store *store, const char *words[RIGHTS_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); i++)
		if (rights_need(store, rights[i].needed))
			words[n++] = rights[i].word;
	return n;
}

size_t rights_of_sentinel(const char *words[RIGHTS_MAX])
{
	words[0] = "sentinel|get-master-addr-by-name"; /* the keeper */
	words[1] = "sentinel|master";                  /* dflock doctor */
	return 2;
}
