/*
 * This host's rules in the store, for `dflock status` and `dflock doctor` on other hosts: they say what two hosts name or
 * protect differently (config/differ.h). Loop only.
 *
 * No lease depends on any of this, and no call waits for it. What is posted is in keys of their own, which the scripts of
 * leases never read. The answer is at most worth a line in the log.
 */
#ifndef DFLOCK_KEEPER_POSTING_H
#define DFLOCK_KEEPER_POSTING_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct member;

#define POSTING_PLACE_BYTES 17

/* Part of struct member. */
struct posting {
	/* The same for all keepers that this user starts on this machine, one after the other; their host ids differ. So
	 * what a keeper posts replaces what the keeper before it has posted. */
	char place[POSTING_PLACE_BYTES];
	bool refused; /* the log says so */
	/* posting_compare(): how many other keepers the store knows, as of compared_at. */
	struct posting_compared {
		uint64_t same, different, unknown; /* rules; unknown: of an older version, or silent */
	} compared;
	time_t compared_at; /* 0: never */
	int64_t asked_ns;   /* when the store was asked last; 0: never */
	bool asking;
};

/* How old the comparison may be: with 5,000 hosts that are watched, the store is asked 6 times a second. */
#define POSTING_COMPARE_MS (15 * 60 * 1000)

/* Once, when the host's name and the runtime directory are known. */
void posting_start(struct member *m);
/* Sends the rules in force. Called when the store is reached or has lost its memory, when the rules change, and so often
 * that the store does not forget them. Nothing happens while the store is down. */
void posting_send(struct member *m);
/* Somebody wants to know how many keepers go by other rules: asks the store, unless it is down or was asked lately. The answer
 * is there the next time: nobody waits for it. */
void posting_compare(struct member *m);

#endif
