/* The keeper's side of the shared page (wire/page.h). Start-up and event loop. */
#ifndef DFLOCK_KEEPER_PAGEFILE_H
#define DFLOCK_KEEPER_PAGEFILE_H

#include "config/config.h"
#include "wire/page.h"

/* Opens RUNTIME_DIR/page, or makes it, and maps it. NULL with one line in `why`. Call with keeper.lock held. */
struct page *pagefile_open(int dir_fd, char *why, size_t why_size);
void pagefile_close(struct page *page);

/* Publishes the rules of a configuration. 0 or -ENOSPC. */
int pagefile_publish(struct page *page, const struct config *config);
/* Publishes that the configuration `path` is invalid, and why: programs that have this one refuse. */
void pagefile_invalid(struct page *page, const char *path, const struct wire_config_id *id, const char *why);

#endif
