/* A passed descriptor's way to its lock: which file it is, which lock name that has, whether it may be served. Loop
 * only. */
#ifndef DFLOCK_KEEPER_LOOKUP_H
#define DFLOCK_KEEPER_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/kernel/inspect.h"

struct away;
struct front_answer;
struct keeper;
struct session;

/* What a session's question waits for meanwhile. */
struct lookup {
	bool local;                       /* no call on its file waits for another machine (mounts.h) */
	int held_fd;                      /* its descriptor, while the configuration file is looked at; -1 */
	struct inspect *job;              /* a worker looks at the descriptor */
	struct inspect_result *inspected; /* a worker reads what the caller's process holds; else NULL */
	struct inspect_result *found;     /* what a front has found: lookup_received.c; else NULL */
	void (*then)(struct session *s);  /* once the configuration file was looked at */
};

#define LOOKUP_NONE                                                                                                    \
	{                                                                                                              \
		.held_fd = -1                                                                                          \
	}

/* s->request is a checked question for a lock. Takes over fd. Ends in serve_begin() or in an answer, now or later. */
void lookup_start(struct session *s, int fd);

/* The same, for what a front has looked at; fd: a file of a local file system, opened anew, or -1. */
void lookup_received(struct session *s, const struct front_answer *answer, const struct held *before, int fd);
/* The session ends, or was refused: closes and forgets what waits for a look at the configuration, or for a front. */
void lookup_leave(struct session *s);
/* Refuses, since the file's mount has kept the caller waiting for ms. */
void lookup_slow(struct session *s, int ms);

/* Closes a descriptor that a program passed: here if that cannot wait for anything, else in a worker. */
void lookup_close(struct keeper *k, int fd);

/* Has a process the lock shared? The answer comes as WAITER_SERVE, with s->shared set (lookup_shared.c). */
void lookup_test_shared(struct session *s);

/* --- what lookup.c, lookup_received.c and lookup_shared.c share --- */

/* Starts a worker; the session is SESSION_INSPECTING until cb comes, or the mount is too slow. Takes over what the request
 * has. */
void lookup_inspect(struct session *s, uint64_t dev, struct inspect_request *request, inspect_cb *cb);
/* The same for what a front does. */
void lookup_inspects(struct session *s);
/* Closes and frees what was found. away: as lookup_found(). */
void lookup_drop(struct session *s, struct inspect_result *r, struct away *away);

/* The last question's file is still being looked at: then this one has been refused. */
bool lookup_is_behind(struct session *s);
/* The program goes by another configuration than the keeper, as far as the keeper knows. Goes on with `then` if a look at
 * the file shows that it does not, and refuses the question else. */
void lookup_await_config(struct session *s, void (*then)(struct session *s));
/* Takes over what is in *r. away: the description that a front has in r->fd's place, or NULL. */
void lookup_found(struct session *s, struct inspect_result *r, struct away *away);

#endif
