/* What the rest of the keeper asks of its stores: see host.h. Apart from host.c, which reaches them. */
#include "keeper/leases/host.h"

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"

bool host_is_unsure(const struct keeper *k)
{
	for (unsigned i = 0; i < k->member_count; i++)
		if (member_is_past(&k->members[i]) ||
		    (k->members[i].deadline.expired && member_has_leases(&k->members[i])))
			return true;
	return false;
}

int64_t host_deadline_ns(const struct keeper *k)
{
	int64_t first = INT64_MAX;

	for (unsigned i = 0; i < k->member_count; i++)
		if (member_has_leases(&k->members[i]) && k->members[i].deadline.at_ns < first)
			first = k->members[i].deadline.at_ns;
	return first;
}

void member_want(struct member *m)
{
	m->wanted = true;
	m->needed_ns = clock_now_ns();
	if (m->store && m->first->agreed)
		store_reach(m->store);
	else /* it waits for the first one */
		m->tried |= m->first->tried && !store_is_up(m->first->store);
}

static struct member *member_of(struct keeper *k, size_t store, const char *name)
{
	struct member *m = k->members;

	while (store-- > 0)
		m += m->config->shards;
	m += config_shard(m->config, name);
	member_want(m);
	return m;
}

struct member *member_of_name(struct keeper *k, const char *name)
{
	return member_of(k, config_store_of(k->config, name), name);
}

struct member *member_of_path(struct keeper *k, const char *path, const char *name)
{
	const struct rule *rule = config_rule(k->config, path);

	return member_of(k, rule ? rule->store : 0, name);
}

const char *member_name(const struct member *m, char name[MEMBER_NAME_BYTES])
{
	int len = snprintf(name, MEMBER_NAME_BYTES, "%s", *m->config->name ? m->config->name : "default");

	if (m->config->shards > 1)
		snprintf(name + len, MEMBER_NAME_BYTES - (size_t)len, "/%u", m->shard);
	return name;
}

bool host_reaches_all(struct keeper *k)
{
	bool all = true;

	for (struct member *m = k->members; m < k->members + k->member_count; m++) {
		member_want(m);
		all = all && (m == m->first || m->tried);
	}
	return all;
}
