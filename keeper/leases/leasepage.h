/*
 * The keeper's side of the leases in the shared page (wire/leases.h has the argument why they are safe). Loop only.
 *
 * A lease is shown when a caller is granted from it: then its path is known to lead to its lock name. It is closed
 * before anything else is done with it; a program that takes the kernel lock after that sees it closed.
 */
#ifndef DFLOCK_KEEPER_LEASEPAGE_H
#define DFLOCK_KEEPER_LEASEPAGE_H

#include <stdint.h>

struct keeper;
struct lease;
struct lock;
struct page;

/* At the start, before anything is done with a lease of an earlier keeper; and at the end. Closes every slot. */
void leasepage_reset(struct page *page);

/* Shows an open lease, under its file's present path. Without a free slot programs go on asking the keeper. */
void leasepage_show(struct lease *lease);

/* Closes the lease's slot, if it is shown. */
void leasepage_close(struct lease *lease);

/* Closes all slots of one lock, or of all locks. A lease is shown again when a caller is granted. */
void leasepage_close_lock(struct lock *lock);
void leasepage_close_all(struct keeper *k);

/*
 * Writes until when leases are sure (deadline_sure_until()), but at most LEASEPAGE_FRESH_MS from now: if keeper and
 * parent are gone, the next call has to ask, and so starts a keeper, which freezes the holders in time. Call it more
 * often than every LEASEPAGE_FRESH_MS, and when the deadline has moved, after the parent was told.
 */
#define LEASEPAGE_FRESH_MS 1000
void leasepage_refresh(struct keeper *k, int64_t sure_until_ns);

#endif
