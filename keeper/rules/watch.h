/*
 * Which hosts have been silent, and for how long, as seen by this keeper itself.
 *
 * A host may be named dead to the store after this keeper has watched the same beat of it for one whole
 * ttl of its own clock, counted from when the answer that showed the beat arrived: the host's deadline
 * counts from before it sent the beat, and is a tenth shorter. What the server's clock says does not matter here.
 *
 * Pure but for memory: time is an argument (ns, CLOCK_BOOTTIME).
 */
#ifndef DFLOCK_KEEPER_WATCH_H
#define DFLOCK_KEEPER_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/range.h"

struct watch;

/* NULL: out of memory. Freed with watch_free(). */
struct watch *watch_new(int64_t ttl_ns);
void watch_free(struct watch *watch);
/* The store is another one now: forgets all that was seen. */
void watch_clear(struct watch *watch);

/* An answer that arrived at now_ns showed this host with this beat. */
void watch_see(struct watch *watch, const struct store_blocker *host, int64_t now_ns);

/* Has this very beat been seen for a whole ttl? */
bool watch_is_dead(const struct watch *watch, const char *host, uint64_t beat, int64_t now_ns);

/* When watch_is_dead() will be true if the host stays silent; INT64_MAX if it was never seen with this beat. */
int64_t watch_dead_at(const struct watch *watch, const char *host, uint64_t beat);

/* The hosts that an answer has shown with the same beat a whole ttl later, with their beats, at most max; returns their number. Others may have
 * beaten since, unseen. */
size_t watch_dead(const struct watch *watch, struct store_blocker *out, size_t max);

/* Forgets hosts that were last seen before then_ns. */
void watch_forget(struct watch *watch, int64_t then_ns);

#endif
