/*
 * Record leases are given back in parts: when another host wants a part of one, leases for the parts take its place, so
 * that unused ranges can go while the rest stays ("ranges that do not touch never wait for each other"). A host that is
 * alone on a file has a lease for all of it (the store grants more than was asked for).
 *
 * The parts are fetched before the whole is given up, as leases of their own: they conflict with nothing that the whole
 * did not conflict with, so the store grants them at once. When all are open, they supersede the whole (act.c); that
 * needs no probe, since everything under the whole is covered. If anything fails on the way, the whole stays as it was.
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_SPLIT_H
#define DFLOCK_KEEPER_SPLIT_H

#include "keeper/leases/locks.h"

/*
 * Another host wants `wanted` of this lease. True: it wants a part, and the split has started (the parts are recalled
 * when the split is done), or the host only asked about a part in use, and was answered. False: it wants all of the
 * lease, or no local process uses any of it: the lease must be given back as a whole, as far as it turns out to be
 * free.
 */
bool split_on_recall(struct lease *lease, const struct store_range *wanted, bool ask);

/* The whole has gone, or is not being split any more: its parts become leases like others. */
void split_done(struct lease *whole);
/* A part (lease->whole is set) has ended or is given back: the whole cannot be split any more, and is recalled as a
 * whole. */
void split_piece_ended(struct lease *piece);

#endif
