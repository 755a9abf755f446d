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

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_HISTOGRAM };

#define METRIC_LABELS 2

struct metric {
	const char *name; /* without "dflock_": also its key in the keeper's JSON */
	enum metric_type type;
	const char *labels[METRIC_LABELS]; /* NULL: no more */
	const char *help;
};
extern const struct metric metrics_table[]; /* ends with name NULL */

/* Prints everything. answer: the keeper's; NULL: it is away. What does not fit metrics_table is left out. */
void metrics_print(const json_t *answer, FILE *f);

#endif
