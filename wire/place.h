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

/* In the runtime directory: the keeper's copy of the configuration in force. */
#define PLACE_KEPT_NAME "config.kept"

struct place {
	char config[PATH_MAX];             /* "" if there is none */
	char runtime_env[PLACE_DIR_BYTES]; /* DFLOCK_RUNTIME_DIR, or "" */
	bool runtime_env_bad;              /* DFLOCK_RUNTIME_DIR is relative or too long */
};

/* Reads the environment: DFLOCK_CONFIG, else $HOME/.config/dflock.conf if it is there, else /etc/dflock.conf if it is
 * there. A DFLOCK_CONFIG is taken as it is, there or not (relative ones are made absolute). The other two also
 * count as there while the rules in the user's page (page.h) are theirs: a file that is being replaced must not mean that
 * nothing is protected. */
void place_init(struct place *place);

/* `path` with the current directory before it if it is relative. 0, or -ENAMETOOLONG if that cannot be had. */
int place_absolute(const char *path, char out[PATH_MAX]);

/* Fills id from the file `path`. 0, or -errno of stat. Not a regular file: -EINVAL. */
int place_config_id(const char *path, struct wire_config_id *id);

#endif
