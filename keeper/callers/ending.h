/*
 * How a keeper ends: when nobody needs it, or when it was told to and no lease is in use any more. Loop only.
 *
 * A keeper that is told to end (SIGTERM, SIGINT) while locks are held goes on until they are not, or until it is told
 * again: its end would leave the holders unprotected after a ttl, unless another keeper is started in time, and kill
 * those that are frozen. It also waits for what the store has yet to confirm. keeper_end() is what it comes to.
 */
#ifndef DFLOCK_KEEPER_ENDING_H
#define DFLOCK_KEEPER_ENDING_H

#include "keeper/main.h"

/* k->options are set. Unblocks the signals. */
void ending_start(struct keeper *k);
void ending_close(struct keeper *k);

#endif
