/*
 * dflock metrics: what the keeper counts, as Prometheus text (exposition format 0.0.4).
 *
 * Labels have a fixed set of values. No label has a lock name, a path, a process or a host id: any user can make as many lock
 * names as a pattern allows, each would be a series that Prometheus keeps for months, and names may be nobody else's
 * business. `dflock status --json` has them for now.
 */
#ifndef DFLOCK_CLI_METRICS_H
#define DFLOCK_CLI_METRICS_H

#include <jansson.h>
#include <stdio.h>

/* Prints everything. answer: the keeper's; NULL: it is away. What does not fit the table of metrics is left out. */
void metrics_print(const json_t *answer, FILE *f);

#endif
