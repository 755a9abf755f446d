/* RUNTIME_DIR/config.kept: the configuration that is in force, for the next keeper (configfile.h). */
#ifndef DFLOCK_KEEPER_KEPT_H
#define DFLOCK_KEEPER_KEPT_H

#include "config/config.h"
#include "wire/place.h"

#define KEPT_NAME PLACE_KEPT_NAME

/* Replaces the copy. 0; or -errno, and then there is no copy any more. Call this and the other functions with
 * keeper.lock held. */
int kept_write(int dir_fd, const struct config *config);

/* The copy, if it is of the configuration `path`: 0; config_source_free() frees it, and its id is none. -ENOENT: there
 * is none, or it is of another path. -EINVAL: it is damaged. Else -errno. */
int kept_read(int dir_fd, const char *path, struct config_source *source);

void kept_remove(int dir_fd);

#endif
