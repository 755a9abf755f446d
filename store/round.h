/*
 * A round of questions to the sentinels: which one to ask next, and when to believe what they say. Pure.
 *
 * Each round begins with another sentinel than the round before. So a sentinel that is cut off together with an old
 * master costs one attempt: the server that it names has too few replicas that acknowledge (acks.c), or is no master,
 * and the next round begins with the next sentinel.
 *
 * While the store is up, only most of the sentinels together are believed: a single one may be cut off.
 */
#ifndef DFLOCK_STORE_ROUND_H
#define DFLOCK_STORE_ROUND_H

#include <stdbool.h>
#include <stddef.h>

struct round {
	size_t count;     /* of sentinels; 0: there are none, and nothing else here may be used */
	size_t next;      /* which one is asked next */
	size_t asked;     /* in this round */
	size_t elsewhere; /* how many named another master in this round */
};

enum round_verdict {
	ROUND_ASK,     /* ask round_next() */
	ROUND_BELIEVE, /* the answer counts */
	ROUND_OVER,    /* no sentinel is left, and nothing follows from their answers */
};

/* Begins a round. */
void round_begin(struct round *round);

/* The index of the sentinel to ask now; counts it as asked. */
size_t round_next(struct round *round);

/* Was this answer that of the first sentinel of the list? Its complaint is the one that is reported: always the same
 * one, or the log would fill. */
bool round_was_first(const struct round *round);

/* The store is down, and the sentinel last asked named a master or did not. ROUND_BELIEVE: connect to it. */
enum round_verdict round_found(const struct round *round, bool named);

/* The store is up, and the sentinel last asked named a master or did not; `here`: it is the one that the store is
 * connected to. ROUND_BELIEVE: the master has moved to the named one. ROUND_OVER: stay. */
enum round_verdict round_checked(struct round *round, bool named, bool here);

#endif
