/*
 * What modules count, for `dflock metrics`: numbers, and no name of a lock, a file or a process, so any user may ask (as for
 * status). Each count belongs to the module that raises it; this one reads them.
 *
 * An answer takes the same time however many leases and callers there are (0.2 ms), and no system call but those that make and
 * send the memfd. However many ask, one answer is made in METRICS_PAUSE_MS, after the questions that get it: so those who ask
 * take no more than 1 % of the loop from others. It waits for nothing else: a reader that does not read has a descriptor, and the
 * keeper goes on.
 *
 * The JSON is {KEY: VALUE}. KEY is the metric's name without "dflock_"; VALUE a number, an object {LABEL: VALUE} for each
 * label that `dflock` knows the metric to have (cli/metrics.c), or a histogram {"le": [seconds], "counts": [one more],
 * "sum": seconds}. Durations and times are in seconds. A key that dflock does not know is left out there, so keepers and dflocks of
 * neighbouring versions understand each other.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_METRICS_H
#define DFLOCK_KEEPER_METRICS_H

#include <jansson.h>

struct keeper;
struct session;

#define METRICS_PAUSE_MS 50

/* Answers the session with WIRE_OK and a memfd, or a refusal: at once, or when the pause is over. */
void metrics_answer(struct session *s);

/* The document; the caller ends it with json_decref(). NULL: no memory left. */
json_t *metrics_json(const struct keeper *k);

#endif
