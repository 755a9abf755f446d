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
