/* A passed descriptor's way to its lock: which file it is, which lock name that has, whether it may be served. Loop
 * only. */
#ifndef DFLOCK_KEEPER_LOOKUP_H
#define DFLOCK_KEEPER_LOOKUP_H

#include <stdbool.h>

struct away;
struct front_answer;
struct held;
struct inspect_result;
struct session;

/* s->request is a checked question for a lock. Takes over fd. Ends in serve_begin() or in an answer, now or later. */
void lookup_start(struct session *s, int fd);
/* The same, for what a front has looked at; fd: a file of a local file system, opened anew, or -1. */
void lookup_received(struct session *s, const struct front_answer *answer, const struct held *before, int fd);

/* --- what lookup.c and lookup_received.c share --- */

/* The last question's file is still being looked at: then this one has been refused. */
bool lookup_is_behind(struct session *s);
/* The program goes by another configuration than the keeper, as far as the keeper knows. Goes on with `then` if a look at
 * the file shows that it does not, and refuses the question else. */
void lookup_await_config(struct session *s, void (*then)(struct session *s));
/* Takes over what is in *r. away: the description that a front has in r->fd's place, or NULL. */
void lookup_found(struct session *s, struct inspect_result *r, struct away *away);

#endif
