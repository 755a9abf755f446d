/*
 * Where things are, as the environment said it when the program started: the configuration file, and
 * DFLOCK_RUNTIME_DIR (what becomes of that, and what is done without it: wire/rundir.h).
 *
 * Read with secure_getenv, so a setuid program goes by the system's files alone. libc only, no allocation;
 * place_init() may be called from several threads and before constructors have run; the other is usable in
 * signal handlers.
 */
#ifndef DFLOCK_WIRE_PLACE_H
#define DFLOCK_WIRE_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "wire/msg.h"

/* A socket address has 108 bytes, "/keeper.sock" included. */
#define PLACE_DIR_BYTES 92

struct place {
	char config[PATH_MAX];             /* "" if there is none */
	char runtime_env[PLACE_DIR_BYTES]; /* DFLOCK_RUNTIME_DIR, or "" */
	bool runtime_env_bad;              /* DFLOCK_RUNTIME_DIR is relative or too long */
};

/* Reads the environment: DFLOCK_CONFIG, else $HOME/.config/dflock.conf if it is there, else /etc/dflock.conf if it is
 * there. A DFLOCK_CONFIG is taken as it is, there or not (relative ones are made absolute). */
void place_init(struct place *place);

/* Fills id from the file `path`. 0, or -errno of stat. Not a regular file: -EINVAL. */
int place_config_id(const char *path, struct wire_config_id *id);

#endif
