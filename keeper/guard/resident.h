/* Locks what the keeper's parent needs into memory, so that it can stop holders in time on a machine that swaps. */
#ifndef DFLOCK_KEEPER_RESIDENT_H
#define DFLOCK_KEEPER_RESIDENT_H

#include <stdbool.h>
#include <stddef.h>

#include "procfs/procfs.h"

/*
 * Locks all of the process, as it is now, into memory; where the limit (RLIMIT_MEMLOCK, 8 MB for ordinary users) does not
 * allow that, what is needed to stop processes: `shared`, the program, libc, the heap and the stack. Where even that is too
 * much, says so in the log, once. True: locked. Not inherited by fork().
 */
bool resident_stay(const void *shared, size_t size);

/* Is this part of the process needed? program: the path of the program's file. Pure. */
bool resident_is_needed(const struct procfs_map *map, const char *program);

#endif
