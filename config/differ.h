/*
 * What two hosts name or protect differently, from the rules of both. For people. Pure, but for malloc().
 *
 * The rules are compared at one path for each rule that this rule matches. So what is found is true; but where rules
 * overlap in part, not everything is found. A tree may be mounted in different places: the same name for another path
 * is no difference. And a name that only one host has is a difference only if the two hosts share another name: else
 * they run other jobs.
 */
#ifndef DFLOCK_CONFIG_DIFFER_H
#define DFLOCK_CONFIG_DIFFER_H

#include <stddef.h>

#include "config/config.h"

enum differ_what {
	DIFFER_RENAMED,    /* a path has one lock name here and another one there */
	DIFFER_KEYED,      /* a lock name has one redis_key here, and another one or none there */
	DIFFER_ONLY_HERE,  /* nothing there has such a lock name */
	DIFFER_ONLY_THERE, /* nothing here has such a lock name */
};

struct difference {
	enum differ_what what;
	const struct rule *here, *there; /* NULL where there is none; owned by the two configurations */
};

/* Fills `out` with at most `max` differences, those of DIFFER_RENAMED first, then those of DIFFER_KEYED, and *count with how many there are. Returns 0,
 * -E2BIG (too many rules) or -ENOMEM. */
int differ_find(const struct config *here, const struct config *there, struct difference *out, size_t max,
		size_t *count);

/* The lock names that a rule gives, as a pattern for people: "app" (path), "app/?.lock" (glob), "app/..." (tree). Longer
 * ones than `size` are cut. */
void differ_show_names(const struct rule *rule, char *out, size_t size);

#endif
