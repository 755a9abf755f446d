/*
 * The keeper's page (wire/page.h), mapped read-only once per process and then kept.
 *
 * No access to it is a SIGBUS: all of it has its memory (keeper/leases/pagefile.c), and only its owner can take that away, who is root,
 * or a user who can end the process in any case. A process that is such a user for a while (seteuid()) maps nothing, and asks the keeper.
 *
 * A mapping is never removed, since another thread may be reading. There are at most MAPPINGS_MAX; a process that has
 * used them up (it changes its user often, or the runtime directory was removed so often) asks the keeper instead.
 * Callable in signal handlers, from every thread, in a vfork child; errno may change.
 */
#ifndef DFLOCK_SHIM_MAPPING_H
#define DFLOCK_SHIM_MAPPING_H

#include <stddef.h>
#include <sys/types.h>

#include "wire/page.h"
#include "wire/place.h"

#define MAPPINGS_MAX 8

/* The page that was mapped last of those that belong to root or to *euid, with its owner in *owner; or NULL. *euid may be
 * RUNDIR_MY_UID, which is looked up if it counts. */
const struct page *mapping_find(uid_t *euid, uid_t *owner);

/*
 * Looks for the page in the runtime directory `dir` ("": there is none), and maps it unless that was done. 0 with
 * *page, which is NULL if there is no page or it cannot be mapped: then the keeper must be asked. -errno with a line in
 * `why`: the directory or the page is not to be trusted.
 */
int mapping_refresh(const char dir[PLACE_DIR_BYTES], uid_t euid, const struct page **page, char *why, size_t why_size);

#endif
