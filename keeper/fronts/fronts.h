/*
 * The keeper's side of its fronts (front.h): which front reads which connection, and the files that fronts keep. Loop
 * only.
 *
 * Each user has fronts of its own, a bounded number; one that hangs counts until it has ended. So a user whose file
 * systems hang waits, and is refused after some seconds, or at once if all of its fronts hang, and no other user
 * notices. A front that reads questions refuses files of devices that others of this user hang on: a mount that does
 * not answer delays the user's other files by some seconds, once, unless even closing its descriptors hangs.
 */
#ifndef DFLOCK_KEEPER_FRONTS_H
#define DFLOCK_KEEPER_FRONTS_H

#include "keeper/keeper.h"

#define FRONTS_PER_USER  4   /* that read questions; one more may be started to close connections */
#define KEEPERS_PER_USER 4   /* that keep files: one for each device */
#define AWAY_LOOKS_MAX   16  /* that a front has not answered: it may hang */
#define FRONTS_ALL       256 /* of all users together */

struct front_answer;
struct fronts;
struct away;

/* door: front_start_door(). NULL: no memory. */
struct fronts *fronts_new(struct keeper *k, int door);
/* Ends them, as far as they can be ended; no session may be left. */
void fronts_free(struct fronts *fronts);
/* The door is to have a copy of the listening socket. 0 or -errno. */
int fronts_listen(struct fronts *fronts, int listen_fd);

/* The process ends at once, and fd is a connection that may have unread descriptors in it: its last close is not done
 * here. 0 (the caller may close its own) or -errno. */
int fronts_abandon(struct fronts *fronts, int fd);

/* Something may be there to be read: dispatch_received() comes, never from inside the call, or a refusal. */
void fronts_receive(struct session *s);
/* The session ends, or has been refused: what its front has yet to say about it is nobody's. */
void fronts_leave(struct session *s);
/* Closes a connection of this user, which may have unread descriptors in it. */
void fronts_bury(struct fronts *fronts, uid_t uid, int fd);

/*
 * Has the front that looked at s's file pass its description to one that keeps it: cb comes with that, or with NULL and
 * the reason; neither if the session is left first. To be called in dispatch_received(); if it is not, the front closes
 * the description.
 */
typedef void fronts_kept_cb(struct session *s, struct away *away, const char *why);
void fronts_keep(struct session *s, uint64_t dev, fronts_kept_cb *cb);

/* The front that looked at s's file waits until fronts_keep() or fronts_release(), also after dispatch_received(). */
void fronts_hold(struct session *s);
/* What a front holds for s is not to be kept: it closes that. Nothing if fronts_keep() has come, or it holds none. */
void fronts_release(struct session *s);

/* What lock_test_shared asks, of a file that is away: cb comes later, unless the session is left first. False: it
 * cannot be asked. */
typedef void fronts_shared_cb(struct session *s, bool shared);
bool fronts_test_shared(struct session *s, struct away *away, fronts_shared_cb *cb);

/* *owner is where `away` stands; NULL is put there when the front that keeps it has ended. */
void away_owned(struct away *away, struct away **owner);
/* The description is closed. */
void away_forget(struct away *away);

/* inquiry_look() on it. cb comes once, never from inside the call; found is -EIO if the front has ended. False: as many
 * as may be wait for this front, or no memory. */
typedef void away_look_cb(void *arg, int found, const struct store_range *in_use);
bool away_look(struct away *away, const struct store_range *wanted, away_look_cb *cb, void *arg);

/* As probe_start() and probe_stop() in probe.h; but what was taken does not stay: PROBE_FREE means tested, not held. */
struct away_probe;
struct away_probe *away_probe_start(struct away *away, const struct probe_want *want, probe_cb *cb, void *arg);
void away_probe_stop(struct away_probe *probe);

#endif
