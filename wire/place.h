/*
 * Where things are: the configuration file and the runtime directory (docs/design.md, "Names").
 *
 * Both are decided from the environment as it was when the program started, with secure_getenv, so a
 * setuid program goes by the system's files alone. libc only, no allocation; place_init() may be called
 * from several threads and before constructors have run; the others are usable in signal handlers.
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

/* The runtime directory of `uid`: DFLOCK_RUNTIME_DIR, else /run/dflock if its keeper.sock exists, else
 * /dev/shm/dflock-UID. Does not touch it. 0, or -EINVAL (runtime_env_bad). */
int place_runtime_dir(const struct place *place, uid_t uid, char dir[PLACE_DIR_BYTES]);

/*
 * Opens the runtime directory (O_PATH | O_DIRECTORY | O_CLOEXEC, links not followed) and checks it: owned
 * by root or `uid`, not writable by others, on a tmpfs. With `create`, makes it (mode 0700) if missing.
 * Returns the descriptor, which the caller closes, or -errno with `why` saying in one line what is wrong and
 * what to do. -ENOENT: it is not there (no keeper has run yet).
 */
int place_open_runtime_dir(const char *dir, uid_t uid, bool create, char *why, size_t why_size);

#endif
