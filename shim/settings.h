/*
 * What the shim goes by: the environment as it was when the program started, and the identity of the
 * configuration file now. No lock anywhere: callable from every thread, in signal handlers, before constructors.
 */
#ifndef DFLOCK_SHIM_SETTINGS_H
#define DFLOCK_SHIM_SETTINGS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/msg.h"
#include "wire/place.h"

/* How long a thing may be believed that was looked up in the file system. */
#define SETTINGS_FRESH_NS 1000000000

struct settings {
	struct place place;
	uint64_t config_hash; /* leases_hash() of place.config */
	bool debug;      /* DFLOCK_LOG=debug */
	bool has_stderr; /* descriptor 2 was open, and was this file: */
	dev_t stderr_dev;
	ino_t stderr_ino;
	bool has_root; /* the root directory was this one: */
	dev_t root_dev;
	ino_t root_ino;
	char library[PATH_MAX]; /* this library, absolute; "" if that cannot be said */
};

/* From the constructor. */
void settings_init(void);

/* Captured by settings_init() or by the first call before it; the same ever after. NULL: so early that libc
 * itself does not know the environment yet (.preinit_array), or several calls before the constructor got in each
 * other's way and this one lost. */
const struct settings *settings_get(void);

/* The configuration file as it is now, and when this was looked up; never more than a second ago by settings_config(). */
struct settings_config {
	int64_t stamp_ns;
	struct wire_config_id id; /* none: `error` says why */
	int32_t error;            /* of stat, positive; 0 */
	uint32_t young;           /* wire_config_is_young() */
};

/*
 * The state of the configuration file, looked up at most once a second. stamp_ns names that look: what
 * was concluded under one stamp holds as long as the same stamp is returned. Not for a place without a configuration.
 */
void settings_config(const struct settings *s, struct settings_config *config);

/* The same, looked up now. */
void settings_config_now(const struct settings *s, struct settings_config *config);

#endif
