/*
 * What other hosts want of a lease: it is noted when the store says so (lease->recalled.level and the fields below it), and obeyed
 * when the lease is open and old enough, as a whole or in parts. Loop only.
 *
 * Parts. Record leases are given back in parts: when another host wants a part of one, leases for the parts take its place, so
 * that unused ranges can go while the rest stays ("ranges that do not touch never wait for each other"). A host that is
 * alone on a file has a lease for all of it (the store grants more than was asked for).
 *
 * The parts are fetched before the whole is given up, as leases of their own: they conflict with nothing that the whole
 * did not conflict with, so the store grants them at once. When all are open, they supersede the whole (act.c); that
 * needs no probe, since everything under the whole is covered. If anything fails on the way, the whole stays as it was.
 *
 * A question of a host that does not wait (F_GETLK, LOCK_NB) is answered as soon as the lease turns out to be in use. About record
 * locks on a file system that is not known to be local, only a worker asks the kernel which lock is in the way, or the front that
 * keeps the file (fronts.h), since the kernel may ask a file server. A mount that hangs leaves such an inquiry without an answer:
 * the asker's own limit (probe_ms) ends it.
 */
#ifndef DFLOCK_KEEPER_RECALL_H
#define DFLOCK_KEEPER_RECALL_H

#include <stdbool.h>

#include "keeper/rules/lease.h"

struct inquiry;
struct lease;
struct store_message;
struct store_range;

/* Part of struct keeper: the inquiries under way. */
struct inquiries {
	struct inquiry *all;
	unsigned count; /* in workers */
};

/* Limit of inquiries in workers, of all leases together: each needs a descriptor. For files that fronts keep:
 * AWAY_LOOKS_MAX. */
#define INQUIRIES_MAX 256

/* Another host wants the lease, or asks whether it is in use (store message). */
void lease_recall(struct lease *lease, const struct store_message *message);
/* The lease has just become RELEASING. */
void recall_given_back(const struct lease *lease);
/* The store has granted the lease. If it was asked for within min_hold_ms after one of its lock went to a host that waited, both hosts use the
 * lock all the time: from now on, recalls of hosts that wait are not obeyed for min_hold_ms. */
void recall_granted(struct lease *lease);
/* If the lease is open, and another host wants it: closes it, or begins to split it. queue_work.obey(). */
void recall_obey(struct lease *lease);
/* This event has opened the lease: was it what other hosts wanted? */
void recall_opened(struct lease *lease, enum lease_cue event);
/* The lease is in use: tells the askers what is in their way, and sessions of `dflock stop` (queue_tell_in_use()). */
void recall_tell_in_use(struct lease *lease);

/*
 * Another host wants `wanted` of this lease. True: it wants a part, and the split has started (the parts are recalled
 * when the split is done), or the host only asked about a part in use, and was answered. False: it wants all of the
 * lease, or no local process uses any of it: the lease must be given back as a whole, as far as it turns out to be
 * free.
 */
bool recall_split(struct lease *lease, const struct store_range *wanted, bool ask);

/* The whole has gone, or is not being split any more: its parts become leases like others. */
void recall_split_done(struct lease *whole);
/* A part (lease->split.whole is set) has ended or is given back: the whole cannot be split any more, and is recalled as a
 * whole. */
void recall_piece_ended(struct lease *piece);

#endif
