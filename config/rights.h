/*
 * Which rights dflock needs in the store: the smallest set. A test takes each of them away and sees what fails
 * (tests/unit/test_store_rights.c); `dflock doctor --acl` prints them. Pure.
 */
#ifndef DFLOCK_CONFIG_RIGHTS_H
#define DFLOCK_CONFIG_RIGHTS_H

#include <stddef.h>

#include "config/config.h"

#define RIGHTS_KEYS     "~dflock:{*}:*"      /* every key of dflock, in all shards */
#define RIGHTS_CHANNELS "&dflock:{*}:host:*" /* every channel */
#define RIGHTS_MAX      48

/*
 * Fills `words` with the commands and subcommands that the user of the server needs ("get", "script|load"), in alphabetical
 * order; returns how many, at most RIGHTS_MAX. The same user is needed on each replica, since a replica may become the
 * master. `store` NULL: whatever the configuration says.
 */
size_t rights_of_server(const struct config_store *store, const char *words[RIGHTS_MAX]);

/* The same for the user of the sentinels, who needs no key and no channel. */
size_t rights_of_sentinel(const char *words[RIGHTS_MAX]);

#endif
