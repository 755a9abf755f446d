/* The stores of a configuration: the default one, those with names, and what must not be true of two of them. Apart from server.c, which
 * knows the settings of one store and no other. */
#include "config/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config_store *stores_add(struct config *config, const char *name)
{
	struct config_store *stores = reallocarray(config->stores, config->store_count + 1, sizeof(*config->stores));

	if (!stores)
		return NULL;
	config->stores = stores;
	stores[config->store_count] = (struct config_store){.name = name, .shards = 1};
	return &stores[config->store_count++];
}

size_t stores_find(const struct config *config, const char *name)
{
	size_t i = 0;

	while (i < config->store_count && strcmp(config->stores[i].name, name) != 0)
		i++;
	return i;
}

/* FNV-1a. */
unsigned config_shard(const struct config_store *store, const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return hash % store->shards;
}

const char *config_store_group(const struct config_store *store, char group[CONFIG_GROUP_BYTES])
{
	snprintf(group, CONFIG_GROUP_BYTES, "store%s%s", *store->name ? "s." : "", store->name);
	return group;
}

bool stores_same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

/* Is it one server, with the same database, as far as the settings say? Nodes and sentinels: one of them is enough. */
static bool stores_are_one(const struct config_store *a, const struct config_store *b)
{
	bool listed = a->sentinel_count == 0;

	for (size_t i = 0; i < a->sentinel_count; i++)
		listed = listed || server_is_listed(b, &a->sentinels[i]);
	return listed && stores_same_text(a->master, b->master) && a->database == b->database &&
	       stores_same_text(a->postgresql, b->postgresql) && stores_same_text(a->zookeeper, b->zookeeper) &&
	       stores_same_text(a->socket, b->socket) && stores_same_text(a->address.host, b->address.host) &&
	       a->address.port == b->address.port;
}

/* The last store, beside those before it. */
static int stores_check(const struct config_reading *r, int line, const struct config *config)
{
	const struct config_store *last = &config->stores[config->store_count - 1];
	char group[CONFIG_GROUP_BYTES];
	unsigned count = 0;

	for (const struct config_store *s = config->stores; s < last; s++)
		if (stores_are_one(s, last))
			return reading_fail(
				r, line,
				"stores.%s has the server and database of %s, so that one lock would be two; "
				"expected a store of its own",
				last->name, config_store_group(s, group));
	for (const struct config_store *s = config->stores; s <= last; s++)
		count += s->shards;
	if (count > CONFIG_MAX_MEMBERS)
		return reading_fail(r, line,
				    "with stores.%s there are %u stores, each shard counted; expected at most %d",
				    last->name, count, CONFIG_MAX_MEMBERS);
	return 0;
}

static int stores_read_named(const struct config_reading *r, config_setting_t *setting, struct config *config)
{
	const char *name = config_setting_name(setting);
	int line = config_setting_source_line(setting), ret;
	char prefix[CONFIG_GROUP_BYTES + 1];
	struct config_reading in = *r;
	struct config_store *store;

	if (strlen(name) >= CONFIG_STORE_BYTES || strchr(name, '*')) /* which libconfig allows, and no other */
		return reading_fail(r, line, "stores has \"%.80s\"; expected 1 to %d letters, digits, '-' and '_'",
				    name, CONFIG_STORE_BYTES - 1);
	if (!config_setting_is_group(setting))
		return reading_fail(r, line, "stores.%s is no group; expected a group { name = value; }, as store is",
				    name);
	snprintf(prefix, sizeof(prefix), "stores.%s.", name);
	in.store = prefix;
	store = stores_add(config, name);
	ret = store ? server_read(&in, setting, store) : reading_out_of_memory(r);
	return ret < 0 ? ret : stores_check(r, line, config);
}

int stores_read(const struct config_reading *r, config_setting_t *group, config_setting_t *named, struct config *config)
{
	struct config_reading in = *r;
	int ret;

	in.store = "store.";
	ret = server_read(&in, group, &config->stores[0]);
	for (int i = 0; named && i < config_setting_length(named) && ret == 0; i++)
		ret = stores_read_named(r, config_setting_get_elem(named, (unsigned)i), config);
	return ret;
}

void stores_free(struct config *config)
{
	for (size_t i = config->store_count; i-- > 0;) /* [0] has what the strings of the others are in */
		server_free(&config->stores[i]);
	free(config->stores);
}
