/*
 * This host's beats, and the deadline that they move. Loop only.
 *
 * One deadline for all leases: CLOCK_BOOTTIME before the last answered beat was sent + ttl - ttl/10. A waiter may
 * name this host dead only after it has seen the same beat for a whole ttl, counted from when its own answer arrived,
 * which is later. A lease is given to callers only until freeze_margin_ms before the deadline.
 * When the deadline has passed, every lease is unsure: no caller is granted under it until the store has confirmed
 * token and fence, since another host may have had it in between.
 */
#ifndef DFLOCK_KEEPER_DEADLINE_H
#define DFLOCK_KEEPER_DEADLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

#include "keeper/clock.h"
#include "store/store.h"

struct keeper;
struct member;

/* What became of a beat that was sent. */
enum deadline_beat {
	DEADLINE_BEAT_COUNTED,
	DEADLINE_BEAT_GIVEN_UP, /* an operator has given this host up */
	DEADLINE_BEAT_REFUSED,
	DEADLINE_BEAT_UNANSWERED,
	DEADLINE_BEATS
};

/* Part of struct member. Leases are sure until at_ns; callers are granted until freeze_at_ns, which the parent knows. */
struct deadline {
	int64_t at_ns;        /* 0: never renewed */
	int64_t freeze_at_ns; /* freeze_margin_ms earlier: as the parent is told, not as configured now */
	bool expired;         /* its passing was noticed */
	bool given_up; /* by an operator, and the parent is told of no new deadline before each lease is confirmed */
	uv_timer_t passing;
	int64_t beat_sent_ns;
	bool beat_under_way;
	bool keys_named;                /* the last beat did, and the next one says whether that is still so: keys.h */
	uint64_t beats[DEADLINE_BEATS]; /* by what became of them; never go back */
	uint64_t
		mark; /* what the store said when this host had been given up, and is acknowledged by beats; 0: never */
	uv_timer_t beat;
	uv_timer_t asked; /* runs since another host asked */
};

/* A caller is told only of a lease that is sure for longer than this: else it would be over before the answer arrives.
 */
#define DEADLINE_LEAST_NS (5 * NS_PER_MS)

int64_t deadline_ttl_ns(const struct keeper *k);

void deadline_start(struct member *m);
void deadline_stop(struct member *m);

/* Until when leases are sure, CLOCK_BOOTTIME ns; in the past: not now. Notices that the deadline has passed: then
 * LEASE_CUE_EXPIRED is raised for all leases. */
int64_t deadline_sure_until(struct member *m);
/* Handles the passing of the deadline as an input of its own: called before an answer of the store is handled. */
void deadline_notice(struct keeper *k);

/* Moves the deadline; tells the parent before any caller is granted by it. A changed freeze_margin_ms counts from the
 * next call on. */
void deadline_set(struct member *m, int64_t deadline_ns);

/* An answer to a beat, acquire or confirm that was sent at sent_ns has come. The store does not keep leases that it has
 * forgotten, whatever it says of the host: until all of these are put back or lost, no lease gets more time. */
void deadline_renewed(struct member *m, int64_t sent_ns);

/*
 * There is a lease, or one is asked for: makes sure that beats are sent. False: no beats were sent, or none was
 * answered for too long: the request that is sent now should count as a beat.
 */
bool deadline_beats(struct member *m);
/* The store answered a beat, acquire, confirm or reclaim with STORE_GIVEN_UP and this mark: doubts all leases, and says so in a
 * beat. Until the store has that beat it answers so; a question that is asked again after DEADLINE_HEARD_MS comes behind it. */
#define DEADLINE_HEARD_MS 25
void deadline_given_up(struct member *m, uint64_t mark);
/*
 * The store has answered a confirm or a reclaim, and the keeper has done what follows from that. If this host was given up, the parent is told
 * of the new deadline when no lease is unsure any more, or when the store cannot say whether one stands.
 */
void deadline_confirmed(struct member *m, enum store_status status);
/* Sends a beat now, unless one is under way or the store is down. */
void deadline_beat(struct member *m);

/*
 * Another host asks whether a lease is in use. A host that does not answer in time may be named dead (dead_ms), but
 * pins, or a mount that hangs, may delay this host's answer: so a beat soon shows that it lives.
 */
void deadline_asked(struct member *m);

/* For refusals: "store SERVER is not reachable (or: cannot be used): why; what to do". */
void deadline_trouble(const struct member *m, char *out, size_t size);

/* How often a request that waits in the store is sent again, ms. */
int64_t deadline_reask_ms(const struct keeper *k);

#endif
