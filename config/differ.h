/*
 * What two hosts name or protect differently, or have in different stores, from the rules of both. For people. Pure, but for malloc().
 *
 * The rules are compared at one path for each rule that this rule matches. So what is found is true; but where rules
 * overlap in part, not everything is found. A tree may be mounted in different places: the same name for another path
 * is no difference.
 */
#ifndef DFLOCK_CONFIG_DIFFER_H
#define DFLOCK_CONFIG_DIFFER_H

#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"

struct difference {
	bool keyed; /* a lock name has one redis_key here, and another one or none there. Else a path has two lock names, or two stores */
	const struct rule *here, *there; /* owned by the two configurations */
};

/*
 * Fills `out` with at most `max` differences, and *count with how many there are. *alone: how many rules of the two hosts
 * give a lock name that the other host has not; 0 if the two hosts share no name at all: then they run other jobs.
 * Returns 0 or -E2BIG (too many rules).
 */
int differ_find(const struct config *here, const struct config *there, struct difference *out, size_t max,
		size_t *count, size_t *alone);

/* The lock names that a rule of this configuration gives, as a pattern for people: "app" (path), "app/?.lock" (glob), "app/..." (tree);
 * with its store if that has a name: "app (store payroll)". Longer ones than `size` are cut. */
void differ_show_names(const struct config *config, const struct rule *rule, char *out, size_t size);

#endif
