/* The directory of the files that stand for locks without a file of their own (`dflock lock`): RUNTIME_DIR/names. */
#ifndef DFLOCK_KEEPER_NAMES_H
#define DFLOCK_KEEPER_NAMES_H

#include <stdbool.h>

#include "wire/rundir.h"

/*
 * Makes it if it is missing. For a system keeper all users make files there, and none removes those of another (mode
 * 1777): a lock name is the same for all users. Returns its path as the kernel has it, which the caller frees; or NULL with
 * errno set: ENOTDIR, EPERM if something else has the name. At the keeper's start.
 */
char *names_make(int dir_fd, bool system);

#endif
