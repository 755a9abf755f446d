/*
 * Is a descriptor's file protected by the configuration? Decided from the keeper's page without asking
 * anybody, wherever that can be done. Callable wherever flock() is.
 */
#ifndef DFLOCK_SHIM_PROTECT_H
#define DFLOCK_SHIM_PROTECT_H

#include <sys/types.h>

#include "wire/msg.h"
#include "wire/place.h"

enum protect {
	PROTECT_NO,      /* the call is the kernel's alone; also where the kernel will refuse it */
	PROTECT_ASK,     /* protected, or only the keeper can say */
	PROTECT_REFUSED, /* the reason was written */
};

/* Whom to ask, filled with PROTECT_ASK. */
struct protect_by {
	const char *config; /* the configuration's path; static */
	struct wire_config_id id;
	uid_t euid;
	char dir[PLACE_DIR_BYTES]; /* runtime directory */
};

enum protect protect_look(int fd, struct protect_by *by);

#endif
