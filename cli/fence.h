/* The fence number under which a lock is held on this host. */
#ifndef DFLOCK_CLI_FENCE_H
#define DFLOCK_CLI_FENCE_H

#include <stdint.h>

#include "cli/cli.h"

/*
 * Asks the keeper that runs (it starts none) for the lease of `lock`, a file or a lock name, under which process pid or one
 * above it holds the lock. any: else the only lease that any process on this host holds. True with *fence; else false with
 * one line in why. Waits as long as ask_status() does.
 */
bool fence_find(const char *lock, pid_t pid, bool any, int64_t *fence, char why[CLI_LINE_BYTES]);

#endif
