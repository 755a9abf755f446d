/*
 * The keeper's page (wire/page.h), mapped read-only once per process and then kept.
 *
 * Mappings are never taken away, since another thread may be reading: there are MAPPINGS_MAX at most, and a
 * process that has used them up (it changes its user often, or the runtime directory was removed that often)
 * asks the keeper instead. Callable in signal handlers, from every thread, in a vfork child.
 */
#ifndef DFLOCK_SHIM_MAPPING_H
#define DFLOCK_SHIM_MAPPING_H

#include <stddef.h>
#include <sys/types.h>

#include "wire/page.h"
#include "wire/place.h"

#define MAPPINGS_MAX 8

/* The newest page that belongs to root or euid, with *owner; or NULL. No system call. */
const struct page *mapping_find(uid_t euid, uid_t *owner);

/*
 * Looks for the page in the runtime directory `dir` ("": there is none), and maps it if that has not been done. 0 with *page,
 * which is NULL if there is none yet or it cannot be mapped: the keeper must be asked. -errno with a line in
 * `why`: directory or page are not to be trusted.
 */
int mapping_refresh(const char dir[PLACE_DIR_BYTES], uid_t euid, const struct page **page, char *why, size_t why_size);

#endif
