/* A passed descriptor's way to its lock: which file it is, which lock name that has, whether it may be served. Loop
 * only. */
#ifndef DFLOCK_KEEPER_LOOKUP_H
#define DFLOCK_KEEPER_LOOKUP_H

#include "keeper/keeper.h"

/* s->request is a checked question for a lock. Takes over fd. Ends in serve_begin() or in an answer, now or later. */
void lookup_start(struct session *s, int fd);

/* The same, for what a front has looked at; fd: a file of a local file system, opened anew, or -1. */
struct front_answer;
void lookup_received(struct session *s, const struct front_answer *answer, const struct held *before, int fd);
/* The session ends, or was refused: closes and forgets what waits for a look at the configuration, or for a front. */
void lookup_leave(struct session *s);

/* Closes a descriptor that a program passed: here if that cannot wait for anything, else in a worker. */
void lookup_close(struct keeper *k, int fd);

/* Has somebody the lock shared? The answer comes as serve_again(), with shared_tested set. */
void lookup_test_shared(struct session *s);

/* --- what lookup.c and received.c share --- */

/* The last question's file is still being looked at: then this one has been refused. */
bool lookup_is_behind(struct session *s);
/* Takes over what is in *r. away: the description that a front has in r->fd's place, or NULL. */
struct away;
void lookup_found(struct session *s, struct inspect_result *r, struct away *away);

#endif
