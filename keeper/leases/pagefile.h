/* The keeper's side of the shared page (wire/page.h). Start-up and event loop. */
#ifndef DFLOCK_KEEPER_PAGEFILE_H
#define DFLOCK_KEEPER_PAGEFILE_H

#include <stdint.h>

#include "config/config.h"
#include "wire/page.h"

struct keeper;
struct lease;
struct lock;

/* Opens RUNTIME_DIR/page, or makes it, and maps it. NULL with one line in `why`. Call with keeper.lock held. */
struct page *pagefile_open(int dir_fd, char *why, size_t why_size);
void pagefile_close(struct page *page);

/* Publishes the rules of a configuration. `seen` is the state of its file now. 0 or -ENOSPC. */
int pagefile_publish(struct page *page, const struct config *config, const struct wire_config_id *seen);
/* Publishes that the file of the rules in force is in another state now. */
void pagefile_seen(struct page *page, const struct config *config, const struct wire_config_id *seen);
/* Publishes that no rules are in force: a program has to start the next keeper to know them. */
void pagefile_forget(struct page *page);
/* Publishes that the configuration `path` is invalid, and why: programs that have it in this state refuse. */
void pagefile_invalid(struct page *page, const char *path, const struct wire_config_id *id, const char *why);

/*
 * --- leases in the page: wire/leases.h has the argument why they are safe. Loop only ---
 *
 * A lease is shown when a caller is granted from it: then its path is known to lead to its lock name. It is closed
 * before anything else is done with it; a program that takes the kernel lock after that sees it closed.
 */

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
 * Writes until when all leases that are shown are sure (as deadline_sure_until() says), but at most LEASEPAGE_FRESH_MS from now: if keeper and
 * parent are gone, the next call has to ask, and so starts a keeper, which freezes the holders in time. Call it more
 * often than every LEASEPAGE_FRESH_MS, and when the deadline has moved, after the parent was told.
 */
#define LEASEPAGE_FRESH_MS 1000
void leasepage_refresh(struct keeper *k);

#endif
