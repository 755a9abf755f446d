/*
 * What other hosts name or protect differently, for status: asked from the store, then compared in a worker.
 */
#ifndef DFLOCK_KEEPER_ELSEWHERE_H
#define DFLOCK_KEEPER_ELSEWHERE_H

#include <jansson.h>

struct config;
struct elsewhere;
struct store_rules;

/* Remembers the rules in force. NULL: no memory left. */
struct elsewhere *elsewhere_new(const struct config *config);
void elsewhere_free(struct elsewhere *e);
/* The digest of these rules, for store_read_rules(). */
const char *elsewhere_digest(const struct elsewhere *e);
/* Takes the answer of store_read_rules(). */
void elsewhere_take(struct elsewhere *e, const struct store_rules *rules, const char *error);
/*
 * Compares; in a worker, since it may take a tenth of a second. NULL without memory. Else an object:
 *   same        other keepers with these rules
 *   unknown     hosts and keepers whose rules are not known (another version, too long, or too many different ones)
 *   differences [{what, hosts, others, age_ms, here, here_as, there, there_as}]. what: "renamed" (one path has two lock
 *               names) or "keyed" (one lock name has two redis_keys, or one and none). hosts: [text], some of those for
 *               which it is true; others: how many more. here, there: "path /run/app.lock"; here_as, there_as: the lock
 *               names of that rule, "app"
 *   left_out    how many more differences
 *   alone       how many rules give a lock name that only one of two hosts has, of hosts that have others in common
 *   error       "", or why nothing is known
 */
json_t *elsewhere_json(const struct elsewhere *e);

#endif
