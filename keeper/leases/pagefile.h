/* The keeper's side of the shared page (wire/page.h). Start-up and event loop. */
#ifndef DFLOCK_KEEPER_PAGEFILE_H
#define DFLOCK_KEEPER_PAGEFILE_H

#include "config/config.h"
#include "wire/page.h"

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

#endif
