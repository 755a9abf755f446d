/* Does the keeper's loop turn, as far as the parent can see? Pure: time and counter are arguments. */
#ifndef DFLOCK_KEEPER_PULSE_H
#define DFLOCK_KEEPER_PULSE_H

#include <stdbool.h>
#include <stdint.h>

#define PULSE_CHECK_MS 1000
#define PULSE_QUICK_MS 100 /* where leases run out soon */
/* A loop that did not turn once in this time hangs, even if it may only wait for a processor. */
#define PULSE_HUNG_MS 5000

struct pulse {
	int64_t alive;     /* the keeper's counter, when it was looked at last; -1: not yet */
	int64_t looked_ns; /* and when that was */
	int64_t since_ns;  /* the loop was seen to turn last */
	int64_t still_ns;  /* time since then in which the parent ran (not on a suspended machine) */
};

/* A keeper was started. */
void pulse_start(struct pulse *pulse, int64_t now_ns);
/* How often to look, in ms: a loop that stands still is noticed two periods later than it might be. patience_ns:
 * table_patience_ns() since pulse->since_ns. */
int pulse_period_ms(int64_t patience_ns);
/*
 * Looks: does the loop hang? alive: the counter now. patience_ns: as before this look. waits: the loop only waits for a
 * processor. It then gets more time than the leases may have: killing it would not help, since the next keeper would
 * have no processor either.
 */
bool pulse_hangs(struct pulse *pulse, int64_t alive, int64_t now_ns, int64_t patience_ns, bool waits);

#endif
