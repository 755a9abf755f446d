/*
 * Which chases (deadlock.h) a host has followed lately: each is followed once, for what it finds depends on nothing but
 * who sent it, what it is after and the youngest call it has met. Without this a chase would go every way that many
 * waiting processes allow, which are more than anybody can count. Pure: time is an argument.
 */
#ifndef DFLOCK_KEEPER_CHASES_H
#define DFLOCK_KEEPER_CHASES_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

#define CHASES_SEEN 256 /* as many are followed in the time for which they are remembered */

struct chases {
	struct {
		uint64_t id;
		int64_t until_ns;
	} seen[CHASES_SEEN];
};

/*
 * Is it to be followed on this file? False: it was, less than for_ns ago, or too many others were. It comes again,
 * since a call that waits sends it again and again.
 */
bool chases_follow(struct chases *chases, const struct store_chase *chase, uint64_t dev, uint64_t ino, int64_t now_ns,
		   int64_t for_ns);

#endif
