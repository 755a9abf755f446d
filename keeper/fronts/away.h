/*
 * Files that fronts keep: on file systems that are not local, the keeper's description stays with a front of the user,
 * one for each device, and the probes run there. Loop only.
 */
#ifndef DFLOCK_KEEPER_AWAY_H
#define DFLOCK_KEEPER_AWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/kernel/getlk.h"
#include "keeper/kernel/probe.h"
#include "wire/msg.h"

#define AWAY_FRONTS_MAX 4  /* for each user; one for each device */
#define AWAY_LOOKS_MAX  16 /* unanswered by a front, which may hang */

struct away;
struct away_probe;
struct front;
struct front_answer;
struct front_connection;
struct front_user;

/*
 * Makes the front that looked at the connection's file pass its description on to a front that keeps it. Then calls cb,
 * with the description, or with NULL and the reason; not if the connection is left first. Call it in
 * fronts_news.received(), or after fronts_hold().
 */
typedef void away_kept_cb(struct front_connection *connection, struct away *away, const char *why);
void away_keep(struct front_connection *connection, uint64_t dev, away_kept_cb *cb);

/* *owner is the owner's pointer to `away`; it is set to NULL when the front that keeps the description has ended. */
void away_owned(struct away *away, struct away **owner);
/* Closes the description. */
void away_forget(struct away *away);

/* As probe_start() and probe_stop() in probe.h. */
struct away_probe *away_probe_start(struct away *away, const struct probe_want *want, probe_cb *cb, void *arg);
void away_probe_stop(struct away_probe *probe);

/* getlk_ask_again() on it. cb comes once, never from inside the call; found is -EIO if the front has ended. False: as
 * many as may be wait for this front, or no memory. */
typedef void away_look_cb(void *arg, int found, const struct store_range *in_the_way);
bool away_look(struct away *away, const struct store_range *wanted, away_look_cb *cb, void *arg);

/* inspect.h's test_shared, for a question of this connection: cb comes later, unless the connection is left first.
 * False: no memory. */
typedef void away_shared_cb(struct front_connection *connection, bool shared);
bool away_test_shared(struct front_connection *connection, struct away *away, enum wire_space space, int64_t from,
		      int64_t to, away_shared_cb *cb);

/* --- for this room --- */

/* The connection does not wait any more for the answer to away_test_shared(). */
void away_leave(struct front_user *user, struct front_connection *connection);
/* Sends again the messages that a keeping front did not take. True: none is left. */
bool away_send(struct front *front);
/* Does the front keep nothing, and is no message for it left? */
bool away_is_idle(const struct front *front);
/* FRONT_GIVEN: calls back; returns the connection that is free for another front, or NULL. */
struct front_connection *away_given(struct front *front, const struct front_answer *answer);
/* FRONT_PROBED, FRONT_TESTED, FRONT_LOOKED. */
void away_probed(struct front *front, const struct front_answer *answer);
/* The front has ended, with what it kept: calls back for its probes. */
void away_gone(struct front *front);
/* The keeper ends: frees all; calls back only for away_look(). */
void away_free(struct front *front);

#endif
