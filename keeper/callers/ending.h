/*
 * When a keeper ends: when no program needs it, or when it was told to and no lease is in use any more. How it ends:
 * keeper.c, which registers that. Loop only.
 *
 * A keeper that is told to end (SIGTERM, SIGINT) gives back what no program uses. While locks are held, or the store has
 * yet to confirm something, it goes on serving until it is told again. If it ended, nothing would protect the holders
 * after a ttl, unless another keeper is started in time; and holders that are frozen would be killed.
 */
#ifndef DFLOCK_KEEPER_ENDING_H
#define DFLOCK_KEEPER_ENDING_H

#include <stdbool.h>
#include <stdint.h>

struct keeper;

/* Ends the loop, and leaves leases that are in use to the next keeper. Does nothing if the keeper ends already. */
typedef void ending_cb(struct keeper *k, const char *why);

/* Sets k->ending; k->config, k->options, k->sessions and k->table are there. Unblocks the signals. 0 or -ENOMEM. */
int ending_start(struct keeper *k, ending_cb *end);
/* Closes its handles; ending_free() when the loop has run. */
void ending_close(struct keeper *k);
void ending_free(struct keeper *k);

/* Ends the keeper. The caller returns to the loop and touches no session or lease any more. */
void ending_now(struct keeper *k, const char *why);
/* The same when no lease is in use. Some may be on their way back, and the store may not have answered so far. */
void ending_quietly(struct keeper *k, const char *why);
/* Were there such leases at the end? */
bool ending_was_unconfirmed(const struct keeper *k);
/* Was the keeper told to end, and does it wait for leases that are in use? */
bool ending_waits(const struct keeper *k);
/* Begins to give back every lease that no program here uses, as far as is known. The caller settles (queue.h). */
void ending_give_back(struct keeper *k);

/* --- the decisions; pure --- */

/* No program has needed the keeper for idle_for_ms: does it end? */
bool ending_is_idle(int64_t idle_for_ms, int64_t idle_ms, int64_t ttl_ms);

enum ending_step { ENDING_LATER, ENDING_QUIETLY, ENDING_AT_ONCE };
/* The keeper was told to end. again: a second time. in_use: how many leases are in use, or may be. releasing: the store
 * has yet to confirm that a lease was given back. waited: the time for such answers is over. */
enum ending_step ending_decide(bool again, unsigned in_use, bool releasing, bool waited);

#endif
