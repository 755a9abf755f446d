/* The operator's questions: status, reload, stop, init. Loop only. */
#ifndef DFLOCK_KEEPER_CONTROL_H
#define DFLOCK_KEEPER_CONTROL_H

#include "keeper/keeper.h"

/* A session has asked something other than for a lock. */
void control_question(struct session *s);

/* The store is reachable for the first time since the start, or is not. */
void control_store_tried(struct keeper *k);

/* It is not reachable any more. */
void control_store_down(struct keeper *k);

/* For a session that waits until everything is given back (WIRE_STOP). */
void control_in_use(struct lease *lease); /* this one cannot be given back */
void control_leases_ended(struct keeper *k);    /* some have ended */

#endif
