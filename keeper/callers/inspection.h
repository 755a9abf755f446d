/*
 * A session's descriptor while it is looked at: what is kept for it meanwhile, workers and fronts, how long the caller waits,
 * and what becomes of it when the session ends first. What is found goes to lookup.h. Loop only.
 */
#ifndef DFLOCK_KEEPER_INSPECTION_H
#define DFLOCK_KEEPER_INSPECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/kernel/inspect.h"

struct away;
struct keeper;
struct session;

#define INSPECTION_SLOW_MS 5000 /* then a caller is told that its file's mount hangs */

/* Part of struct session. */
struct inspection {
	bool local;                       /* no call on its file waits for another machine (mounts.h) */
	int held_fd;                      /* its descriptor, while the configuration file is looked at; -1 */
	struct inspect *job;              /* a worker looks at the descriptor; stays when the question is refused meanwhile */
	struct inspect_result *inspected; /* a worker reads what the caller's process holds; ditto; else NULL */
	struct inspect_result *found;     /* what a front has found, until it is looked up (lookup_received.c); else NULL */
	void (*then)(struct session *s);  /* what comes next */
};

#define INSPECTION_NONE {.held_fd = -1}

/* Looks at request->fd, which is taken over, in a worker. cb comes later, with the session as its argument, which is not
 * freed before; or a refusal, also now. */
void inspection_start(struct session *s, uint64_t dev, struct inspect_request *request, inspect_cb *cb);
/* Has somebody the lock shared that the session waits for? Calls `then` later, with shared_tested set; or refuses. */
void inspection_test_shared(struct session *s, void (*then)(struct session *s));

/* Refuses the question, since its file's mount has kept the caller waiting for ms. */
void inspection_slow(struct session *s, int ms);
/* The session ends, or was refused: closes and forgets what waits for a look at the configuration, or for a front. */
void inspection_leave(struct session *s);

/* Closes what an inspection found. away: the description that a front has in r->fd's place, or NULL. */
void inspection_drop(struct session *s, struct inspect_result *r, struct away *away);
/* Closes a descriptor that a program passed: here if that cannot wait for anything, else in a worker. */
void inspection_close(struct keeper *k, int fd);

#endif
