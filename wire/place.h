/*
 * Where the configuration file is, and DFLOCK_RUNTIME_DIR, as the environment said when the program started (rundir.h
 * says which directory follows from that).
 *
 * Read with secure_getenv(), so a setuid program goes by the system's files alone. libc only, no allocation.
 * place_init() may be called from several threads and before constructors have run; the other functions also in signal
 * handlers.
 */
#ifndef DFLOCK_WIRE_PLACE_H
#define DFLOCK_WIRE_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "wire/msg.h"

/* A socket address has 108 bytes, "/keeper.sock" included. */
#define PLACE_DIR_BYTES 92

/* The name, in the runtime directory, of the keeper's copy of the configuration in force. */
#define PLACE_KEPT_NAME "config.kept"

struct place {
	char runtime_env[PLACE_DIR_BYTES]; /* DFLOCK_RUNTIME_DIR, or "" */
	bool runtime_env_bad;              /* DFLOCK_RUNTIME_DIR is relative or too long */
	char config[PATH_MAX]; /* absolute; "" if there is none. Last: what is not used of it costs no memory */
};

/* Reads the environment: DFLOCK_CONFIG, else $HOME/.config/dflock.conf if that file exists, else /etc/dflock.conf if
 * that exists. DFLOCK_CONFIG is taken whether the file exists or not, and made absolute. The other two also count as
 * existing while the rules in the user's page (page.h) are theirs: a file that is being replaced must not mean that
 * nothing is protected. */
void place_init(struct place *place);

/* `path`, with the current directory before it if it is relative. 0; -ENAMETOOLONG: too long, or there is no path of
 * the current directory. */
int place_absolute(const char *path, char out[PATH_MAX]);

/* Fills *id from the file `path`. 0; -EINVAL: not a regular file; or -errno of stat(). */
int place_config_id(const char *path, struct wire_config_id *id);

/* Opens the page (page.h) in the runtime directory `dir` for reading; *st is what it is. The descriptor; -ENOENT: there is none, or it
 * may not be read; or -errno with a line in `why`: the directory or the page is not to be trusted. */
int place_open_page(const char *dir, uid_t euid, struct statx *st, char *why, size_t why_size);

/*
 * A file of this installation: `name` beside this executable, else in the folder `folder` beside the executable's own
 * ("lib" for PREFIX/bin/dflock and PREFIX/lib/NAME), else `installed`, whether that exists or not.
 */
void place_find(const char *name, const char *folder, const char *installed, char path[PATH_MAX]);

#endif
