/*
 * This host in the store: its beats and its deadline, silent hosts, messages. Loop only.
 *
 * One deadline for all leases: CLOCK_BOOTTIME before the last answered beat was sent + ttl - ttl/10. A waiter may
 * name this host dead only after it has seen the same beat for a whole ttl, counted from when its own answer arrived,
 * which is later. A lease is given to callers only until freeze_margin_ms before the deadline.
 * When the deadline has passed, every lease is unsure: nobody is granted until the store confirmed
 * token and fence, since somebody may have had it in between.
 */
#ifndef DFLOCK_KEEPER_HOST_H
#define DFLOCK_KEEPER_HOST_H

#include "keeper/clock.h"
#include "keeper/keeper.h"

static inline int64_t host_ttl_ns(const struct keeper *k)
{
	return k->config->lease.ttl_ms * NS_PER_MS;
}

int host_start(struct keeper *k); /* 0 or -errno */
void host_stop(struct keeper *k);

/* Until when leases are sure, CLOCK_BOOTTIME ns; in the past: not now. Notices that the deadline has passed. */
int64_t host_sure_until(struct keeper *k);

/* Tells the parent before anybody is granted by it. A freeze_margin_ms that is read again counts from the next call on.
 */
void host_set_deadline(struct keeper *k, int64_t deadline_ns);

/* An answer to a beat, acquire or confirm that was sent at sent_ns has come. */
void host_renewed(struct keeper *k, int64_t sent_ns);

/*
 * A lease is there or is asked for: sees to it that beats are sent. False: they were not, or none was answered for
 * longer than they should take: the request that is sent now should be one.
 */
bool host_beats(struct keeper *k);

/* Notes what an answer showed of other hosts. */
void host_see(struct keeper *k, const struct store_reply *reply);

/* For refusals: "store SERVER: why it is not reachable; what to do". */
void host_store_trouble(const struct keeper *k, char *out, size_t size);

#endif
