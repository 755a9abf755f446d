/* From a passed descriptor to its lock: which file it is, which lock name the file has, whether the keeper may serve
 * it. Loop only. */
#ifndef DFLOCK_KEEPER_LOOKUP_H
#define DFLOCK_KEEPER_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/kernel/inspect.h"

struct away;
struct front_answer;
struct keeper;
struct session;

/* What a session's question waits for on this way. */
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

/* s->request is a checked question for a lock. Takes over fd. Leads to serve_begin() or to an answer, now or later. */
void lookup_start(struct session *s, int fd);

/* The same for a file that a front has looked at; fd: a file of a local file system, opened anew, or -1. */
void lookup_received(struct session *s, const struct front_answer *answer, const struct own_lock *before, int fd);
/* The session ends, or was refused: closes and forgets what waits for a look at the configuration, or for a front. */
void lookup_leave(struct session *s);
/* Refuses, since the file's mount has kept the caller waiting for ms. */
void lookup_slow(struct session *s, int ms);

/* Closes a descriptor that a program passed: at once if close() cannot wait for anything, else in a worker. */
void lookup_close(struct keeper *k, int fd);

/* Has a process the lock shared? The answer comes as WAITER_SERVE, with s->shared set (lookup_inspect.c). */
void lookup_test_shared(struct session *s);

/* --- what lookup.c, lookup_received.c and lookup_inspect.c share --- */

/* Starts a worker; the session is SESSION_INSPECTING until cb is called, or the mount is too slow. Takes over what
 * `request` owns. */
void lookup_inspect(struct session *s, uint64_t dev, struct inspect_request *request, inspect_cb *cb);
/* The same for work that a front does. */
void lookup_inspects(struct session *s);
/* Closes and frees what *r has. away: as for lookup_found(). */
void lookup_drop(struct session *s, struct inspect_result *r, struct away *away);

/* Is the file of the session's previous question still being looked at? Then this refuses the new question. */
bool lookup_is_behind(struct session *s);
/* As far as the keeper knows, the program goes by another configuration than the keeper. Goes on with `then` if a look
 * at the file shows that this is not so; else refuses the question. */
void lookup_await_config(struct session *s, void (*then)(struct session *s));
/* Takes over what is in *r. away: the description that a front has in r->fd's place, or NULL. */
void lookup_found(struct session *s, struct inspect_result *r, struct away *away);

#endif
