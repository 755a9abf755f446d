/*
 * The environment as it was when the program started, and the state of the configuration file now. Without locks:
 * callable from every thread, in signal handlers, before constructors; errno may change.
 */
#ifndef DFLOCK_SHIM_SETTINGS_H
#define DFLOCK_SHIM_SETTINGS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/msg.h"
#include "wire/place.h"

struct settings {
	uint64_t config_hash; /* leases_hash() of place.config */
	bool debug;           /* DFLOCK_LOG=debug */
	bool verbose;         /* DFLOCK_VERBOSE, neither empty nor "0" */
	bool has_stderr;      /* descriptor 2 was open at the start, and was this file: */
	dev_t stderr_dev;
	ino_t stderr_ino;
	bool has_root; /* the root directory at the start was this one: */
	dev_t root_dev;
	ino_t root_ino;
	const char *library; /* the absolute path of this library; "" if it is unknown */
	struct place place;
};

/* From the constructor. */
void settings_init(void);

/* The settings, captured by settings_init() or by the first call before it; they never change afterwards. NULL: so
 * early in the program's start that libc does not know the environment (.preinit_array); or more calls than there are
 * slots ran before the constructor, at the same time. */
const struct settings *settings_get(void);

/* The configuration file as it was at the time of the look. */
struct settings_config {
	int64_t stamp_ns;         /* the kernel's CLOCK_MONOTONIC_COARSE: when this look was taken */
	struct wire_config_id id; /* all zero: `error` says why */
	int32_t error;            /* that of place_config_id(), positive; 0: none */
	uint32_t young;           /* wire_config_is_young() */
};

/*
 * The state of the configuration file, from a look that is at most a second old. stamp_ns identifies that look: a
 * conclusion from it may be used as long as the same stamp is returned. Not for a place without a configuration. True: the
 * look was taken by this call.
 */
bool settings_config(const struct settings *s, struct settings_config *config);

/* The stamp of that look alone, which costs less; 0: settings_config() would take a new one. Always 0 where a preload shows this program another
 * clock than the kernel's. */
int64_t settings_stamp(void);

/* The same from a look that is taken now. */
void settings_config_now(const struct settings *s, struct settings_config *config);

/*
 * DFLOCK_REQUIRE: a job is to start only if its locks would be protected. For jobs that are preloaded without `dflock
 * run --require`, whose conditions these are, but for those of the program itself: this code runs in it.
 *
 * Last in the constructor. Without the variable, or if it is "0" or empty: nothing. Else takes it out of the
 * environment, so that of a job only the first process asks: an outage must not end a job's commands half-way. Then
 * looks whether the configuration is in force, a keeper runs (or starts one), the store grants locks, and the file that
 * the variable names ("1": none) is protected. If not, ends the process with a line and 123. Waits for a
 * second until a keeper reaches the store, ASK_JOB_PATIENCE_NS for its answers, and START_PATIENCE_MS for a new one. No signal is touched, and no descriptor stays open.
 */
void require_check(void);

#endif
