/*
 * Which chases (deadlock.h) a host has followed lately. It follows each once: what a chase finds depends only on its
 * sender, on what it is after, and on the youngest call that it has met. Otherwise a chase would take every path
 * through the waiting processes, and their number grows exponentially. Pure: time is an argument.
 */
#ifndef DFLOCK_KEEPER_CHASES_H
#define DFLOCK_KEEPER_CHASES_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/range.h"

#define CHASES_SEEN 256 /* so many are followed in the time for which they are remembered */

struct chases {
	struct {
		uint64_t id;
		int64_t until_ns;
	} seen[CHASES_SEEN];
};

/*
 * Should this chase be followed on this file? False: it was followed less than for_ns ago, or too many others were. It
 * comes again, since a call that waits repeats its chase.
 */
bool chases_follow(struct chases *chases, const struct store_chase *chase, uint64_t dev, uint64_t ino, int64_t now_ns,
		   int64_t for_ns);

#endif
