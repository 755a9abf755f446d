/*
 * Asks the kernel which record lock is in the way of a wanted one (F_OFD_GETLK), through a description that has no lock
 * itself.
 *
 * May wait for a file server: in the loop only on local file systems; in workers and fronts on any.
 */
#ifndef DFLOCK_KEEPER_GETLK_H
#define DFLOCK_KEEPER_GETLK_H

#include <fcntl.h>
#include <stdint.h>

#include "wire/range.h"

/* A record lock as fcntl() has it, to take it as well as to ask for it. */
struct flock getlk_flock(enum wire_mode mode, int64_t from, int64_t to);

/* 1: *found is the first lock in the kernel's list. 0: none. -EAGAIN: one of this process's own probes, which has the
 * lock for a moment. Else -errno. */
int getlk_ask(int fd, const struct store_range *wanted, struct store_range *found);
/* The same, repeated for up to 20 ms while a probe has the lock. -EAGAIN: it still has it. */
int getlk_ask_again(int fd, const struct store_range *wanted, struct store_range *found);

#endif
