/*
 * Record leases are given back in parts: when another host wants a part of one, leases for the parts take its place, so
 * that what nobody uses can go while the rest stays ("ranges that do not touch never wait for each other"). A host that
 * is alone on a file has a lease for all of it (the store grants more than was asked for).
 *
 * The parts are fetched before the whole is given up, as leases of their own: they clash with nothing that the whole
 * did not clash with, so the store grants them at once. When all are open, the whole is superseded (act.c), without a
 * probe, since everything under it is covered. Whatever fails on the way leaves the whole as it was. Loop only.
 */
#ifndef DFLOCK_KEEPER_SPLIT_H
#define DFLOCK_KEEPER_SPLIT_H

#include "keeper/leases/locks.h"

/*
 * Another host wants `wanted` of this lease. True: it wants a part, and that is seen to (a mere question about a part
 * that is in use is answered at once, else the lease is being split; the parts are recalled when it is done). False: it
 * wants all of it, or nobody here uses anything of it: it is to be given back as a whole, as far as it turns out to be
 * free.
 */
bool split_on_recall(struct lease *lease, const struct store_range *wanted, bool ask);

/* The whole has gone, or is not split any more: its parts are leases like others. */
void split_done(struct lease *whole);
/* A part (lease->whole is set) has ended or is given back: the whole cannot be split any more, and is recalled as a
 * whole. */
void split_piece_ended(struct lease *piece);

#endif
