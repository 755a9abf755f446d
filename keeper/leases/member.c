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

struct member *member_of_name(struct keeper *k, const char *name)
{
	return &k->members[config_store_of(k->config, name)];
}

struct member *member_of_path(struct keeper *k, const char *path)
{
	const struct rule *rule = config_rule(k->config, path);

	return &k->members[rule ? rule->store : 0];
}
