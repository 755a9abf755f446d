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

#include "wire/msg.h"

/* A record lock; from and to half open. */
struct getlk {
	enum wire_mode mode;
	int64_t from, to; /* WIRE_EOF: to the end of the file */
};

/* The same as fcntl() has it, to take it as well as to ask for it. */
struct flock getlk_flock(const struct getlk *lock);

/* 1: *found is the first lock in the kernel's list. 0: none. -EAGAIN: one of this process's own probes, which has the
 * lock for a moment. Else -errno. */
int getlk_ask(int fd, const struct getlk *wanted, struct getlk *found);
/* The same, repeated for up to 20 ms while a probe has the lock. -EAGAIN: it still has it. */
int getlk_ask_again(int fd, const struct getlk *wanted, struct getlk *found);

#endif
