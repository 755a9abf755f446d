/* dflock lock: names of locks without a file. */
#ifndef DFLOCK_CLI_LOCK_H
#define DFLOCK_CLI_LOCK_H

#include <limits.h>
#include <stdbool.h>

/* The name as a file name, behind which the lock is (its lock name is CONFIG_NAMES and this): what could be a path, or hide
 * the file, becomes %XX. False: it is too long for one. */
bool lock_file_name(const char *name, char file[NAME_MAX + 1]);

#endif
