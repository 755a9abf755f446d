/*
 * This host's beats, and the deadline that they move. Loop only.
 *
 * One deadline for all leases: CLOCK_BOOTTIME before the last answered beat was sent + ttl - ttl/10. A waiter may
 * name this host dead only after it has seen the same beat for a whole ttl, counted from when its own answer arrived,
 * which is later. A lease is given to callers only until freeze_margin_ms before the deadline.
 * When the deadline has passed, every lease is unsure: nobody is granted until the store confirmed
 * token and fence, since somebody may have had it in between.
 */
#ifndef DFLOCK_KEEPER_DEADLINE_H
#define DFLOCK_KEEPER_DEADLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "keeper/clock.h"

struct keeper;

/* Part of struct keeper. Leases are sure until at_ns; callers are granted until freeze_at_ns, which the parent knows. */
struct deadline {
	int64_t at_ns;        /* 0: never renewed */
	int64_t freeze_at_ns; /* freeze_margin_ms before: as the parent was told, whatever the configuration says now */
	bool expired;         /* its passing was noticed */
	uv_timer_t passing;
	int64_t beat_sent_ns;
	bool beat_under_way;
	uv_timer_t beat;
	uv_timer_t asked; /* runs since another host asked */
};

/* A caller is told only of a lease that is sure for longer than this: else it would be over before the answer arrives.
 */
#define DEADLINE_LEAST_NS (5 * NS_PER_MS)

int64_t deadline_ttl_ns(const struct keeper *k);

void deadline_start(struct keeper *k);
void deadline_stop(struct keeper *k);

/* Until when leases are sure, CLOCK_BOOTTIME ns; in the past: not now. Notices that the deadline has passed: then
 * LEASE_EV_EXPIRED is raised for all leases. */
int64_t deadline_sure_until(struct keeper *k);
/* The clock as an input of its own, which comes before the answer of the store that was received: if the deadline has
 * passed, that is dealt with first. */
void deadline_notice(struct keeper *k);

/* Tells the parent before anybody is granted by it. A freeze_margin_ms that is read again counts from the next call on.
 */
void deadline_set(struct keeper *k, int64_t deadline_ns);

/* An answer to a beat, acquire or confirm that was sent at sent_ns has come. What the store has forgotten it does not keep
 * for us, whatever it says of the host: until all of that is put back or lost, nothing gets more time. */
void deadline_renewed(struct keeper *k, int64_t sent_ns);

/*
 * A lease is there or is asked for: sees to it that beats are sent. False: they were not, or none was answered for
 * longer than they should take: the request that is sent now should be one.
 */
bool deadline_beats(struct keeper *k);
/* Sends one now, unless one is under way or the store is down. */
void deadline_beat(struct keeper *k);

/*
 * Another host asks whether a lease is in use. Who does not answer that in time may be called dead (dead_ms), but pins, or
 * a mount that hangs, keep us from answering: then a beat shows soon that we live.
 */
void deadline_asked(struct keeper *k);

/* For refusals: "store SERVER is not reachable (or: cannot be used): why; what to do". */
void deadline_trouble(const struct keeper *k, char *out, size_t size);

/* How often what waits in the store asks again, ms. */
int64_t deadline_reask_ms(const struct keeper *k);

#endif
